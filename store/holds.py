"""An item held by a person: paused until ``resume``, alone or because ``stop`` ended its session.

``items.paused`` says that it is held, ``nodes.held`` keeps its nodes out of the ready index. Who held it stands in the
event; without the event log an item that was stopped is resumed by its own id only. All inside a transaction.
"""

from __future__ import annotations

import sqlite3


def hold_item(conn: sqlite3.Connection, item_id: str, *, now: float) -> bool:
    """Pause an open item; False when it was paused."""
    changed = conn.execute(
        "UPDATE items SET paused = 1, version = version + 1, changed_at = ? WHERE id = ? AND paused = 0 "
        "AND state = 'open'",
        (now, item_id),
    ).rowcount  # fmt: skip
    conn.execute("UPDATE nodes SET held = 1 WHERE item_id = ? AND state = 'pending'", (item_id,))
    return changed == 1


def let_item_go(conn: sqlite3.Connection, item_id: str, *, now: float) -> bool:
    """End the pause; False when there was none."""
    changed = conn.execute(
        "UPDATE items SET paused = 0, version = version + 1, changed_at = ? WHERE id = ? AND paused = 1",
        (now, item_id),
    ).rowcount  # fmt: skip
    if changed:
        conn.execute("UPDATE nodes SET held = 0 WHERE item_id = ? AND held = 1", (item_id,))
    return changed == 1


def stopped_items(conn: sqlite3.Connection, queue: str) -> list[str]:
    """The open items of a queue that are paused because their session was stopped, in order of arrival."""
    return [
        row[0]
        for row in conn.execute(
            "SELECT id FROM items WHERE queue = ? AND paused = 1 AND state = 'open' AND (SELECT "
            "json_valid(data) AND json_extract(data, '$.stopped') FROM events WHERE item_id = items.id "
            "AND kind = 'pause' ORDER BY events.id DESC LIMIT 1) ORDER BY seq",
            (queue,),
        )
    ]
