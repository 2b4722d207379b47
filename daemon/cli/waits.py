"""What an item waits for, in one line, and what ends the wait: a time, a person, a session, the daemon (FIELD 28)."""

from __future__ import annotations

from typing import Any, NamedTuple

from daemon.cli import screen, times
from store import moments, owners
from store.text import shown


class Wait(NamedTuple):
    """``ends_by``: time, person, session, daemon, nothing (it ended) or lost (nothing will end it).

    ``command`` are the words of a command that helps, ``does`` what it does.
    """

    words: str
    ends_by: str
    does: str = ""
    command: tuple[str, ...] = ()


def wait_of(
    facts: dict[str, Any],
    *,
    running: bool,
    configured: bool,
    now: float,
    away: dict[str, Any] | None = None,
) -> Wait:
    """The wait behind ``views.why``. ``running``: a daemon; ``configured``: the item's queue is in its file;
    ``away``: why its decider cannot be asked.
    """
    state, item = facts["state"], facts["id"]
    if state in ("done", "aborted"):
        return _ended(facts, now)
    if state == "running":
        return _held(facts, running=running, now=now)
    if state == "paused":
        return _paused(facts, now)
    if facts["flag"] is not None:
        return _asked(facts["flag"], now)
    if state == "stuck":
        return Wait(
            "nothing will end this wait: no step of it is ready, running or waiting",
            "lost",
            "Try again",
            ("retry", item),
        )
    if not configured:
        queue = shown(facts["queue"])
        return Wait(
            f'waits for its queue: "{queue}" is not in the configuration, so no session takes it', "person"
        )
    if facts["queue_paused"] is not None:
        by, at = facts["queue_paused"]["by"], facts["queue_paused"]["at"]
        since = f"paused by {shown(by)} {_at(at, now)}"
        words = f"waits for its queue: {since}; resuming the queue ends the wait"
        return Wait(words, "person", "Go on", ("resume", shown(facts["queue"])))
    if away is not None and running and _is_ready(facts, now):
        since = f"{times.moment(away['since_at'], now)} {screen.zone()}"
        why = f"its decider cannot be asked since {since} ({shown(away['detail'], 120)})"
        return Wait(f"ready; {why}; it is asked again by itself", "time", "Try now", ("retry", item))
    return _ready(facts, running=running, now=now)


def _is_ready(facts: dict[str, Any], now: float) -> bool:
    at = facts["node"]["not_before_at"]
    return at is None or at <= now


def _ended(facts: dict[str, Any], now: float) -> Wait:
    at = f"{facts['state']} {_at(facts['finished_at'], now)}"
    if facts["stale"]:
        return Wait(
            f"{at}, but stale: {shown(facts['stale'])}; it waits for nothing",
            "nothing",
            "Decide it anew",
            ("retry", facts["id"]),
        )
    return Wait(f"{at}; it waits for nothing", "nothing")


def _held(facts: dict[str, Any], *, running: bool, now: float) -> Wait:
    lease = facts["lease"]
    session = f"session {lease['session_id']}"
    if owners.verdict(lease["owner"]) == "dead":
        words = f"{session} died holding it; the daemon takes it back at its next look"
        return (
            Wait(words, "daemon")
            if running
            else Wait(f"{session} died holding it; the next start takes it back", "daemon", "Start", ("run",))
        )
    last = lease["deadline_at"] if lease["deadline_at"] is not None else lease["expires_at"]
    ends = (
        f"it ends {_at(last, now)} at the latest"
        if last > now
        else "its time is over, it is about to be ended"
    )
    return Wait(f"{session} works on it, attempt {facts['node']['attempt']}; {ends}", "session")


def _paused(facts: dict[str, Any], now: float) -> Wait:
    held = facts["paused"]
    who = "" if held is None else f" by {shown(str(held.get('by', '?')))} {_at(held['at'], now)}"
    how = " (its session was stopped)" if held is not None and held.get("stopped") else ""
    return Wait(
        f"waits for a person: paused{who}{how}; resuming it ends the wait",
        "person",
        "Go on",
        ("resume", facts["id"]),
    )


def _asked(flag: dict[str, Any], now: float) -> Wait:
    asked = f"{flag['id']}, asked {moments.age(flag['age_s'])} ago"
    if flag["state"] == "parked":
        again = _at(flag["parked_until_at"], now)
        words = f"parked by a person ({asked}); {again} you are asked again; an answer ends it now"
        return Wait(words, "time", "Answer", ("show", flag["id"]))
    words = f"waits for a person ({asked}); answering it ends the wait"
    if flag["expired"]:
        words += "; it needs re-confirmation"
    elif flag["expires_at"] is not None:
        words += f"; from {times.moment(flag['expires_at'], now)} {screen.zone()} it needs re-confirmation"
    return Wait(words, "person", "Answer", ("show", flag["id"]))


def _ready(facts: dict[str, Any], *, running: bool, now: float) -> Wait:
    node = facts["node"]
    why = f" ({shown(node['why'])})" if node["why"] else ""
    if node["not_before_at"] is not None and node["not_before_at"] > now:
        kind = "parked" if node["parked"] else "waits for its time"
        words = f"{kind}{why}; {_at(node['not_before_at'], now)} the wait ends"
        return Wait(words, "time", "Try now", ("retry", facts["id"]))
    if not running:
        return Wait(f"ready{why}; waits for the daemon, which is not running", "daemon", "Start", ("run",))
    if facts["ahead"]:
        return Wait(
            f"ready{why}; waits for its turn, {facts['ahead']} ahead of it in {shown(facts['queue'])}",
            "session",
        )
    return Wait(f"ready{why}; the next free session takes it", "session")


def _at(at: float, now: float) -> str:
    return f"{times.at_moment(at, now)} {screen.zone()}"
