"""What the configured services come to: does each URL file hold a URL that Apprise knows (in a child, nothing sent).

Apprise itself is silent about services it cannot make: a missing file or a bad line is no error there. So
``check-config`` counts, and says why one does not count.
"""

from __future__ import annotations

from typing import NamedTuple

from notify.policy import Policy
from notify.sender import loads


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
