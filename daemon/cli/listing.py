"""``shiftwork list``: items of every state, newest first."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from daemon.cli import cells, reach, screen, shapes
from store import moments
from store.states import SHOWN_STATES
from store.text import shown

DEFAULT_LIMIT = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--queue --state --limit --json."""
    parser.add_argument("--queue", metavar="Q", type=reach.utf8, help="only this queue's")
    parser.add_argument(
        "--state", metavar="STATE", choices=SHOWN_STATES, help=f"only {', '.join(SHOWN_STATES)}"
    )
    parser.add_argument(
        "--limit",
        metavar="N",
        type=reach.number,
        default=DEFAULT_LIMIT,
        help=f"at most so many (default {DEFAULT_LIMIT})",
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    """Print one line an item. Exit 3 for a queue that does not exist."""
    now = time.time()
    with reach.reading(args) as (places, store):
        if args.queue is not None:
            reach.known_queue(places, store, args.queue)
        found: list[dict[str, Any]] = []
        if store is not None:
            found = store.views.items(queue=args.queue, state=args.state, limit=args.limit + 1, now=now)
    page = found[: args.limit]
    if args.json:
        shapes.out(page)
        return 0
    if page:
        for line in lines(page):
            screen.out(line)
        if len(found) > len(page):
            screen.note(f"These are the newest {len(page)}; more with --limit {args.limit * 10}")
    else:
        which = "No item" if args.state is None and args.queue is None else "No such item"
        screen.note(f"{which}. Hand one in:  {screen.command('add', 'FILE', config=places.file)}")
    return 0


def lines(page: Sequence[dict[str, Any]]) -> list[str]:
    """The table of a page of items."""
    rows = [
        (
            item["id"],
            moments.age(item["age_s"]),
            item["state"] + (", stale" if item["stale"] else ""),
            str(item["attempts"]),
            shown(item["queue"]),
            shown(item["title"]),
        )
        for item in page
    ]
    return cells.table(("ITEM", "AGE", "STATE", "TRIES", "QUEUE", "TITLE"), rows, right=(3,), give=5)
