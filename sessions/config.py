"""What a session may decide, who decides, and the limits of the process it runs in."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo

from memory.config import MemoryLimits
from sessions.models import AnthropicDecider, OllamaDecider, OpenaiDecider
from store.settings import Duration, Many, Name, RelativePath, Section, Size, Text
from store.units import parse_duration, parse_size

Decision = Literal["answer", "flag", "park"]
ConstraintKind = Literal["scope", "prohibition", "acceptance", "interface"]

LATER_DECISIONS = ("act", "plan", "rewind")


class DaemonLimits(Section):
    """``[daemon]``: how many sessions at once, how long, how large, and how often one may crash."""

    max_sessions: Annotated[int, Field(ge=1, le=64)] = 1
    session_timeout: Annotated[Duration, Field(ge=0.5)] = parse_duration("10m")
    grace: Annotated[Duration, Field(ge=0)] = parse_duration("20s")
    lease: Annotated[Duration, Field(ge=0.5)] = parse_duration("60s")
    crash_limit: Annotated[int, Field(ge=1, le=100)] = 3
    allow_network_store: bool = False
    worker_memory: Annotated[Size, Field(ge=128 << 20)] = parse_size("1GiB")


class ConstraintRule(Section):
    """A rule shown verbatim to every session of the queue."""

    text: Text
    kind: ConstraintKind = "scope"


def _constraint(value: object) -> object:
    return {"text": value} if isinstance(value, str) else value


Constraint = Annotated[ConstraintRule, BeforeValidator(_constraint)]


def _some_once(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise ValueError("must name at least one decision")
    if len(set(value)) != len(value):
        raise ValueError("names a decision twice")
    return value


class QueuePolicy(MemoryLimits):
    """The keys of ``[queues.NAME]`` that a session obeys."""

    outbox: RelativePath | None = None
    constraints: Many[Constraint] = ()
    decider: Name
    decisions: Annotated[Many[Decision], AfterValidator(_some_once)] = ("answer", "flag", "park")
    max_decisions: Annotated[int, Field(ge=1, le=10_000)] = 50


class ExtractiveDecider(Section):
    """``kind = "extractive"``: quotes the best supported passage, or flags."""

    kind: Literal["extractive"]
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.8


def _argv(value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    if not value or not value[0].strip():
        raise ValueError("must name a program")
    if any("\0" in word for word in value):
        raise ValueError("must not hold a NUL")
    folder = (info.context or {}).get("folder")
    if "/" in value[0] and folder is not None:
        return (os.path.normpath(os.path.join(os.path.abspath(folder), value[0])), *value[1:])
    return value


class CommandDecider(Section):
    """``kind = "command"``: any program that takes one JSON object and gives one.

    A program with a slash in it is a path from the configuration's folder; another is looked for in PATH.
    """

    kind: Literal["command"]
    argv: Annotated[Many[str], AfterValidator(_argv)]
    timeout: Annotated[Duration, Field(gt=0)] = parse_duration("2m")
    max_output: Annotated[Size, Field(ge=1024)] = parse_size("1MiB")


Decider = Annotated[
    ExtractiveDecider | CommandDecider | OpenaiDecider | OllamaDecider | AnthropicDecider,
    Field(discriminator="kind"),
]
DECIDERS: dict[str, type[Section]] = {
    "extractive": ExtractiveDecider,
    "command": CommandDecider,
    "openai": OpenaiDecider,
    "ollama": OllamaDecider,
    "anthropic": AnthropicDecider,
}


def _not_ours(value: str) -> str:
    if value in DECIDERS:
        raise ValueError("is a kind of our own")
    return value


class PluginDecider(Section):
    """Any other ``kind``: a decider that another distribution brings. Its own keys stand beside ``kind``."""

    model_config = ConfigDict(extra="allow")
    kind: Annotated[Name, AfterValidator(_not_ours)]

    @property
    def options(self) -> dict[str, Any]:
        """The plug-in's own keys, as they are written; its ``settings_model`` reads them."""
        return dict(self.model_extra or {})


AnyDecider = Decider | PluginDecider
