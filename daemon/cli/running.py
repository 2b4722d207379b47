"""``shiftwork run`` and ``shiftwork stop``: the daemon, one round of it, its end, and the end of single sessions."""

from __future__ import annotations

import argparse
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.cli import light, reach, screen
from daemon.lock import Daemon, read_daemon
from store import owners
from store.errors import ShiftworkError, StoreBusy, UsageProblem

if TYPE_CHECKING:
    from store.claims import Lease
    from store.sqlite import SqliteStore

WAIT_S = 10.0
"""How long ``stop`` waits for the daemon's end beyond its grace."""
_TELL_AFTER_S = 1.0
_PAUSE_S = 0.02


def run_arguments(parser: argparse.ArgumentParser) -> None:
    """--once, --drain."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="scan the inboxes, run one session, end")
    how.add_argument("--drain", action="store_true", help="scan the inboxes, run what is ready now, end")


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C; or once."""
    from daemon.platform import require_linux

    require_linux()
    from daemon import sdnotify
    from daemon.terminal import Terminal

    line = sdnotify.take(os.environ)  # before any child is started
    file = light.find(args.config)

    said = Terminal()
    if args.once or args.drain:
        from daemon import oneshot

        oneshot.run(file, said, "once" if args.once else "drain")
    else:
        import faulthandler

        from daemon import service

        if line.watchdog_s is not None:
            faulthandler.enable()  # a watchdog's SIGABRT tells where each thread was
        service.run(file, said, line)
    return 0


def stop_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing, ID, QUEUE or --all."""
    parser.add_argument(
        "target",
        nargs="?",
        metavar="ID|QUEUE",
        help="end its running sessions now and leave the items paused",
    )
    parser.add_argument("--all", action="store_true", help="end all running sessions now; the daemon goes on")
    reach.by_argument(parser)


def stop(args: argparse.Namespace) -> int:
    """Without a target the daemon itself is stopped, like by SIGTERM."""
    if args.all and args.target:
        raise UsageProblem("give either ID, QUEUE or --all")
    if args.all or args.target:
        return _stop_sessions(args, "--all" if args.all else args.target)
    places = light.places(args.config)
    return _stop_daemon(places.state_dir, _grace_s(places))


def _stop_daemon(state_dir: Path, grace_s: float) -> int:
    daemon = read_daemon(state_dir)
    if not daemon.running:
        screen.note(f"no daemon is running on {screen.quoted(state_dir)}")
        return 0
    try:
        asked = owners.kill_alone(daemon.owner, signal.SIGTERM)
    except PermissionError:
        raise ShiftworkError(
            f"the daemon (pid {daemon.pid}) belongs to another user; as that user or root run the same, or where "
            "systemd runs it:  systemctl stop shiftwork"
        ) from None
    if not asked:
        raise ShiftworkError(
            f"the daemon (pid {daemon.pid}) cannot be signalled from here; stop it where it runs"
        )
    _wait_for_end(state_dir, daemon, grace_s + WAIT_S)
    screen.note(f"stopped (pid {daemon.pid}). Start again:  {screen.command('run')}")
    return 0


def _wait_for_end(state_dir: Path, daemon: Daemon, seconds: float) -> None:
    started = time.monotonic()
    told = False
    while read_daemon(state_dir).owner == daemon.owner:
        waited_s = time.monotonic() - started
        if waited_s > seconds:
            raise ShiftworkError(
                f"the daemon (pid {daemon.pid}) was asked to stop and still runs after {waited_s:.0f} s. "
                f"End it at once (nothing stored is lost):  kill -9 {daemon.pid}"
            )
        if waited_s > _TELL_AFTER_S and not told:
            told = True
            screen.note("waiting for running sessions; Ctrl-C stops waiting, not the stop")
        time.sleep(_PAUSE_S)


def _stop_sessions(args: argparse.Namespace, target: str) -> int:
    """The claim is ended in the store first, so that the death which follows is nobody's crash."""
    with reach.writing(args) as (places, store):
        held = _leases(store, places, target)
        stopped = _end_claims(store, held, reach.person(args.by))
        for lease in held:
            if lease.item_id in stopped:
                with suppress(
                    PermissionError
                ):  # another user's: its daemon sees that the claim is gone, and ends it
                    owners.kill_group(lease.owner)
    for item in sorted(stopped):
        screen.out(f"stopped {item}; it is paused. Let it go on:  {screen.command('resume', item)}")
    if not stopped:
        screen.note("nothing is running there")
    return 0


def _leases(store: SqliteStore, places: light.Places, target: str) -> list[Lease]:
    items = set(store.views.running_items(target))
    if not items and target != "--all" and target not in places.queues:
        store.views.item(target, now=time.time())  # raises NotFound with words
    return [lease for lease in store.claims.leases() if lease.item_id in items]


def _end_claims(store: SqliteStore, held: list[Lease], by: str) -> set[str]:
    """End the claims and hold the items. A session that hangs while it holds the write gate is killed first."""
    items = [lease.item_id for lease in held]
    if not items:
        return set()
    try:
        return set(store.people.stop_sessions(items, by=by, now=time.time()))
    except StoreBusy:
        from store.gate import holder

        pid = holder(store.db.gate.path)
        hanging = [lease for lease in held if (owner := owners.parse(lease.owner)) and owner.pid == pid]
        if not hanging:
            for lease in held:
                owners.kill_group(lease.owner)
            raise StoreBusy(
                f"{screen.count(len(held), 'session')} ended, but the store is held (pid {pid}), so the items "
                "could not be paused and will be tried again; stop them again when it is free"
            ) from None
        for lease in hanging:
            owners.kill_group(lease.owner)
        stopped = set(store.people.stop_sessions(items, by=by, now=time.time()))
        for lease in hanging:  # the daemon may have taken its node back before us
            if lease.item_id not in stopped and store.people.pause(lease.item_id, by=by, now=time.time()):
                stopped.add(lease.item_id)
        return stopped


def _grace_s(places: light.Places) -> float:
    from store.units import parse_duration

    try:
        return parse_duration(str(places.data.get("daemon", {}).get("grace", "20s")))
    except (ValueError, AttributeError):
        return 20.0
