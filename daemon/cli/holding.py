"""``shiftwork pause``, ``resume`` and ``retry``: hold work, let it go on, try it again. Twice is the same as once."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from daemon.cli import light, reach, screen, shapes
from store.errors import NotFound
from store.text import shown

if TYPE_CHECKING:
    from store.sqlite import SqliteStore


def pause_arguments(parser: argparse.ArgumentParser) -> None:
    """ID|QUEUE --by --json."""
    _target(parser)


def pause(args: argparse.Namespace) -> int:
    """Hold an item or a whole queue until ``resume``; a session that runs ends first."""
    now = time.time()
    by = reach.person(args.by)
    with reach.writing(args, create=_may_create(args)) as (places, store):
        if _is_queue(places, store, args.target):
            changed = store.people.pause_queue(args.target, by=by, now=now)
            running = store.views.running_items(args.target)
        else:
            changed = store.people.pause(args.target, by=by, now=now)
            running = store.views.running_items(args.target)
        if args.json:
            shapes.out({"target": args.target, "paused": True, "changed": changed, "running": running})
            return 0
        target = shown(args.target)
        screen.out(f"paused {target}, by {shown(by)}" if changed else f"{target} is paused already")
        if running:
            what = (
                "its session runs"
                if running == [args.target]
                else f"{screen.count(len(running), 'session')} of it run"
            )
            screen.note(f"{what} to the end; end now:  {screen.command('stop', target, config=places.file)}")
        screen.note(f"Go on:  {screen.command('resume', target, config=places.file)}")
    return 0


def resume_arguments(parser: argparse.ArgumentParser) -> None:
    """ID|QUEUE --by --json."""
    _target(parser)


def resume(args: argparse.Namespace) -> int:
    """Let a paused item or queue go on."""
    now = time.time()
    by = reach.person(args.by)
    with reach.writing(args, create=_may_create(args)) as (places, store):
        queue = _is_queue(places, store, args.target)
        if queue:
            changed = store.people.resume_queue(args.target, by=by, now=now)
        else:
            changed = store.people.resume(args.target, by=by, now=now)
        if args.json:
            shapes.out({"target": args.target, "paused": False, "changed": changed})
            return 0
        target = shown(args.target)
        screen.out(f"{target} goes on, by {shown(by)}" if changed else f"{target} is not paused")
        if not queue:
            _still_held(store, args.target, places, now)
        reach.no_daemon_hint(places)
    return 0


def retry_arguments(parser: argparse.ArgumentParser) -> None:
    """ID --by --json."""
    parser.add_argument("id", metavar="ID", type=reach.utf8, help="an item")
    reach.by_argument(parser)
    parser.add_argument("--json", action="store_true", help="for programs")


def retry(args: argparse.Namespace) -> int:
    """Try an item again now. Exit 3 when there is none, 5 when it runs or a question of its own waits."""
    now = time.time()
    with reach.writing(args) as (places, store):
        did = store.people.retry(args.id, by=reach.person(args.by), now=now)
        reach.settle(places, store, args.id, now)
        if args.json:
            shapes.out({"id": args.id, "did": did, "state": store.views.item(args.id, now=now)["state"]})
            return 0
        screen.out(f"{args.id}: {did}")
        _still_held(store, args.id, places, now)
        reach.no_daemon_hint(places)
    return 0


def _target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", metavar="ID|QUEUE", type=reach.utf8, help="an item (q-0001) or a queue's name"
    )
    reach.by_argument(parser)
    parser.add_argument("--json", action="store_true", help="for programs")


def _may_create(args: argparse.Namespace) -> bool:
    """A configured queue can be held before the first run; for anything else nothing is created."""
    return args.target in light.places(args.config).queues


def _is_queue(places: light.Places, store: SqliteStore, target: str) -> bool:
    """Whether ``target`` names a queue. Raises NotFound when it is neither that nor an item."""
    if target in places.queues:
        return True
    try:
        store.views.why(target, now=0.0)
    except NotFound:
        if target in store.views.queues():
            return True
        queues = ", ".join(shown(name) for name in places.queues)
        raise NotFound(
            f'there is no item and no queue "{shown(target, 60)}"; queues: {queues}; items:  shiftwork list'
        ) from None
    return False


def _still_held(store: SqliteStore, item: str, places: light.Places, now: float) -> None:
    """Say what still holds the item back."""
    facts = store.views.why(item, now=now)
    if facts["state"] == "paused":
        screen.note(f"{item} is paused; go on:  {screen.command('resume', item, config=places.file)}")
    if facts["queue_paused"] is not None:
        queue = shown(facts["queue"])
        screen.note(
            f"Its queue is paused, too; go on:  {screen.command('resume', queue, config=places.file)}"
        )
