"""What wakes the drain: the inbox of a queue, the tables ``[triggers.NAME]`` and ``[webhooks.NAME]``."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from store.settings import Duration, Many, Name, RelativePath, Section, Size, Text
from store.units import parse_duration, parse_size
from triggers import cron, pointers


class InboxSettings(Section):
    """The keys of ``[queues.NAME]`` about its drop folder. No ``inbox``: work comes by other doors only."""

    inbox: RelativePath | None = None
    stable_for: Annotated[Duration, Field(ge=0, le=3600)] = parse_duration("2s")
    inbox_immediate: bool = True
    ignore: Many[Text] = ()
    max_bytes: Annotated[Size, Field(ge=1, le=64 << 20)] = parse_size("1MiB")


class FilesTrigger(Section):
    """``kind = "files"``: tunes the watcher that the inboxes of these queues have anyway."""

    kind: Literal["files"]
    queues: Annotated[Many[Name], Field(min_length=1)]
    watch: Literal["auto", "events", "poll"] = "auto"
    poll_every: Annotated[Duration, Field(ge=0.1, le=3600)] = parse_duration("5s")
    rescan_every: Annotated[Duration, Field(ge=1, le=86400)] = parse_duration("5m")


class TickItem(Section):
    """The item that each tick of a timer hands in, keyed by its planned instant."""

    title: Text | None = None
    body: Text


def _known_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ValueError, OSError, LookupError):
        raise ValueError('must be a time zone such as "Europe/Berlin" or "UTC"') from None
    return value


def _cron_line(value: str) -> str:
    cron.parse(value)
    return value


class TimerTrigger(Section):
    """``kind = "timer"``: wakes its queues every so often, or at the times of a cron line in a time zone."""

    kind: Literal["timer"]
    queues: Annotated[Many[Name], Field(min_length=1)]
    every: Annotated[Duration, Field(ge=1)] | None = None
    cron: Annotated[str, AfterValidator(_cron_line)] | None = None
    timezone: Annotated[str, AfterValidator(_known_zone)] | None = None
    item: TickItem | None = None

    @model_validator(mode="after")
    def _one_plan(self) -> TimerTrigger:
        if (self.every is None) == (self.cron is None):
            raise ValueError('needs either "every" or "cron"')
        if self.timezone is not None and self.cron is None:
            raise ValueError('"timezone" belongs to "cron"')
        return self


Trigger = Annotated[TimerTrigger | FilesTrigger, Field(discriminator="kind")]
TRIGGERS: dict[str, type[Section]] = {"timer": TimerTrigger, "files": FilesTrigger}


def _not_ours(value: str) -> str:
    if value in TRIGGERS:
        raise ValueError("is a kind of our own")
    return value


class PluginTrigger(Section):
    """Any other ``kind``: a trigger that another distribution brings. Its own keys stand beside these."""

    model_config = ConfigDict(extra="allow")
    kind: Annotated[Name, AfterValidator(_not_ours)]
    queues: Annotated[Many[Name], Field(min_length=1)]

    @property
    def options(self) -> dict[str, Any]:
        """The plug-in's own keys, as they are written; its ``settings_model`` reads them."""
        return dict(self.model_extra or {})


AnyTrigger = Trigger | PluginTrigger


def _one_or_more(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _a_pointer(value: str) -> str:
    problem = pointers.problem(value)
    if problem:
        raise ValueError(problem)
    return value


Pointer = Annotated[str, AfterValidator(_a_pointer)]
"""A JSON pointer (RFC 6901)."""


class WebhookSettings(Section):
    """``[webhooks.NAME]``: ``POST /hooks/NAME`` hands in to ``queue`` what was signed with one of the secrets."""

    scheme: Literal["standard", "github"]
    secret_file: Annotated[
        Many[RelativePath], BeforeValidator(_one_or_more), Field(min_length=1, max_length=2)
    ]
    queue: Name
    title: Pointer | None = None
    body: Pointer | None = None
    key: Pointer | None = None
    max_bytes: Annotated[Size, Field(ge=1, le=16 << 20)] = parse_size("1MiB")
