"""When a timer ticks, and what a tick hands in. Values in, values out; and the mark that survives a restart.

    planned instant   a multiple of ``every`` since the epoch (UTC), or a time of the cron line in its time zone
    tick              wakes the queues; with ``item`` it also hands in one item per queue, keyed NAME@INSTANT
    missed            sleep or downtime over several planned instants makes one tick, for the latest of them

The key makes a repeated tick a duplicate. The mark (``state/timers/NAME``, the last instant handed in) tells a missed
tick from a first start; only timers with an item need one, since a starting daemon looks at its queues anyway.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo

from store import files
from store.contract import IntakePart
from store.intake import Handed, Taken
from triggers import cron, intake


class Plan(Protocol):
    """When something ticks: ``every`` so many seconds, or at the times of a ``cron`` line in a ``timezone``.

    The configuration's table of a timer is one; ``timezone`` None is the machine's.
    """

    @property
    def every(self) -> float | None:
        """Seconds between two planned instants."""
        ...

    @property
    def cron(self) -> str | None:
        """A line that ``cron.parse`` reads."""
        ...

    @property
    def timezone(self) -> str | None:
        """A name such as Europe/Berlin."""
        ...


class TimerSpec(NamedTuple):
    """One timer: a Plan with a name, its queues, and what each tick hands in (``body`` None: it only wakes)."""

    name: str
    queues: tuple[str, ...]
    every: float | None = None
    cron: str | None = None
    timezone: str | None = None
    title: str | None = None
    body: str | None = None


def cron_problem(line: str, timezone: str | None = None) -> str | None:
    """What is wrong with a cron line or its time zone; None when nothing is."""
    try:
        cron.parse(line)
        zone_of(timezone)
    except ValueError as error:
        return str(error)
    return None


def next_times(plan: Plan, *, now: float, count: int = 3) -> list[float]:
    """The next ``count`` planned instants after ``now``, UTC epoch seconds."""
    found: list[float] = []
    at: float | None = now
    while len(found) < count and at is not None:
        at = next_after(plan, at)
        if at is not None:
            found.append(at)
    return found


def next_after(plan: Plan, after: float) -> float | None:
    """The first planned instant later than ``after``."""
    if plan.every is not None:
        return (math.floor(after / plan.every) + 1) * plan.every
    return cron.next_after(cron.parse(plan.cron or ""), zone_of(plan.timezone), after)


def last_until(plan: Plan, now: float) -> float | None:
    """The last planned instant not later than ``now``."""
    if plan.every is not None:
        return math.floor(now / plan.every) * plan.every
    return cron.last_until(cron.parse(plan.cron or ""), zone_of(plan.timezone), now)


def zone_of(name: str | None) -> ZoneInfo:
    """The time zone of this name, or the machine's (``TZ``, ``/etc/localtime``, else UTC). Raises ValueError."""
    try:
        if name is not None:
            return ZoneInfo(name)
        if given := os.environ.get("TZ", "").removeprefix(":"):
            return ZoneInfo(given)
    except (OSError, LookupError):
        raise ValueError(f'"{name or given}" is no time zone such as Europe/Berlin') from None
    try:
        with open("/etc/localtime", "rb") as local:
            return ZoneInfo.from_file(local, key="localtime")
    except (OSError, ValueError):
        return ZoneInfo("UTC")


def instant_text(at: float) -> str:
    """``2026-03-29T02:30:00Z``, with milliseconds only where there are some."""
    text = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds" if at % 1 else "seconds")
    return text.replace("+00:00", "Z")


def items(spec: TimerSpec, planned: float) -> list[Handed]:
    """What the tick of a planned instant hands in: one item per queue, or nothing."""
    if spec.body is None:
        return []
    instant = f"{spec.name}@{instant_text(planned)}"
    table = {"key": instant, "title": spec.title}
    draft = intake.from_table(table, spec.body)
    return [
        draft.handed(queue=queue, door="timer", origin=spec.name, name=spec.name)._replace(delivery=instant)
        for queue in spec.queues
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
    door: IntakePart,
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
