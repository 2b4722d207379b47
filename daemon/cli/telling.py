"""``shiftwork log`` and ``shiftwork why``: what was decided and why, and what an item waits for now."""

from __future__ import annotations

import argparse
import time
from typing import Any

from daemon.cli import cells, reach, screen, shapes, times
from store.errors import NotFound
from store.text import shown

DEFAULT_LIMIT = 50


def log_arguments(parser: argparse.ArgumentParser) -> None:
    """[ID] --limit --json."""
    parser.add_argument(
        "id",
        metavar="ID",
        nargs="?",
        type=reach.utf8,
        help="one item's whole log (default: the newest of all)",
    )
    parser.add_argument(
        "--limit",
        metavar="N",
        type=reach.number,
        default=DEFAULT_LIMIT,
        help=f"without ID: so many events (default {DEFAULT_LIMIT})",
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def log(args: argparse.Namespace) -> int:
    """Print the decision log, oldest first. Exit 3 for an item that does not exist."""
    from daemon.cli.log_lines import words

    now = time.time()
    with reach.reading(args) as (places, store):
        if store is None and args.id is not None:
            raise NotFound(f'there is no item "{shown(args.id, 60)}": nothing was handed in yet')
        told = [] if store is None else store.views.log(args.id, limit=args.limit)
    if args.json:
        shapes.out(told)
        return 0
    if not told:
        screen.note(
            f"Nothing happened yet. Hand something in:  {screen.command('add', 'FILE', config=places.file)}"
        )
        return 0
    dated = not times.one_day([event["at"] for event in told], now)
    screen.note(f"times in {screen.zone()}")
    for event in told:
        stamp = times.stamp(event["at"], dated=dated) + "  "
        for line in words(event, named=args.id is None, now=now):
            for row in cells.wrap(line, first=stamp, rest=" " * len(stamp)):
                screen.out(row)
    return 0


def why_arguments(parser: argparse.ArgumentParser) -> None:
    """ID --json."""
    parser.add_argument("id", metavar="ID", type=reach.utf8, help="an item, or a flag of it")
    parser.add_argument("--json", action="store_true", help="for programs")


def why(args: argparse.Namespace) -> int:
    """Say in one line what the item waits for and what ends the wait. Exit 3 when there is none."""
    from daemon.cli.running_info import running_info
    from daemon.cli.waits import wait_of

    now = time.time()
    with reach.reading(args) as (places, store):
        if store is None:
            raise NotFound(f'there is no item "{shown(args.id, 60)}": nothing was handed in yet')
        item = store.views.flag(args.id, now=now)["item"] if args.id.startswith("f-") else args.id
        facts: dict[str, Any] = store.views.why(item, now=now)
        place = places.queues.get(facts["queue"])
        away = None if place is None else store.views.problem(f"decider:{place.decider}")
    running = running_info(places.state_dir).running
    wait = wait_of(facts, running=running, configured=place is not None, away=away, now=now)
    if args.json:
        shapes.out({**facts, "daemon_running": running, "ends_by": wait.ends_by, "words": wait.words})
    else:
        screen.out(wait.words)
        if wait.command:
            screen.note(f"{wait.does}:  {screen.command(*wait.command, config=places.file)}")
    return 0
