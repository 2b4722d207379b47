"""How many items are in which state, and how many were open in each of the last hours.

Everything is counted from indexes by ranges, never by reading rows: ``status`` stays quick with 100,000 items.
The hours come from arrivals and finishes, so nothing is ever sampled and nothing is lost while no daemon runs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

COUNTED = ("queued", "running", "waiting", "parked", "stalled", "stuck", "paused", "done", "aborted")
HOURS = 24

# the shown state of open items, one row each; :now turns parked times that have come into waits that ended
SHOWN = """
SELECT i.id, i.queue, CASE
    WHEN EXISTS (SELECT 1 FROM leases l WHERE l.item_id = i.id) THEN 'running'
    WHEN i.paused THEN 'paused'
    WHEN EXISTS (SELECT 1 FROM flags f WHERE f.item_id = i.id AND (f.state = 'waiting'
                 OR (f.state = 'parked' AND f.parked_until_at <= :now))) THEN 'waiting'
    WHEN EXISTS (SELECT 1 FROM flags f WHERE f.item_id = i.id AND f.state = 'parked') THEN 'parked'
    WHEN EXISTS (SELECT 1 FROM nodes n WHERE n.item_id = i.id AND n.kind <> 'human' AND n.state = 'pending'
                 AND (n.parked = 0 OR n.not_before_at IS NULL OR n.not_before_at <= :now)) THEN 'queued'
    WHEN EXISTS (SELECT 1 FROM nodes n WHERE n.item_id = i.id AND n.state = 'pending' AND n.parked = 1)
        THEN 'parked'
    ELSE 'stuck' END AS shown
FROM items i WHERE i.state = 'open'
"""
# the open items that may be anything but plainly queued; each part reads one partial index, whose own condition
# it repeats word for word
SPECIAL_IDS = """
SELECT item_id FROM nodes WHERE state IN ('running', 'blocked', 'failed')
UNION SELECT item_id FROM nodes WHERE state = 'pending' AND not_before_at IS NOT NULL AND held = 0
      AND kind <> 'human' AND parked = 1
UNION SELECT id FROM items WHERE paused = 1 AND state = 'open'
"""
_QUEUES = """
WITH RECURSIVE q (name) AS (
    SELECT min(queue) FROM items
    UNION ALL SELECT (SELECT min(queue) FROM items WHERE items.queue > q.name) FROM q WHERE q.name IS NOT NULL
) SELECT name FROM q WHERE name IS NOT NULL
"""
LARGE = 500
_OF_CLASS = "SELECT 1 FROM items WHERE queue = ? AND state = ? AND unverified = ?"
_CLASSES = tuple((state, unverified) for state in ("open", "done", "aborted") for unverified in (0, 1))


def empty_counts() -> dict[str, Any]:
    """A queue's counts before anything happened."""
    return {
        **dict.fromkeys(COUNTED, 0),
        "unverified": 0,
        "oldest_waiting_age_s": None,
        "forced_retries_in_a_row": 0,
        "queue_paused": False,
    }


class Glance(NamedTuple):
    """Open items by their shown state, over all queues; since when the oldest of those that wait has waited."""

    queued: int
    running: int
    waiting: int
    parked: int
    paused: int
    stuck: int
    oldest_waiting_at: float | None


def glance(conn: sqlite3.Connection, now: float) -> Glance:
    """The open items alone: what is done, which only grows, is not counted."""
    special = dict.fromkeys(Glance._fields, 0)
    rows = conn.execute(
        f"SELECT shown, count(*) FROM ({SHOWN} AND i.id IN ({SPECIAL_IDS})) GROUP BY shown", {"now": now}
    )
    special.update(tuple(row) for row in rows)
    total = sum(
        conn.execute("SELECT count(*) FROM items WHERE queue = ? AND state = 'open'", (queue,)).fetchone()[0]
        for queue in queues_with_items(conn)
    )
    oldest_at = conn.execute(
        "SELECT min(waiting_since_at) FROM flags WHERE state IN ('waiting', 'parked') "
        "AND (state = 'waiting' OR parked_until_at <= ?)",
        (now,),
    ).fetchone()[0]
    elsewhere = {name: special[name] for name in ("running", "waiting", "parked", "paused", "stuck")}
    queued = total - sum(elsewhere.values())
    return Glance(queued=queued, **elsewhere, oldest_waiting_at=oldest_at)


def queues_with_items(conn: sqlite3.Connection) -> list[str]:
    """The queues that hold or held items, sorted."""
    return [row[0] for row in conn.execute(_QUEUES)]


def by_queue(conn: sqlite3.Connection, queues: Sequence[str], now: float) -> dict[str, dict[str, Any]]:
    """Counts of every queue in ``queues`` and of any other that holds items; the states sum to all items."""
    counts = {queue: empty_counts() for queue in (*queues, *queues_with_items(conn))}
    for queue, state, unverified, number in _classes(conn, counts):
        counts[queue]["queued" if state == "open" else state] += number
        if state == "done" and unverified:
            counts[queue]["unverified"] = number
    special = (
        f"SELECT queue, shown, count(*) FROM ({SHOWN} AND i.id IN ({SPECIAL_IDS})) GROUP BY queue, shown"
    )
    for queue, shown, number in conn.execute(special, {"now": now}):
        counts[queue]["queued"] -= number
        counts[queue][shown] += number
    for queue, since_at in conn.execute(
        "SELECT queue, min(waiting_since_at) FROM flags WHERE state IN ('waiting', 'parked') "
        "AND (state = 'waiting' OR parked_until_at <= ?) GROUP BY queue",
        (now,),
    ):
        counts[queue]["oldest_waiting_age_s"] = max(0.0, now - since_at)
    for queue, crashes in conn.execute(
        "SELECT queue, max(crashes) FROM nodes WHERE crashes > 0 "
        "AND +state IN ('pending', 'running', 'blocked', 'failed') GROUP BY queue"
    ):
        counts[queue]["forced_retries_in_a_row"] = crashes
    for (queue,) in conn.execute("SELECT queue FROM paused_queues"):
        counts.setdefault(queue, empty_counts())["queue_paused"] = True
    return counts


def session_totals(conn: sqlite3.Connection) -> tuple[int, int, float | None]:
    """How many sessions there were, how many of them failed, and when the newest ended (None: it runs).

    Failed: the decider did, or it crashed. One that lost its item to a person's revision, stop or abort did not fail.
    """
    newest = conn.execute("SELECT id, ended_at FROM sessions ORDER BY id DESC LIMIT 1").fetchone()
    failed = conn.execute(  # the first condition is the partial index's own, word for word
        "SELECT count(*) FROM sessions WHERE outcome IN ('failed', 'crashed')"
    ).fetchone()[0]
    return (newest[0], failed, newest[1]) if newest else (0, failed, None)


def depth_history(
    conn: sqlite3.Connection, counts: Mapping[str, Mapping[str, Any]], now: float
) -> list[dict[str, Any]]:
    """Open items at the end of each of the last 24 hours, oldest first: ``at`` and ``open``."""
    ends = [now - (HOURS - 1 - hour) * 3600.0 for hour in range(HOURS)]
    edges = [(end - 3600.0, end) for end in ends]
    moves = [
        conn.execute("SELECT count(*) FROM items WHERE created_at > ? AND created_at <= ?", edge).fetchone()[
            0
        ]
        for edge in edges
    ]
    for queue, state, unverified in _finished(counts):
        for hour, edge in enumerate(edges):
            moves[hour] -= conn.execute(
                "SELECT count(*) FROM items WHERE queue = ? AND state = ? AND unverified = ? "
                "AND finished_at > ? AND finished_at <= ?",
                (queue, state, unverified, *edge),
            ).fetchone()[0]
    depth = sum(sum(one[name] for name in COUNTED[:-2]) for one in counts.values())
    history = []
    for end, moved in zip(reversed(ends), reversed(moves), strict=True):
        history.append({"at": end, "open": depth})
        depth -= moved
    return history[::-1]


def _finished(counts: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str, int]]:
    """The ranges of finished items that hold any."""
    for queue, one in counts.items():
        sizes = {
            ("done", 0): one["done"] - one["unverified"],
            ("done", 1): one["unverified"],
            ("aborted", 0): one["aborted"],
        }
        yield from ((queue, state, unverified) for (state, unverified), size in sizes.items() if size)


def _classes(conn: sqlite3.Connection, queues: Mapping[str, Any]) -> Iterator[tuple[str, str, int, int]]:
    """(queue, state, unverified, how many), for all items.

    Each is one range of one index. Of the large ones, the last is what is left of all items: what is done in one queue
    grows for ever. No item is ever deleted and their numbers have no gaps, so the newest one says how many there are.
    """
    large = []
    counted = 0
    for queue in queues:
        for state, unverified in _CLASSES:
            which = (queue, state, unverified)
            number = conn.execute(f"SELECT count(*) FROM ({_OF_CLASS} LIMIT {LARGE})", which).fetchone()[0]
            if number == LARGE:
                large.append(which)
                continue
            counted += number
            yield *which, number
    for which in large[:-1]:
        number = conn.execute(f"SELECT count(*) FROM ({_OF_CLASS})", which).fetchone()[0]
        counted += number
        yield *which, number
    if large:
        yield *large[-1], conn.execute("SELECT max(seq) FROM items").fetchone()[0] - counted
