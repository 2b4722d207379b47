"""Asking a person, as rows: a flag, its human node, and the node below which it waits.

    node running | pending → blocked, waits_for = the human node
    human node pending (never claimed by a session) → succeeded when answered
    flag waiting ⇄ parked → resolved | withdrawn

Used wherever something ends with a question: a decision to flag, a crash limit, a failure limit, a cap.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from store.keys import flag_id as flag_id_of
from store.keys import node_id as node_id_of


class Ask(NamedTuple):
    """A question for a person. ``questions`` are the plain objects of the decision, 1 to 10 of them."""

    item_id: str
    about_node_id: str
    queue: str
    kind: str
    stuck: str
    questions: Sequence[Mapping[str, Any]]
    cause: str = "decision"
    evidence: Sequence[str] = ()
    expires_at: float | None = None


def ask_person(conn: sqlite3.Connection, ask: Ask, *, now: float) -> str:
    """Write flag and human node, block the node it is about; the flag's id. Inside the caller's transaction."""
    item = conn.execute(
        "SELECT key, queue, plan_version, revision, generation FROM items WHERE id = ?", (ask.item_id,)
    ).fetchone()
    seq = conn.execute("SELECT ifnull(max(seq), 0) + 1 FROM flags").fetchone()[0]
    flag = flag_id_of(seq)
    human = node_id_of(item["key"], item["queue"], f"ask/{flag}", item["generation"])
    conn.execute(
        "INSERT INTO nodes (id, item_id, queue, path, parent_id, kind, title, generation, created_at, changed_at) "
        "VALUES (?, ?, ?, ?, ?, 'human', ?, ?, ?, ?)",
        (
            human,
            ask.item_id,
            ask.queue,
            f"ask/{flag}",
            ask.about_node_id,
            ask.stuck[:200],
            item["generation"],
            now,
            now,
        ),
    )
    conn.execute(
        "INSERT INTO flags (seq, id, item_id, node_id, about_node_id, queue, kind, cause, stuck, questions, evidence, "
        "plan_version, revision, asked_at, waiting_since_at, expires_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            seq,
            flag,
            ask.item_id,
            human,
            ask.about_node_id,
            ask.queue,
            ask.kind,
            ask.cause,
            ask.stuck,
            json.dumps(list(ask.questions), ensure_ascii=False),
            json.dumps(list(ask.evidence), ensure_ascii=False),
            item["plan_version"],
            item["revision"],
            now,
            now,
            ask.expires_at,
        ),
    )
    conn.execute(
        "UPDATE nodes SET state = 'blocked', waits_for = ?, version = version + 1, not_before_at = NULL, parked = 0, "
        "park_expires_at = NULL, "
        "changed_at = ?, why = ? WHERE id = ? AND state IN ('running', 'pending')",
        (human, now, f"asked {flag}", ask.about_node_id),
    )
    conn.execute(
        "INSERT OR IGNORE INTO papers (item_id, kind, about, at) VALUES (?, 'waiting', ?, ?)",
        (ask.item_id, flag, now),
    )
    return flag
