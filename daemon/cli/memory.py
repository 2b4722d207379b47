"""``shiftwork context`` and ``shiftwork memory search``: what the next session would see, and what is remembered."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon.cli import cells, light, reach, screen
from store import moments
from store.errors import NotFound, ShiftworkError, UsageProblem
from store.text import shown

if TYPE_CHECKING:
    from daemon.config import Config
    from memory.context import Context
    from memory.lookup import Remembered
    from sessions.config import QueuePolicy
    from store.loading import Loaded
    from store.sqlite import SqliteStore

TEXT_LINES = 3


def context_arguments(parser: argparse.ArgumentParser) -> None:
    """ID."""
    parser.add_argument("id", metavar="ID", help="an item")
    parser.add_argument("--json", action="store_true", help="for programs, with the request a decider gets")


def context(args: argparse.Namespace) -> int:
    """Print the context of the item's next session, with the size of each block."""
    from daemon.config import load

    config = load(light.find(args.config))
    with reach.reading(args) as (_, store):
        if store is None:
            raise NotFound(f'there is no item "{shown(args.id, 60)}": nothing was handed in yet')
        now = time.time()
        item = store.views.item(args.id, now=now)
        policy = config.queues.get(item["queue"])
        if policy is None:
            raise UsageProblem(
                f'queue "{shown(item["queue"])}" is not in {config.file}, so no session takes {args.id}'
            )
        loaded = _next(store, item)
        built = _build(store, loaded, policy, now)
        hints = [*_state_hints(item), *_hints(store, config, policy, item["queue"])]
    if args.json:
        screen.json_out(_context_json(item, built, policy, now))
    else:
        _print_context(item, built, policy)
    for hint in hints:
        screen.note(screen.copyable(hint, config=config.file))
    return 0


def memory_search_arguments(parser: argparse.ArgumentParser) -> None:
    """WORDS."""
    parser.add_argument("words", metavar="WORDS", nargs="+", help="what to look for")
    parser.add_argument("--queue", metavar="Q", help="only in this queue")
    parser.add_argument(
        "--limit", metavar="N", type=reach.number, default=10, help="of each kind (default 10)"
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def memory_search(args: argparse.Namespace) -> int:
    """Find episodes, notes and passages; those that sessions are no longer shown, too."""
    found: list[Remembered] = []
    now = time.time()
    with reach.reading(args) as (places, store):
        queues = list(places.queues)
        if args.queue is not None:
            queues = [reach.known_queue(places, store, args.queue)]
        elif store is not None:
            queues = sorted({*queues, *store.views.queues()})
        if store is not None:
            from memory.lookup import lookup

            found = lookup(store, " ".join(args.words), queues=queues, limit=args.limit, now=now)
    if args.json:
        screen.json_out([_found_json(one, now) for one in found])
        return 0
    for one in found:
        _print_found(one, now, many=len(queues) > 1)
    if not found:
        screen.note("Nothing that is remembered shares a word with this.")
    return 0


def _next(store: SqliteStore, item: dict[str, Any]) -> Loaded:
    """The item as its next session loads it."""
    from store.intake import ROOT_PATH
    from store.keys import node_id
    from store.loading import Unreadable

    try:
        loaded = store.loading.load(node_id(item["key"], item["queue"], ROOT_PATH, item["generation"]))
    except Unreadable as error:
        raise ShiftworkError(f"{item['id']} cannot be read ({error}); hand it in again") from None
    return loaded if item["state"] == "running" else loaded._replace(attempt=loaded.attempt + 1)


def _build(store: SqliteStore, loaded: Loaded, policy: QueuePolicy, now: float) -> Context:
    from memory.context import budget_of, build

    budget = budget_of(loaded, policy.max_decisions)
    return build(store, loaded, policy, now=now, budget=budget)


def _state_hints(item: dict[str, Any]) -> list[str]:
    state = item["state"]
    if state in ("done", "aborted"):
        return [
            f"{item['id']} is {state}: no session takes it again unless you say so:  shiftwork retry {item['id']}"
        ]
    waiting = [flag["id"] for flag in item["flags"] if flag["state"] in ("waiting", "parked")]
    if waiting:
        return [
            f"{item['id']} waits for you: your answer to {waiting[0]} will be added.  shiftwork show {waiting[0]}"
        ]
    return []


def _hints(store: SqliteStore, config: Config, policy: QueuePolicy, queue: str) -> list[str]:
    """What the next session brings up to date first."""
    from memory.globs import find
    from memory.sources import survey

    hints = []
    wanted = [(one.text, one.kind) for one in policy.constraints]
    if wanted != [(row.text, row.kind) for row in store.memory.constraints(queue)]:
        hints.append(
            "The constraints in the configuration are others; they count from the next start or reload on."
        )
    found = survey(store.sources.known(queue), find(policy.sources), policy.sources, Path(config.folder))
    moved = len(found.moved) + len(found.gone)
    if moved:
        hints.append(
            f"{screen.count(moved, 'source')} new, changed or gone; the next session reads them first."
        )
    return hints


def _context_json(item: dict[str, Any], built: Context, policy: QueuePolicy, now: float) -> dict[str, Any]:
    from sessions.asking import request_of

    return {
        "id": item["id"],
        "queue": item["queue"],
        "chars": built.chars,
        "context_chars": policy.context_chars,
        "fits": built.fits,
        "digest": built.digest,
        "trust": built.trust,
        "ids": sorted(built.ids),
        "blocks": [block._asdict() for block in built.blocks],
        "request": request_of(built, policy, asked_at=now),
    }


def _print_context(item: dict[str, Any], built: Context, policy: QueuePolicy) -> None:
    from memory.blocks import escaped

    fits = "" if built.fits else " · does not fit, a person is asked instead"
    screen.out(
        f"{item['id']} · {built.chars} of {policy.context_chars} characters{fits} · digest {built.digest}"
    )
    rows = [(block.name, str(block.chars), "cut" if block.cut else "") for block in built.blocks]
    for line in cells.table(("BLOCK", "CHARS", ""), rows, right=(1,), give=0):
        screen.out(line)
    screen.out()
    screen.out(escaped(built.text))


def _found_json(one: Remembered, now: float) -> dict[str, Any]:
    found = one._asdict()
    found["at"] = None if one.at is None else moments.iso(one.at)
    found["age_s"] = None if one.at is None else max(0.0, now - one.at)
    return found


def _print_found(one: Remembered, now: float, *, many: bool) -> None:
    parts = [one.id, one.kind if one.kind != "failed" else "failed attempt", *([one.queue] if many else [])]
    if one.kind != "passage":
        parts.append(shown(one.source, 40))
    if one.at is not None:
        parts.append(f"{moments.age(now - one.at)} ago")
    if one.stale:
        parts.append(f"STALE: {shown(one.stale, 80)}")
    screen.out(" · ".join(parts))
    for line in _wrapped(one.text):
        screen.out(f"    {line}")


def _wrapped(text: str) -> Sequence[str]:
    import textwrap

    lines = textwrap.wrap(shown(" ".join(text.split())), cells.WIDTH - 4)
    return [*lines[: TEXT_LINES - 1], lines[TEXT_LINES - 1] + " …"] if len(lines) > TEXT_LINES else lines
