"""Every decider by its kind. A new one is one file here, one line in ``build``, one model in ``sessions/config.py``."""

from __future__ import annotations

from pathlib import Path

from sessions import models
from sessions.config import CommandDecider as CommandSettings
from sessions.config import ExtractiveDecider as ExtractiveSettings
from sessions.config import PluginDecider as PluginSettings
from sessions.decider import Decider
from store.settings import Section


def build(settings: Section, *, folder: str, name: str = "") -> Decider:
    """The decider of a ``[deciders.NAME]`` section; ``folder`` is the configuration's."""
    if isinstance(settings, PluginSettings):
        from sessions.deciders.plugin import PluginDecider

        return PluginDecider(settings.kind, settings.options, name=name, folder=Path(folder))
    if isinstance(settings, CommandSettings):
        from sessions.deciders.command import CommandDecider

        return CommandDecider(
            settings.argv, timeout_s=settings.timeout, max_output=settings.max_output, folder=folder
        )
    if isinstance(settings, ExtractiveSettings):
        from sessions.deciders.extractive import ExtractiveDecider

        return ExtractiveDecider(threshold=settings.threshold)
    return _model(settings)


def _model(settings: Section) -> Decider:
    if isinstance(settings, models.OllamaDecider):
        from sessions.deciders.ollama import OllamaDecider

        return OllamaDecider(settings)
    if isinstance(settings, models.AnthropicDecider):
        from sessions.deciders.anthropic import AnthropicDecider

        return AnthropicDecider(settings)
    if isinstance(settings, models.OpenaiDecider):
        from sessions.deciders.openai import OpenaiDecider

        return OpenaiDecider(settings)
    raise TypeError(f"no decider for {type(settings).__name__}")
