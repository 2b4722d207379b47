"""Every decider by its kind. A new one is one file here, one line in ``build``, one model in ``sessions/config.py``."""

from __future__ import annotations

from sessions.config import CommandDecider as CommandSettings
from sessions.config import ExtractiveDecider as ExtractiveSettings
from sessions.decider import Decider


def build(settings: CommandSettings | ExtractiveSettings, *, folder: str) -> Decider:
    """The decider of a ``[deciders.NAME]`` section; ``folder`` is the configuration's."""
    if isinstance(settings, CommandSettings):
        from sessions.deciders.command import CommandDecider

        return CommandDecider(
            settings.argv, timeout_s=settings.timeout, max_output=settings.max_output, folder=folder
        )
    from sessions.deciders.extractive import ExtractiveDecider

    return ExtractiveDecider(threshold=settings.threshold)
