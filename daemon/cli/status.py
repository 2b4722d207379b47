"""``shiftwork status``: is it running, what waits, what fires; counted at the moment it is asked.

It starts fast and creates nothing: before the first run everything is zero and ``running`` is false.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from daemon.cli import cells, reach, screen
from daemon.cli.running_info import Running, running_info
from store import moments
from store.counting import empty_counts
from store.text import shown

_ALWAYS = ("queued", "running", "waiting", "parked", "done")
_IF_ANY = ("paused", "stalled", "stuck", "aborted", "unverified")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--json."""
    parser.add_argument("--json", action="store_true", help="for programs, with the hours of a day")


def run(args: argparse.Namespace) -> int:
    """Print it. Exit 0 whether the daemon runs or not."""
    now = time.time()
    with reach.reading(args) as (places, store):
        if store is None:
            found = _nothing_yet(list(places.queues))
        else:
            found = store.views.status(list(places.queues), now=now, history=args.json)
    daemon = running_info(places.state_dir)
    if args.json:
        from daemon.cli import shapes

        shapes.out(_json(found, daemon, now))
        return 0
    for line in _lines(found, daemon, now, str(places.file), created=store is not None):
        screen.out(line)
    return 0


def _nothing_yet(queues: list[str]) -> dict[str, Any]:
    return {
        "queues": {queue: empty_counts() for queue in queues},
        "paused_queues": [],
        "depth_history": [],
        "alerts": [],
        "problems": [],
        "store": {"bytes": 0, "wal_bytes": 0, "schema": None},
        "sessions": {"total": 0, "failed": 0},
        "last_session_at": None,
    }


def _json(found: dict[str, Any], daemon: Running, now: float) -> dict[str, Any]:
    return {
        "daemon": {
            "running": daemon.running,
            "pid": daemon.pid,
            "since_at": daemon.since_at,
            "age_s": None if daemon.since_at is None else max(0.0, now - daemon.since_at),
            "config": daemon.config or None,
            "config_changed": daemon.config_changed,
        },
        **found,
    }


_OUT = {"trigger": "disabled", "decider": "away", "sources": "wrong"}
"""Problems whose alert points here, so that their words stand here."""


def _lines(
    found: dict[str, Any], daemon: Running, now: float, config: str, *, created: bool
) -> Iterator[str]:
    yield _first_line(found, daemon, now, created=created)
    if daemon.config_changed:
        yield f"configuration changed on disk; it counts after a restart or  kill -HUP {daemon.pid}"
    if found["queues"]:
        yield from _table(found)
    for queue in found["paused_queues"]:
        yield f"{shown(queue)} is paused; go on:  {screen.command('resume', shown(queue), config=config)}"
    for problem in found["problems"]:
        what, _, name = shown(problem["key"]).partition(":")
        if what in _OUT:
            words = shown(problem["detail"].removeprefix(f"{name}: "), 300)
            yield from cells.wrap(
                f"{_OUT[what]} for {moments.age(problem['age_s'])}: {words}", first=f"{what} {name}: "
            )
    for alert in found["alerts"]:
        quiet = f", quiet by {shown(alert['acked_by'])}" if alert["acked"] else ""
        yield f"{shown(alert['key'])} fires for {moments.age(alert['age_s'])}{quiet}"
    yield from _next(found, daemon, config)


def _first_line(found: dict[str, Any], daemon: Running, now: float, *, created: bool) -> str:
    if daemon.running and daemon.since_at is not None:
        parts = [f"running (pid {daemon.pid}) for {moments.age(now - daemon.since_at)}"]
    else:
        parts = ["not running"]
    if found["sessions"]["total"]:
        last_at = found["last_session_at"]
        running = (
            "a session runs" if daemon.running else "a session was cut off; the next start runs it again"
        )
        parts.append(running if last_at is None else f"last session {moments.age(now - last_at)} ago")
    store = found["store"]
    if created:
        wal = f" + {screen.size(store['wal_bytes'])} log" if store["wal_bytes"] else ""
        parts.append(f"store {screen.size(store['bytes'])}{wal}")
    else:
        parts.append("no store yet")
    if found["alerts"]:
        parts.append(f"{screen.count(len(found['alerts']), 'alert')} firing")
    return " · ".join(parts)


def _table(found: dict[str, Any], *, rare: bool = True) -> list[str]:
    """A row each queue. Columns of what is rare are there only where there is some, and not for ``rare=False``."""
    queues = found["queues"]
    columns = [
        *_ALWAYS, *(name for name in _IF_ANY if rare and any(one[name] for one in queues.values()))
    ]  # fmt: skip
    told = {alert["key"]: alert for alert in found["alerts"]}
    rows = []
    for name, one in queues.items():
        age = one["oldest_waiting_age_s"]
        oldest = "-" if age is None else moments.age(age)
        paged = told.get(f"flag_age:{name}")
        if age is not None and paged is not None and paged["told_at"] is not None:
            oldest += f" (told {paged['id']})"
        rows.append((shown(name), *(str(one[column]) for column in columns), oldest))
    right = tuple(range(1, len(columns) + 1))
    lines = cells.table(("QUEUE", *columns, "oldest waiting"), rows, right=right, give=0)
    if max(map(cells.width, lines)) > cells.WIDTH and len(columns) > len(_ALWAYS):
        return [*_table(found, rare=False), *_rare(queues, columns[len(_ALWAYS) :])]
    return lines


def _rare(queues: Mapping[str, Mapping[str, int]], columns: Sequence[str]) -> Iterator[str]:
    """What the table has no room for, a line each queue that has some of it."""
    for name, one in queues.items():
        some = [f"{one[column]} {column}" for column in columns if one[column]]
        if some:
            yield from cells.wrap(", ".join(some), first=f"{shown(name, 24)}: ")


def _next(found: dict[str, Any], daemon: Running, config: str) -> Iterator[str]:
    if any(one["waiting"] for one in found["queues"].values()):
        yield f"Answer:  {screen.command('flags', config=config)}"
    if found["alerts"]:
        yield f"Alerts:  {screen.command('alerts', config=config)}"
    if not daemon.running:
        yield f"Start:   {screen.command('run', config=config)}"
