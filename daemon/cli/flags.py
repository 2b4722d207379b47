"""``shiftwork flags``: what waits for a person, oldest first, how much of it, and how to answer."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from daemon.cli import cells, flag_screen, reach, screen, shapes, times
from store import moments
from store.text import shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--queue --json."""
    parser.add_argument("--queue", metavar="Q", type=reach.utf8, help="only this queue's")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    """Print count and oldest age, then one line a flag. Exit 3 for a queue that does not exist."""
    now = time.time()
    with reach.reading(args) as (places, store):
        if args.queue is not None:
            reach.known_queue(places, store, args.queue)
        found = [] if store is None else store.views.flags(queue=args.queue, now=now)
    if args.json:
        shapes.out(shapes.flags(found))
        return 0
    for line in lines(found, now):
        screen.out(line)
    if found:
        oldest = found[0]
        screen.out(f"Answer:  {screen.command(*answer_words(oldest), config=places.file)}")
        screen.out(f"More:    {screen.command('show', oldest['id'], config=places.file)}")
    return 0


def lines(found: Sequence[dict[str, Any]], now: float) -> list[str]:
    """The summary and the table."""
    waiting = [flag for flag in found if flag["state"] == "waiting"]
    again = sum(flag["expired"] for flag in waiting)
    parts = [f"{len(waiting)} waiting"]
    if waiting:
        parts.append(f"oldest {moments.age(max(flag['age_s'] for flag in waiting))}")
    if again:
        parts.append(f"{again} {'needs' if again == 1 else 'need'} re-confirmation")
    if len(found) > len(waiting):
        parts += [f"{len(found) - len(waiting)} parked", f"times in {screen.zone()}"]
    out = [" · ".join(parts)]
    if found:
        head = ("FLAG", "AGE", "KIND", "QUESTION", "RECOMMENDED")
        rows = [
            (
                flag["id"],
                moments.age(flag["age_s"]),
                flag["kind"],
                _asks(flag, now),
                cells.cut(recommended(flag), 24),
            )
            for flag in found
        ]
        out += cells.table(head, rows, give=3)
    return out


def recommended(flag: dict[str, Any]) -> str:
    """``2 send 12``, or ``-`` where nothing is."""
    advice = flag["recommendation"] or {}
    number = advice.get("option")
    if number is None or not 0 < number <= len(flag["options"]):
        return "-"
    return f"{number} {shown(flag['options'][number - 1]['label'])}"


def answer_words(flag: dict[str, Any]) -> list[str]:
    """The words of a command that answers this flag: the recommended option, or what fits where there is none."""
    words = ["resolve", flag["id"]]
    if len(flag["questions"]) > 1:
        words += ["--question", str(flag_screen.still_open(flag)[0])]
    best = (flag["recommendation"] or {}).get("option")
    if best is not None:
        return [*words, "--option", str(best)]
    return [*words, "--approve"] if flag["kind"] == "confirm" else [*words, "--answer", '"…"']


def _asks(flag: dict[str, Any], now: float) -> str:
    """The question; for what went wrong by itself that says more than "try again?"."""
    said = shown(flag["question"] if flag["cause"] == "decision" and flag["question"] else flag["stuck"])
    if flag["state"] == "parked":
        return f"(parked until {times.moment(flag['parked_until_at'], now)}) {said}"
    return f"(again) {said}" if flag["expired"] else said
