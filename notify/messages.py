"""The words of a message: ids, counts, ages and the command that resolves it. Never bodies, never secrets."""

from __future__ import annotations

import time
from typing import NamedTuple

from notify.conditions import Cause, family
from store import moments
from store.alert_rows import Alert, Live, visible_id
from store.text import shown

NAMES_SHOWN = 10
DETAIL_CHARS = 160

_HEADS = {"firing": "", "joined": "", "escalation": "still unanswered: ", "repeat": "still: "}


class Message(NamedTuple):
    """What a channel is given. ``type``: one of Apprise's kinds (``failure``, ``warning``, ``success``, ``info``)."""

    id: str
    title: str
    body: str
    type: str


def render(alert: Alert, live: Live, cause: Cause | None, *, now: float) -> Message:
    """The message a live outbox row stands for, from the facts of this moment."""
    number = visible_id(live.number)
    summary = summary_of(alert.key, cause, now=now)
    if live.kind == "resolved":
        what = headline(alert.key)
        body = [f"{number} · {alert.key} · resolved", "Nothing is to be done."]
        return Message(number, f"[Shiftwork] resolved: {what} ({number})", "\n".join(body), "success")
    since = f" · firing since {moment(alert.since_at)}" if alert.since_at is not None else ""
    body = [f"{number} · {alert.severity} · {alert.key}{since}", summary, *details_of(cause, now=now), ""]
    body += [f"{label + ':':8} {command}" for label, command in commands_of(alert.key, cause)]
    title = f"[Shiftwork] {_HEADS[live.kind]}{summary} ({number})"
    return Message(number, title, "\n".join(body), "failure" if alert.severity == "page" else "warning")


HEADLINES = {
    "flag_age": "flags waited too long in queue ",
    "crash": "nodes that crash again and again in queue ",
    "rejected": "refused input in queue ",
    "inbox": "the inbox of queue ",
    "sources": "the sources of queue ",
    "store": "the store",
    "decider": "a decider that cannot be asked",
    "trigger": "triggers of plug-ins that do not run",
}
"""What each family of alerts is about; the queue's name follows where one ends in a blank."""


def headline(key: str) -> str:
    """What an alert is about, without its numbers."""
    words = HEADLINES.get(family(key), shown(key, 80))
    return words + shown(key.partition(":")[2], 80) if words.endswith(" ") else words


def summary_of(key: str, cause: Cause | None, *, now: float) -> str:
    """One line with the counts of this moment."""
    if cause is None:
        return headline(key)
    queue = shown(cause.queue, 80)
    if cause.waiting is not None:
        flags = _count(cause.waiting.flags, "flag waits", "flags wait")
        return f"{flags} in queue {queue}, the oldest for {moments.age(now - cause.waiting.oldest_at)}"
    if cause.crashed:
        nodes = _count(len(cause.crashed), "node crashed", "nodes crashed")
        verb = "is" if len(cause.crashed) == 1 else "are"
        return f"{nodes} too often in queue {queue} and {verb} not retried"
    if family(key) == "rejected":
        refused = _count(sum(one.times for one in cause.problems), "input was", "inputs were")
        return f"{refused} refused in queue {queue}"
    if family(key) == "trigger":  # what foreign code says may hold a secret: the names are enough
        names = ", ".join(shown(one.key.partition(":")[2], 40) for one in cause.problems[:NAMES_SHOWN])
        return f"{headline(key)}: {names}"
    return f"{headline(key)}: {shown(cause.problems[0].detail, 80)}"


def details_of(cause: Cause | None, *, now: float) -> list[str]:
    """What else is known, a line each, at most ``NAMES_SHOWN``. Not told: words that may quote an input or a secret."""
    if cause is None or family(cause.condition.key) in ("rejected", "trigger"):
        return []
    lines = [f"{node.item_id} node {node.node_id}, asked as {node.flag}" for node in cause.crashed]
    for problem in cause.problems:
        since = f"since {moment(problem.since_at)}, {moments.age(now - problem.since_at)}"
        lines.append(f"{shown(problem.detail, DETAIL_CHARS)} ({since})")
    if len(lines) > NAMES_SHOWN:
        lines = [*lines[:NAMES_SHOWN], f"and {len(lines) - NAMES_SHOWN} more"]
    return lines


def commands_of(key: str, cause: Cause | None) -> list[tuple[str, str]]:
    """The commands that resolve it, and the one that quiets it."""
    first = {
        "flag_age": [("Look", "shiftwork flags"), ("Answer", "shiftwork resolve FLAG --option N")],
        "crash": [("Look", f"shiftwork show {cause.crashed[0].flag if cause and cause.crashed else 'FLAG'}")],
        "rejected": [("Look", "the .reason files in the inbox's rejected/ folder")],
        "inbox": [("Look", "shiftwork check-config")],
        "store": [("Look", "shiftwork doctor")],
    }.get(family(key), [("Look", "shiftwork status")])
    if family(key) == "crash" and cause and cause.crashed:
        first.append(("Answer", f"shiftwork resolve {cause.crashed[0].flag} --option N"))
    return [*first, ("Quiet", f"shiftwork ack {shown(key)}")]


def moment(at: float) -> str:
    """Local date and time with the zone."""
    return time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(at))


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
