"""Facts → conditions: which alerts have reason to fire, computed from stored timestamps alone.

    flag_age:QUEUE   page     the oldest waiting flag is older than `flag_age` (parked ones do not count)
    crash:QUEUE      page     nodes that crashed too often in a row and wait for a person; grouped, names them
    rejected:QUEUE   ticket   something handed in was refused
    inbox:QUEUE      page     the folder is gone or a disk full for over 60 s; ticket: anything else about the inbox
    sources:QUEUE    ticket   a pattern that matches no document, or a document that cannot be read
    trigger          ticket   triggers of plug-ins that do not run
    decider          page     a decider that could not be asked for ten minutes
    store            page     what is wrong with the store, as far as the store itself can still say so

``start`` needs no store and is not computed here (``start_alert``).

When ``rejected`` clears: a refusal is an event, not a state, so its alert stays for one repeat interval (4 h)
after the last refusal and then ends silently, since waiting mended nothing; ``clear_problem`` ends it sooner. So
one refused file makes one ticket, and refusals without end make one ticket every repeat interval, not one each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from notify.machine import Condition
from notify.policy import PAGE, TICKET, Policy, rank
from store.alert_rows import Crashed, Facts, Problem, Waiting

STOPS_AN_INBOX = ("missing", "disk")
MISSING_FOR_S = 60.0
AWAY_FOR_S = 600.0


class Cause(NamedTuple):
    """A condition together with the facts that a message about it tells. One of the three is set."""

    condition: Condition
    queue: str
    waiting: Waiting | None = None
    crashed: tuple[Crashed, ...] = ()
    problems: tuple[Problem, ...] = ()


def causes(facts: Facts, policy: Policy, *, now: float) -> dict[str, Cause]:
    """Every condition that is true now, by alert key, whether or not for long enough to fire."""
    found = [
        *_flag_ages(facts.waiting, policy),
        *_crashes(facts.crashed),
        *_problems(facts.problems, policy, now),
    ]
    return {cause.condition.key: cause for cause in found}


def family(key: str) -> str:
    """``flag_age`` of ``flag_age:questions``."""
    return key.partition(":")[0]


def tells_resolved(key: str) -> bool:
    """Whether the end of this alert is news to anybody."""
    return family(key) != "rejected"


def quiet_problems(facts: Facts, key: str, policy: Policy, *, now: float) -> tuple[tuple[str, float], ...]:
    """The problems of an alert that are over by themselves (see the module's head), to forget when it ends."""
    return tuple(
        (problem.key, problem.seen_at)
        for problem in facts.problems
        if alert_key(problem) == key and not _lasts(problem, policy, now)
    )


def alert_key(problem: Problem) -> str:
    """The alert a stored problem belongs to: its family, and its queue if it has one."""
    name = family(problem.key)
    return f"{name}:{problem.queue}" if problem.queue else name


def _flag_ages(waiting: Iterable[Waiting], policy: Policy) -> list[Cause]:
    return [
        Cause(
            Condition(
                key=f"flag_age:{one.queue}",
                severity=PAGE,
                since_at=one.oldest_at,
                for_s=policy.flag_age_s,
                newest=one.newest_over,
                newest_at=one.newest_over_at,
            ),
            one.queue,
            waiting=one,
        )
        for one in waiting
    ]


def _crashes(crashed: Iterable[Crashed]) -> list[Cause]:
    queues: dict[str, list[Crashed]] = {}
    for node in crashed:
        queues.setdefault(node.queue, []).append(node)
    return [
        Cause(
            Condition(
                key=f"crash:{queue}",
                severity=PAGE,
                since_at=min(node.since_at for node in nodes),
                newest=max(node.seq for node in nodes),
                newest_at=max(node.since_at for node in nodes),
                grouped=True,
            ),
            queue,
            crashed=tuple(nodes),
        )
        for queue, nodes in queues.items()
    ]


def _problems(problems: Iterable[Problem], policy: Policy, now: float) -> list[Cause]:
    alerts: dict[str, list[Problem]] = {}
    for problem in problems:
        if _lasts(problem, policy, now):
            alerts.setdefault(alert_key(problem), []).append(problem)
    found = []
    for key, several in alerts.items():
        conditions = [_condition_of(key, problem) for problem in several]
        ready = [one for one in conditions if now >= one.since_at + one.for_s]
        if ready:
            condition = max(ready, key=lambda one: (rank(one.severity), -one.since_at))
        else:
            condition = min(conditions, key=lambda one: one.since_at + one.for_s)
        found.append(Cause(condition, several[0].queue or "", problems=tuple(several)))
    return found


def _condition_of(key: str, problem: Problem) -> Condition:
    name = family(key)
    if name == "inbox" and problem.kind in STOPS_AN_INBOX:
        return Condition(key, PAGE, problem.since_at, for_s=MISSING_FOR_S)
    if name == "decider":
        return Condition(key, PAGE, problem.since_at, for_s=AWAY_FOR_S)
    return Condition(key, PAGE if name == "store" else TICKET, problem.since_at)


def _lasts(problem: Problem, policy: Policy, now: float) -> bool:
    return family(problem.key) != "rejected" or now - problem.seen_at < policy.repeat_s
