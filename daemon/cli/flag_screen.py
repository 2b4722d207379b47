"""A flag on a screen: what is done, where it is stuck, what was tried, the options with their costs, and how to
answer; and the words in which its answer is told later.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from daemon.cli import cells, screen, times
from store import moments
from store.answers import open_questions
from store.text import death_words, shown

_LABELS = 34
EVIDENCE = 5


def lines(flag: dict[str, Any], now: float, *, config: str | os.PathLike[str]) -> Iterator[str]:
    """The screen of ``show FLAG``."""
    state = "needs re-confirmation" if flag["expired"] else flag["state"]
    parts = (
        flag["id"],
        flag["kind"],
        flag["item"],
        shown(flag["queue"]),
        state,
        f"{moments.age(flag['age_s'])} old",
    )
    yield " · ".join(parts)
    yield from cells.labelled("ABOUT", shown(flag["title"]) or "-")
    for number, one in enumerate(flag["done"]):
        yield from cells.labelled(
            "DONE" if number == 0 else "", f"{shown(one['subject'])}: {shown(one['value'])}"
        )
    yield from cells.labelled("STUCK", shown(flag["stuck"]))
    tried = [one for one in flag["tried"] if one["outcome"] != "running"]
    for number, one in enumerate(tried):
        cause = f": {shown(death_words(one['cause']))}" if one["cause"] else ""
        yield from cells.labelled(
            "TRIED" if number == 0 else "", f"session {one['id']} {one['outcome']}{cause}"
        )
    for number, question in enumerate(flag["questions"], 1):
        yield from _question(question, number, len(flag["questions"]))
        for one in flag["answered"]:
            if one["question"] == number:
                yield from cells.labelled(
                    "ANSWERED", f'"{answer_text({"answer": one})}", by {shown(one["by"])}'
                )
    for number, one in enumerate(flag["evidence"][:EVIDENCE]):
        yield from cells.labelled("EVIDENCE" if number == 0 else "", shown(one, 300))
    yield from cells.labelled("FROM", _origin(flag))
    for number, rule in enumerate(flag["constraints"]):
        yield from cells.labelled("RULES" if number == 0 else "", f'"{shown(rule["text"])}" ({rule["kind"]})')
    yield from _ends(flag, now)
    if flag["state"] in ("waiting", "parked"):
        for number, words in enumerate(forms(flag)):
            command = screen.command("resolve", flag["id"], words, config=config)
            yield ("Answer:" if number == 0 else "").ljust(cells.LABEL) + command


def forms(flag: dict[str, Any]) -> list[str]:
    """The ways in which this flag can be answered, as words after ``resolve ID``."""
    several = len(flag["questions"]) > 1
    found = []
    for number in still_open(flag):
        question = flag["questions"][number - 1] if flag["questions"] else {}
        which = f"--question {number} " if several else ""
        if question.get("options"):
            best = (question.get("recommendation") or {}).get("option") or 1
            found.append(f"{which}--option {best}")
        if question.get("kind", flag["kind"]) == "confirm":
            found += [f"{which}--approve", f"{which}--reject"]
    return [*found, '--answer "…"', '--answer "…" --final', '--park "tomorrow 09:00"']


def still_open(flag: dict[str, Any]) -> list[int]:
    """The questions of a waiting flag that nobody has answered yet, counted from 1."""
    return open_questions(flag["questions"] or [{}], flag["answered"]) or [1]


def answer_text(flag: dict[str, Any]) -> str:
    """A resolved flag's answer in short: ``2 send 12``, ``approved``, or the text's beginning; escaped."""
    answer = flag["answer"] or {}
    option = answer.get("option")
    text = shown(str(answer.get("text", "")), 200)
    return f"{option} {text}" if option is not None else text


def already(flag: dict[str, Any], now: float) -> str:
    """``already resolved by anna at 14:02 as "2 send 12"``."""
    at = times.at_moment(flag["resolved_at"], now)
    return f'already resolved by {shown(flag["resolved_by"])} {at} as "{answer_text(flag)}"'


def _question(question: dict[str, Any], number: int, of: int) -> Iterator[str]:
    label = "ASKS" if of == 1 else f"ASKS {number}/{of}"
    yield from cells.labelled(label, shown(question.get("question", "")) or "-")
    options = question.get("options", [])
    advice = question.get("recommendation") or {}
    room = min(max((cells.width(shown(one["label"])) for one in options), default=0), _LABELS)
    for place, option in enumerate(options, 1):
        mark = "   ← recommended" if advice.get("option") == place else ""
        first = ("OPTIONS" if place == 1 else "").ljust(
            cells.LABEL
        ) + f"{place} {cells.pad(shown(option['label']), room)}  "
        text = f"{shown(option.get('cost', ''))}{mark}".strip()
        if cells.width(first) > cells.LABEL + _LABELS + 6:  # a long label: its cost goes on a line of its own
            yield from cells.wrap(
                f"{place} {shown(option['label'])}", first=first[: cells.LABEL], rest=" " * (cells.LABEL + 2)
            )
            first = " " * (cells.LABEL + 2)
        yield from cells.wrap(text, first=first)
    if advice.get("option") is not None:
        yield from cells.labelled(f"WHY {advice['option']}", shown(advice.get("reason", "")))
    elif advice.get("reason"):
        yield from cells.labelled("ADVICE", f"none: {shown(advice['reason'])}")


def _origin(flag: dict[str, Any]) -> str:
    said = f"{flag['door']} {shown(flag['origin'])}".strip()
    return said + (", revised since this was asked" if flag["revised_since"] else "")


def _ends(flag: dict[str, Any], now: float) -> Iterator[str]:
    zone = screen.zone()
    if flag["state"] == "parked":
        at = times.moment(flag["parked_until_at"], now)
        yield from cells.labelled(
            "PARKED", f"until {at} {zone}; then you are asked again, it is never answered without you"
        )
    elif flag["expired"]:
        yield from cells.labelled(
            "EXPIRED",
            f"{times.moment(flag['expires_at'], now)} {zone}; answer it anew, nothing went on without you",
        )
    elif flag["state"] == "waiting" and flag["expires_at"] is not None:
        yield from cells.labelled(
            "EXPIRES",
            f"{times.moment(flag['expires_at'], now)} {zone}, then it needs re-confirmation; "
            "nothing goes on without you",
        )
    elif flag["state"] == "resolved":
        answer = flag["answer"] or {}
        reason = f" ({shown(answer['reason'], 200)})" if answer.get("reason") else ""
        by, at = shown(flag["resolved_by"]), times.moment(flag["resolved_at"], now)
        yield from cells.labelled("ANSWER", f'"{answer_text(flag)}"{reason}, by {by}, {at} {zone}')
    elif flag["state"] == "withdrawn":
        yield from cells.labelled("ENDED", f"withdrawn: {flag['item']} ended before it was answered")
