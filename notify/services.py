"""What the configured services come to: does each URL file hold a URL that Apprise knows (in a child, nothing sent).

Apprise itself is silent about services it cannot make: a missing file or a bad line is no error there. So
``check-config`` counts, and says why one does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from notify.policy import PAGE, TICKET, Policy, policy_from
from notify.sender import loads

if TYPE_CHECKING:
    from notify.config import NotifySettings


class ServiceState(NamedTuple):
    """One channel: its URL file, its tags, and whether it would load; ``words`` says why not, without the URL."""

    url_file: str
    tags: tuple[str, ...]
    loads: bool
    words: str


def look_at(policy: Policy) -> list[ServiceState]:
    """Every channel's state; takes about a second for each."""
    found = []
    for channel in policy.channels:
        outcome = loads(channel.name)
        found.append(ServiceState(channel.name, channel.tags, outcome.delivered, outcome.words))
    return found


def count_per_tag(settings: NotifySettings) -> dict[str, int]:
    """Severity → how many services that really load would get it; zeros included."""
    states = look_at(policy_from(settings))
    return {tag: sum(one.loads and tag in one.tags for one in states) for tag in (PAGE, TICKET)}
