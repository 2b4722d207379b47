"""Which leases are to be taken back now, and why. Pure judgement, and the killing that must come before.

    one of our living workers      never: its own declared deadline binds it, the pool kills it past that
    its owner is provably dead     at once; cause ``daemon`` if the daemon it worked for is dead, too
    its daemon is dead, it lives   an orphan of a killed daemon: killed, then taken (cause ``daemon``)
    any other                      when the lease expired; if it lives it is killed first (cause ``expired``)

An owner that lives in another pid namespace is unknown: only the lease's end counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from store import owners
from store.claims import Lease
from store.owners import Verdict

KILL_WAIT_S = 2.0
_PAUSE_S = 0.005


class Judged(NamedTuple):
    """A lease to take back; ``kill``: its owner still lives and must be dead before."""

    lease: Lease
    cause: str
    kill: bool


def judge(
    leases: Iterable[Lease],
    *,
    now: float,
    me: str,
    mine: Collection[str],
    verdict: Callable[[str], Verdict] = owners.verdict,
) -> list[Judged]:
    """The leases whose time is over. ``me``: this daemon's owner line; ``mine``: those of its living workers."""
    found = (_judge_one(lease, now=now, me=me, mine=mine, verdict=verdict) for lease in leases)
    return [one for one in found if one is not None]


def _judge_one(
    lease: Lease, *, now: float, me: str, mine: Collection[str], verdict: Callable[[str], Verdict]
) -> Judged | None:
    if any(owners.same_process(lease.owner, one) for one in mine):
        return None
    of_dead_daemon = not owners.same_process(lease.daemon, me) and verdict(lease.daemon) == "dead"
    seen = verdict(lease.owner)
    if seen == "dead":
        return Judged(lease, "daemon" if of_dead_daemon else "worker", kill=False)
    if of_dead_daemon and seen == "alive":
        return Judged(lease, "daemon", kill=True)
    if lease.expires_at <= now:
        return Judged(lease, "expired", kill=seen == "alive")
    return None


def make_sure(judged: Iterable[Judged]) -> list[tuple[Lease, str]]:
    """Kill the owners that still live, with their groups; (lease, cause) of those that are certainly gone.

    Waits at most ``KILL_WAIT_S`` a process: one in an uninterruptible wait is left for the next sweep.
    """
    gone = []
    for one in judged:
        if one.kill and not _killed(one.lease.owner):
            continue
        gone.append((one.lease, one.cause))
    return gone


def _killed(owner: str) -> bool:
    end = time.monotonic() + KILL_WAIT_S
    while owners.verdict(owner) == "alive":
        owners.kill_group(owner)
        if time.monotonic() > end:
            return False
        time.sleep(_PAUSE_S)
    return True
