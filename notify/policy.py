"""What the pure parts and the sender need of ``[notify]``, as plain values.

A channel's name is the path of its URL file: it says nothing secret, and it stays the same when services are
reordered, so that a reload makes nothing be said again (R13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from notify.config import NotifySettings

PAGE = "page"
TICKET = "ticket"
SEVERITIES = (TICKET, PAGE)  # rising


class Channel(NamedTuple):
    """One service: the file that holds its Apprise URL, and the severities it gets."""

    name: str
    tags: tuple[str, ...]


class Policy(NamedTuple):
    """Every time the machine works with, in seconds, and the channels. The last three are fixed."""

    channels: tuple[Channel, ...] = ()
    flag_age_s: float = 3600.0
    repeat_s: float = 4 * 3600.0
    escalate_s: float | None = 2 * 3600.0
    clear_hold_s: float = 600.0
    group_wait_s: float = 300.0
    group_gap_s: float = 1800.0
    resolved_for_s: float = 24 * 3600.0


def policy_from(settings: NotifySettings) -> Policy:
    """The policy of a configuration section; a URL file named twice is one channel with both's tags."""
    tags: dict[str, list[str]] = {}
    for service in settings.services:
        tags.setdefault(str(service.url_file), []).extend(service.tags)
    return Policy(
        channels=tuple(Channel(name, tuple(dict.fromkeys(all_tags))) for name, all_tags in tags.items()),
        flag_age_s=settings.flag_age,
        repeat_s=settings.repeat,
        escalate_s=settings.escalate,
        clear_hold_s=settings.clear_hold,
    )


def rank(severity: str) -> int:
    """How loud a severity is."""
    return SEVERITIES.index(severity)


def channels_for(policy: Policy, severity: str) -> tuple[str, ...]:
    """The channels that get alerts of this severity: those with its tag, and no others."""
    return tuple(channel.name for channel in policy.channels if severity in channel.tags)
