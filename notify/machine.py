"""The alert state machine: values in, values out. ``now`` is an argument; nothing is read or written here.

    ok ──condition true──▶ pending ──true for `for_s`──▶ firing ──false for `clear_hold_s`──▶ ok
                              └──false──▶ ok

An ack lies over ``firing``: it stops escalation and repeats until the alert clears or the ack ends (R4). What
comes after it (a newer flag over its limit, a louder severity) begins a new episode, unacked.

The rules as they stand here:
- R1   every clock of a channel starts at a delivery: escalation at the episode's first notice, repeat at the
       last. Until the first one is delivered nothing else falls due there.
- R2   a newer notice replaces the unsent one; ``resolved`` and escalation replace weaker ones, a repeat does
       not: the words are put together when a message is sent, so the unsent one is as new as any.
- R3   ``resolved`` only where a notice of this episode was delivered. One whose sender died while sending may
       have arrived, so it counts as delivered.
- R7   a grouped alert waits ``group_wait_s`` and then tells of new members at most every ``group_gap_s``.
- R11  one step makes at most one move that speaks, and owes a channel at most one message, however late.

Clocks: a stored time that lies in the future (the machine's clock was set back) becomes ``now``, so nothing
waits for hours that are not coming; a condition that began in the future goes on, its age is not known; a clock
set forward makes one step late, never several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from notify.policy import PAGE, Policy, channels_for, rank
from store.alert_rows import Alert, Change, Line, Put

_STRENGTH = {"repeat": 0, "joined": 1, "firing": 2, "escalation": 3, "resolved": 4}


class Condition(NamedTuple):
    """One alert's condition while it is true, from stored facts.

    It fires when it was true for ``for_s`` since ``since_at``. ``newest``/``newest_at``: the last flag that
    counts towards it (0 for conditions without members), which an ack does or does not cover.
    """

    key: str
    severity: str
    since_at: float
    for_s: float = 0.0
    newest: int = 0
    newest_at: float = 0.0
    grouped: bool = False


class Step(NamedTuple):
    """What an evaluation makes of one alert: the change to commit (None: nothing), and when to look again."""

    change: Change | None
    due_at: float | None


def step(
    alert: Alert,
    condition: Condition | None,
    lines: Mapping[str, Line],
    policy: Policy,
    *,
    owner: str,
    tell_resolved: bool = True,
    now: float,
) -> Step:
    """One evaluation of one alert. ``owner``: the living sender; what others hold was left behind."""
    before, told = alert, dict(lines)
    alert, told, shifted = _without_future(alert, told, now)
    strays = tuple(_strays(told, policy, owner))
    for name in strays:
        told[name] = told[name]._replace(live=None)
    if alert.state == "firing":
        after, puts, drops, due_at = _firing(
            alert, condition, told, policy, owner, tell_resolved=tell_resolved, now=now
        )
    else:
        after, puts, drops, due_at = _quiet(alert, condition, told, policy, now)
    gone = tuple(dict.fromkeys((*strays, *drops)))
    if after == before and not (puts or gone or shifted):
        return Step(None, due_at)
    return Step(Change(after, tuple(puts), gone, tuple(shifted)), due_at)


Moved = tuple[Alert, Sequence[Put], Sequence[str], float | None]


def _quiet(
    alert: Alert, condition: Condition | None, lines: Mapping[str, Line], policy: Policy, now: float
) -> Moved:
    """From ok or pending: fire, wait, or be ok."""
    if condition is None:
        return _at_rest(alert, None), (), (), None
    fires_at = condition.since_at + condition.for_s
    if now >= fires_at:
        return _begin(alert, condition, lines, policy, now)
    return _at_rest(alert, condition), (), (), fires_at


def _at_rest(alert: Alert, condition: Condition | None) -> Alert:
    return Alert(
        key=alert.key,
        state="pending" if condition else "ok",
        severity=condition.severity if condition else alert.severity,
        episode=alert.episode,
        since_at=condition.since_at if condition else None,
        version=alert.version,
    )


def _begin(
    alert: Alert, condition: Condition, lines: Mapping[str, Line], policy: Policy, now: float
) -> Moved:
    """A new episode: firing, unacked, nothing told yet."""
    fresh = Alert(alert.key, "firing", condition.severity, alert.episode + 1, now, version=alert.version)
    puts, due_at = _notices(fresh, condition, lines, policy, now)
    return fresh, puts, (), due_at


def _firing(
    alert: Alert,
    condition: Condition | None,
    lines: Mapping[str, Line],
    policy: Policy,
    owner: str,
    *,
    tell_resolved: bool,
    now: float,
) -> Moved:
    if condition is None or condition.since_at <= now < condition.since_at + condition.for_s:
        alert = alert._replace(false_at=now if alert.false_at is None else alert.false_at)
        clears_at = (alert.false_at or now) + policy.clear_hold_s
        in_flight = any(line.live and line.live.owner == owner for line in lines.values())
        if now < clears_at or in_flight:  # what is being sent decides whether `resolved` is owed
            return alert, (), (), max(clears_at, now)
        return _clear(alert, condition, lines, owner, tell_resolved=tell_resolved, now=now)
    alert = alert._replace(false_at=None)
    if rank(condition.severity) > rank(alert.severity):
        return _begin(alert, condition, lines, policy, now)
    if alert.acked_until_at is not None and alert.acked_at is not None:
        if condition.newest > alert.acked_mark or condition.newest_at > alert.acked_at:
            return _begin(alert, condition, lines, policy, now)
        if now < alert.acked_until_at:
            return alert, (), (), alert.acked_until_at
        alert = alert._replace(acked_at=None, acked_until_at=None, acked_by=None, acked_mark=0)
    puts, due_at = _notices(alert, condition, lines, policy, now)
    return alert, puts, (), due_at


def _clear(
    alert: Alert,
    condition: Condition | None,
    lines: Mapping[str, Line],
    owner: str,
    *,
    tell_resolved: bool,
    now: float,
) -> Moved:
    puts: list[Put] = []
    drops: list[str] = []
    for line in lines.values():
        left_behind = line.live is not None and line.live.state == "sending" and line.live.owner != owner
        if tell_resolved and (line.episode == alert.episode or left_behind):
            puts.append(Put(line.channel, "resolved"))
        elif line.live is not None:
            drops.append(line.channel)
    rest = _at_rest(alert, condition)
    return rest, puts, drops, condition.since_at + condition.for_s if condition else now if puts else None


def _notices(
    alert: Alert, condition: Condition, lines: Mapping[str, Line], policy: Policy, now: float
) -> tuple[list[Put], float | None]:
    """What each channel is owed now, and when the next one falls due."""
    puts: list[Put] = []
    due: list[float] = []
    for name in channels_for(policy, alert.severity):
        line = lines.get(name, Line(name))
        owed = _owed(alert, condition, line, policy)
        ready = [kind for kind, at in owed if at <= now]
        due.extend(at for _, at in owed if at > now)
        live = line.live
        if live is not None and live.episode == alert.episode and live.kind != "resolved":
            ready = [
                kind for kind in ready if live.state == "unsent" and _STRENGTH[kind] > _STRENGTH[live.kind]
            ]
        if ready:
            puts.append(Put(name, max(ready, key=_STRENGTH.__getitem__), condition.newest))
    return puts, now if puts else min(due, default=None)


def _owed(alert: Alert, condition: Condition, line: Line, policy: Policy) -> list[tuple[str, float]]:
    """The notices a channel may get next, each with its time."""
    if line.episode != alert.episode:
        return [("firing", (alert.since_at or 0.0) + (policy.group_wait_s if condition.grouped else 0.0))]
    owed = [("repeat", line.last_at + policy.repeat_s)]
    if condition.grouped and condition.newest > line.mark:
        owed.append(("joined", line.last_at + policy.group_gap_s))
    if policy.escalate_s is not None and alert.severity == PAGE and not line.escalated:
        owed.append(("escalation", line.first_at + policy.escalate_s))
    return owed


def _strays(lines: Mapping[str, Line], policy: Policy, owner: str) -> list[str]:
    """Channels whose unsent message has nowhere to go: the service left the configuration."""
    known = {channel.name for channel in policy.channels}
    return [
        line.channel
        for line in lines.values()
        if line.live is not None and line.channel not in known and line.live.owner != owner
    ]


def _without_future(
    alert: Alert, lines: Mapping[str, Line], now: float
) -> tuple[Alert, dict[str, Line], list[Line]]:
    """Times that lie in the future become ``now``; an ack keeps its length."""
    if alert.state == "firing":
        since_at, false_at = min(alert.since_at or now, now), alert.false_at and min(alert.false_at, now)
        alert = alert._replace(since_at=since_at, false_at=false_at)
        if alert.acked_at is not None and alert.acked_until_at is not None and alert.acked_at > now:
            alert = alert._replace(acked_at=now, acked_until_at=alert.acked_until_at - alert.acked_at + now)
    told = {
        name: line._replace(first_at=min(line.first_at, now), last_at=min(line.last_at, now))
        for name, line in lines.items()
    }
    return alert, told, [line for name, line in told.items() if line != lines[name]]
