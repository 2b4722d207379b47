"""When a timer ticks, and what a tick hands in. Values in, values out; and the mark that survives a restart.

    planned instant   a multiple of ``every`` since the epoch (UTC), or a time of the cron line in its time zone
    tick              wakes the queues; with ``item`` it also hands in one item per queue, keyed NAME@INSTANT
    missed            sleep or downtime over several planned instants makes one tick, for the latest of them

The key makes a repeated tick a duplicate. The mark (``state/timers/NAME``, the last instant handed in) tells a missed
tick from a first start; only timers with an item need one, since a starting daemon looks at its queues anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from store import files
from store.intake import Handed, Taken
from triggers import cron, intake


class TimerSpec(NamedTuple):
    """One timer. Either ``every_s`` or ``cron`` (with ``timezone``); ``body`` None: it only wakes."""

    name: str
    queues: tuple[str, ...]
    every_s: float | None = None
    cron: str | None = None
    timezone: str = "UTC"
    title: str | None = None
    body: str | None = None


def next_times(spec: TimerSpec, now: float, n: int = 3) -> list[float]:
    """The next ``n`` planned instants after ``now``, UTC epoch seconds."""
    found: list[float] = []
    at: float | None = now
    while len(found) < n and at is not None:
        at = next_after(spec, at)
        if at is not None:
            found.append(at)
    return found


def next_after(spec: TimerSpec, after: float) -> float | None:
    """The first planned instant later than ``after``."""
    if spec.every_s is not None:
        return (math.floor(after / spec.every_s) + 1) * spec.every_s
    return cron.next_after(cron.parse(spec.cron or ""), ZoneInfo(spec.timezone), after)


def last_until(spec: TimerSpec, now: float) -> float | None:
    """The last planned instant not later than ``now``."""
    if spec.every_s is not None:
        return math.floor(now / spec.every_s) * spec.every_s
    return cron.last_until(cron.parse(spec.cron or ""), ZoneInfo(spec.timezone), now)


def instant_text(at: float) -> str:
    """``2026-03-29T02:30:00Z``, with milliseconds only where there are some."""
    text = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds" if at % 1 else "seconds")
    return text.replace("+00:00", "Z")


def items(spec: TimerSpec, planned: float) -> list[Handed]:
    """What the tick of a planned instant hands in: one item per queue, or nothing."""
    if spec.body is None:
        return []
    table = {"key": f"{spec.name}@{instant_text(planned)}", "title": spec.title}
    draft = intake.from_table(table, spec.body)
    return [
        draft.handed(queue=queue, door="timer", origin=spec.name, name=spec.name) for queue in spec.queues
    ]


def due(spec: TimerSpec, state_dir: Path, now: float) -> float | None:
    """The planned instant that is still to be handed in; None: none, or this timer hands nothing in.

    A timer that was never seen has missed nothing: its mark is set to ``now``.
    """
    if spec.body is None:
        return None
    marked = read_mark(spec, state_dir)
    if marked is None:
        mark(spec, state_dir, now)
        return None
    planned = last_until(spec, now)
    return planned if planned is not None and planned > marked else None


def mark(spec: TimerSpec, state_dir: Path, at: float) -> None:
    """Note that everything planned until ``at`` was handed in."""
    folder = state_dir / "timers"
    folder.mkdir(exist_ok=True)
    files.replace_own(folder / spec.name, f"{at!r}\n".encode(), point="timer.mark")


def read_mark(spec: TimerSpec, state_dir: Path) -> float | None:
    """The instant of the mark; None where there is none that can be read."""
    try:
        at = float((state_dir / "timers" / spec.name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return at if math.isfinite(at) else None


def run_due(
    specs: Sequence[TimerSpec],
    door: intake.IntakeDoor,
    state_dir: Path,
    *,
    now: float,
    caps: Mapping[str, int],
) -> Iterator[Taken]:
    """Hand in what each timer owes (for ``run --once``, and at start). Raises CapReached, StoreBusy."""
    for spec in specs:
        planned = due(spec, state_dir, now)
        if planned is not None:
            for one in items(spec, planned):
                yield from intake.hand_in(door, [one], now=now, caps=caps)
            mark(spec, state_dir, planned)
