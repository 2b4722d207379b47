"""What ``doctor`` looks at in the store: its file, its log, waits whose waker is gone, and what is held on purpose."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from daemon.cli import light, screen, times
from daemon.cli.doctor import Finding
from daemon.cli.running_info import Running, running_info
from store import checkup, moments
from store.sqlite import SqliteStore
from store.text import shown

WAL_MUCH_BYTES = 64 << 20
WAL_TOO_MUCH_BYTES = 256 << 20


def findings(store: SqliteStore, places: light.Places, now: float) -> Iterator[Finding]:
    """Everything about the store."""
    daemon = running_info(places.state_dir)
    status = store.views.status(list(places.queues), now=now, history=False)
    yield _integrity(store)
    yield _wal(status["store"]["wal_bytes"])
    yield from _daemon(daemon, status, places)
    lost = checkup.lost_waits(store.db)
    for one in lost:
        about = f" ({one.about})" if one.about else ""
        again = screen.command("retry", one.item_id, config=places.file)
        yield Finding("bad", "waits", f"{one.item_id} will wait for ever: {one.what}{about}", again)
    yield from _leases(store, daemon, now)
    if not lost:
        yield Finding("good", "waits", "everything that waits has something to wake it")
    yield from _held(store, places, status["paused_queues"])
    yield from _files(store, daemon)
    yield from _problems(store, now)
    for alert in status["alerts"]:
        see = screen.command("alerts", config=places.file)
        yield Finding(
            "look", "alert", f"{shown(alert['key'])} fires for {moments.age(alert['age_s'])}; see:  {see}"
        )


def _integrity(store: SqliteStore) -> Finding:
    name, size = shown(str(store.db.path)), os.stat(store.db.path).st_size
    told = sys.stderr is not None and sys.stderr.isatty()
    if told:
        print(f"\rreading all of {screen.size(size)} …\r", end="", file=sys.stderr, flush=True)
    found = checkup.integrity(store.db)
    if told:
        print("\x1b[K", end="", file=sys.stderr, flush=True)
    if found is None:
        return Finding("good", "store", f"{name}, {screen.size(size)}, whole")
    return Finding(
        "bad", "store", f"{name} is damaged: {shown(found, 300)}. Stop the daemon and put a backup back"
    )


def _wal(size: int) -> Finding:
    words = f"write-ahead log {screen.size(size)}"
    if size <= WAL_MUCH_BYTES:
        return Finding("good", "log", words)
    level = "bad" if size > WAL_TOO_MUCH_BYTES else "look"
    return Finding(
        level,
        "log",
        f"{words}: something reads for very long (a backup, another program) or no daemon folds it",
    )


def _daemon(
    daemon: Running, status: dict[str, dict[str, dict[str, int]]], places: light.Places
) -> Iterator[Finding]:
    if daemon.running:
        yield Finding("good", "daemon", f"running (pid {daemon.pid})")
        if daemon.config_changed:
            yield Finding(
                "look",
                "daemon",
                "the configuration changed on disk; it counts after",
                f"kill -HUP {daemon.pid}",
            )
        return
    ready = sum(one["queued"] for one in status["queues"].values())
    start = screen.command("run", config=places.file)
    level = "look" if ready else "good"
    left = f", {screen.count(ready, 'item')} queued" if ready else ""
    yield Finding(level, "daemon", f"not running{left}", start)


def _leases(store: SqliteStore, daemon: Running, now: float) -> Iterator[Finding]:
    """Sessions that ended without a word: a running daemon must have taken them back within a minute or so."""
    for one in checkup.ended_leases(store.db, now=now):
        how = "died" if one.dead else f"is over time by {moments.age(now - one.expires_at)}"
        if daemon.running:
            level = "bad" if now - one.expires_at > 120 else "look"
            yield Finding(
                level, "waits", f"{one.item_id}: session {one.session_id} {how}; the daemon takes it back"
            )
        else:
            yield Finding(
                "look",
                "waits",
                f"{one.item_id}: session {one.session_id} {how}; the next start takes it back",
            )


def _held(store: SqliteStore, places: light.Places, queues: list[str]) -> Iterator[Finding]:
    for queue in queues:
        again = screen.command("resume", shown(queue), config=places.file)
        yield Finding("look", "paused", f"queue {shown(queue)}", again)
    count, first = checkup.paused_items(store.db)
    if count:
        more = ", …" if count > len(first) else ""
        yield Finding("look", "paused", f"{screen.count(count, 'item')}: {', '.join(first)}{more}")
    for queue, left in store.views.open_by_queue().items():
        if queue in places.queues:
            continue
        words = f"queue {shown(queue)} is not in the configuration; nothing takes its {screen.count(left, 'open item')}"
        yield Finding("bad", "waits", words)


def _files(store: SqliteStore, daemon: Running) -> Iterator[Finding]:
    due = checkup.papers_due(store.db)
    if due and not daemon.running:  # a running one notes what it wrote with its next commit
        yield Finding(
            "look",
            "outbox",
            f"{screen.count(due, 'file')} to be written or removed at the next start, unless they are there",
        )


def _problems(store: SqliteStore, now: float) -> Iterator[Finding]:
    for one in checkup.problems(store.db):
        since = f"since {times.moment(one['since_at'], now)} {screen.zone()}"
        again = f", {one['count']} times" if one["count"] > 1 else ""
        yield Finding("look", "problem", f"{shown(one['key'])}: {shown(one['detail'], 300)} ({since}{again})")
