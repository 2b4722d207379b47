"""A worker: one process that drains sessions until nothing is ready, it is told to stop, or a session kills it.

Only the node it holds suffers when it dies. Everything it must not lose is in the store before it goes on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memory.sources import SourceWatch
from sessions import papers
from sessions.decider import Decider
from sessions.deciders import build
from sessions.link import Link
from sessions.plan import Plan, plan_of
from sessions.session import Ended, Room, run_session
from store import owners
from store.claims import Claim, Order
from store.sqlite import SqliteStore, open_store

SESSIONS_A_WORKER = 5000  # then a fresh process: whatever leaks, leaks little


def work(job: Mapping[str, Any], link: Link) -> None:
    """The worker's whole life. ``job`` is a ``Plan``."""
    plan = plan_of(job)
    store = open_store(plan.state_dir)
    try:
        drain(plan, store, link)
    finally:
        store.close()


def drain(
    plan: Plan, store: SqliteStore, link: Link, *, deciders: Mapping[str, Decider] | None = None
) -> int:
    """Run sessions one after the other; how many ran. ``deciders`` stand in for those of the plan."""
    room = _room(plan, store, link, deciders)
    outboxes = {name: policy.outbox for name, policy in plan.queues.items()}
    owner = owners.me()
    unmarked = papers.Unmarked(store)
    most = plan.sessions_max or SESSIONS_A_WORKER
    done = 0
    turn = list(plan.queues)
    claim: Claim | None = None

    def order() -> Order:
        queues = list(turn)
        turn.append(turn.pop(0))  # every queue first in its turn, so that a long one starves nobody
        # a lease as long as its one call may take, so that a session needs no commit just to hold on
        lease_s = plan.limits.session_timeout + plan.limits.lease
        return Order(queues, owner, plan.daemon, plan.trigger, lease_s, plan.limits.session_timeout)

    def following() -> Order | None:
        return None if done + 1 >= most or link.stop_asked() else order()

    while turn:
        if claim is None:
            if done >= most or link.stop_asked():
                break
            claim = store.claims.claim(order(), now=room.clock())
        if claim is None:
            link.send({"type": "idle"})
            break
        link.send({"type": "session_started", **_begun(claim)})
        ended = run_session(room, claim, following=following)
        done += 1
        if ended.away is not None:
            # nobody there to ask: its queues are for later, and for a look of the daemon
            away = plan.queues[ended.queue].decider
            turn = [name for name in turn if plan.queues[name].decider != away]
        written = _settle(store, outboxes, ended, unmarked, room.clock(), command=plan.command)
        link.send({"type": "session_ended", **_told(ended), "files": written})
        claim = ended.following
        if claim is not None:  # its time begins now, however long the files of the one before took
            claim = claim._replace(deadline_at=room.clock() + plan.limits.session_timeout)
    if left := unmarked.left():  # no commit of ours carried them: the daemon's next one does
        link.send({"type": "marks", "marks": [list(mark) for mark in left]})
    return done


def _room(plan: Plan, store: SqliteStore, link: Link, deciders: Mapping[str, Decider] | None) -> Room:
    used = {policy.decider for policy in plan.queues.values()}
    if deciders is None:
        deciders = {
            name: build(one, folder=str(plan.folder), name=name)
            for name, one in plan.deciders.items()
            if name in used
        }
    return Room(
        store=store,
        policies=plan.queues,
        deciders=deciders,
        limits=plan.limits,
        sources={
            name: SourceWatch(name, policy.sources, Path(plan.folder))
            for name, policy in plan.queues.items()  # one without sources may have had some before
        },
        link=link,
        clock=time.time,
    )


def _settle(
    store: SqliteStore,
    outboxes: Mapping[str, Path | None],
    ended: Ended,
    unmarked: papers.Unmarked,
    now: float,
    *,
    command: tuple[str, str],
) -> list[str]:
    """Write the files that the checkpoint wanted; their paths."""
    if ended.outcome not in ("answered", "flagged", "denied"):
        return []
    try:
        marks = papers.settle(store, outboxes, item_id=ended.item_id, command=command)
    except OSError:
        return []  # the row stays due; the daemon settles it at its next sweep and says what is wrong
    unmarked.add(marks, now=now)
    return [mark.path for mark in marks if mark.path]


def _begun(claim: Claim) -> dict[str, Any]:
    return {
        "session": claim.session_id,
        "item": claim.item_id,
        "node": claim.node_id,
        "queue": claim.queue,
        "token": claim.token,
        "deadline_at": claim.deadline_at,
    }


def _told(ended: Ended) -> dict[str, Any]:
    return {
        "session": ended.session_id,
        "item": ended.item_id,
        "queue": ended.queue,
        "outcome": ended.outcome,
        "flag": ended.flag_id,
        "why": ended.why,
        "seconds": ended.seconds,
        "cited": ended.cited,
        "away": ended.away
        and {"asked_s": ended.away.retry_after_s or 0.0, "permanent": ended.away.permanent},
    }
