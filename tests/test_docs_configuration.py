from __future__ import annotations

import re
from pathlib import Path

from daemon.config_words import TOP_LEVEL
from daemon.sections import HttpSettings, QueueSettings
from notify.config import NotifySettings, Service
from sessions.config import DECIDERS, DaemonLimits
from triggers.config import TRIGGERS, WebhookSettings

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"


def test_the_page_about_the_configuration_names_every_key():
    text = PAGE.read_text()
    models = [DaemonLimits, HttpSettings, QueueSettings, NotifySettings, Service]
    for model in [*models, *DECIDERS.values(), *TRIGGERS.values(), WebhookSettings]:
        for key in model.model_fields:
            named = re.search(rf"`{key}\b", text) or f"`[{key}" in text or key == "queues"
            assert named, f"{model.__name__}.{key} is not in docs/configuration.md"
    for section in TOP_LEVEL:
        assert f"[{section}" in text or f"`{section}`" in text
