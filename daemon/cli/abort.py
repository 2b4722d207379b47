"""``shiftwork abort``: end an item without a result. It asks on a terminal, needs ``--yes`` elsewhere, never hangs."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from daemon.cli import cells, reach, screen, shapes
from store.errors import Conflict, ShiftworkError, UsageProblem
from store.text import shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """ID --reason --yes --dry-run --by --json."""
    parser.add_argument("id", metavar="ID", type=reach.utf8, help="an item")
    parser.add_argument("--reason", metavar="TEXT", type=reach.utf8, default="", help="why, for the record")
    parser.add_argument("--yes", action="store_true", help="do not ask; needed where nobody can be asked")
    parser.add_argument("--dry-run", action="store_true", help="only say what would change")
    reach.by_argument(parser)
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    """Abort it. Exit 3 when there is none, 5 when it is done, 1 when the answer was no."""
    now = time.time()
    with reach.writing(args) as (places, store):
        plan = store.views.would_abort(args.id, now=now)
        if plan["state"] == "done":
            raise Conflict(f"{args.id} is done; a finished item cannot be aborted")
        if args.dry_run:
            return _show(args, plan, changed=False)
        if plan["state"] == "aborted":
            reach.settle(places, store, args.id, now)  # whoever aborted it may have died before its files
            return _show(args, plan, changed=False)
        if not args.yes:
            _ask(plan, config=str(places.file))
        changed = store.people.abort(
            args.id, by=reach.person(args.by), reason=args.reason.strip(), now=time.time()
        )
        reach.settle(places, store, args.id, time.time())
        return _show(args, plan, changed=changed)


def _show(args: argparse.Namespace, plan: dict[str, Any], *, changed: bool) -> int:
    if args.json:
        shapes.out({**plan, "changed": changed, "dry_run": args.dry_run})
    elif plan["state"] == "aborted":
        screen.out(f"{plan['id']} is aborted already")
    elif args.dry_run:
        screen.out(f"would abort {plan['id']}; nothing was changed")
        for line in _changes(plan):
            screen.out(line)
    else:
        screen.out(f"aborted {plan['id']}" if changed else f"{plan['id']} is aborted already")
    return 0


def _changes(plan: dict[str, Any]) -> list[str]:
    """Exactly what an abort does to this item."""
    lines = cells.labelled("ITEM", f"{plan['id']} {shown(plan['title'], 100)}: {plan['state']} → aborted")
    for label, word in (
        ("nodes", "abandoned"),
        ("flags", "withdrawn"),
        ("sessions", "discarded at their end"),
    ):
        if plan[label]:
            lines += cells.labelled(label.upper(), f"{', '.join(str(one) for one in plan[label])} → {word}")
    for path in plan["files"]:
        lines.append(f"{'FILES':<{cells.LABEL}}{shown(screen.quoted(path))} → removed, unless you edited it")
    return lines


def _ask(plan: dict[str, Any], *, config: str) -> None:
    """Ask the person at the terminal. Raises UsageProblem where there is none, ShiftworkError for a no."""
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        again = screen.command("abort", plan["id"], "--yes", config=config)
        raise UsageProblem(f"nobody can be asked here; to abort {plan['id']} without asking:  {again}")
    for line in _changes(plan):
        screen.note(line)
    print(f"Abort {plan['id']}? It cannot be undone. [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ShiftworkError(f"{plan['id']} was left as it is")
