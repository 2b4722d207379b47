"""Reading one claimed item whole, with every doubt about its rows turned into one error.

An item whose own rows cannot be parsed is not a damaged store: it is flagged ``unreadable`` and the rest goes on.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any, NamedTuple

from store.answers import each
from store.database import Database
from store.intake import Constraint, digest_of_content


class Unreadable(Exception):
    """A row of this item holds something that cannot be read; the message says which field."""


class PersonsAnswer(NamedTuple):
    """An answer that stands in the context of the next decision."""

    flag_id: str
    question: str
    option: str | None
    text: str
    by: str
    at: float
    stale: bool = False  # it was asked about an earlier revision of the item


class Loaded(NamedTuple):
    """An item and its node as a session needs them."""

    item_id: str
    key: str
    queue: str
    title: str
    body: str
    digest: str
    revision: int
    door: str
    origin: str
    decisions: int
    constraints: tuple[Constraint, ...]
    node_id: str
    node_kind: str
    node_title: str
    attempt: int
    failures: int
    crashes: int
    why: str
    answers: tuple[PersonsAnswer, ...]
    parks: int
    park_expires_at: float | None
    intact: bool


class Loading:
    """See the module's head."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def load(self, node_id: str) -> Loaded:
        """The node and its item. Raises Unreadable."""
        with self._db.read() as conn:
            node = conn.execute("SELECT * FROM nodes WHERE id = ?", (node_id,)).fetchone()
            item = conn.execute("SELECT * FROM items WHERE id = ?", (node["item_id"],)).fetchone()
            flags, parks = _earlier(conn, node) if node["attempt"] > 1 else ([], 0)
        for field in ("title", "body", "key", "queue", "digest"):
            _text(item, field)
        constraints = _constraints(item)
        found = digest_of_content(
            item["title"], item["body"], constraints, item["priority"], item["not_before_at"]
        )
        return Loaded(
            item_id=item["id"],
            key=item["key"],
            queue=item["queue"],
            title=item["title"],
            body=item["body"],
            digest=item["digest"],
            revision=item["revision"],
            door=item["door"],
            origin=item["origin"],
            decisions=item["decisions"],
            constraints=constraints,
            node_id=node["id"],
            node_kind=node["kind"],
            node_title=node["title"],
            attempt=node["attempt"],
            failures=node["failures"],
            crashes=node["crashes"],
            why=node["why"],
            answers=tuple(answer for flag in flags for answer in _answers(flag, item["revision"])),
            parks=parks,
            park_expires_at=node["park_expires_at"],
            intact=found == item["digest"],
        )


def _earlier(conn: sqlite3.Connection, node: sqlite3.Row) -> tuple[list[sqlite3.Row], int]:
    """What sessions before this one led to: answered flags, and how often it was parked."""
    flags = conn.execute(
        "SELECT * FROM flags WHERE about_node_id = ? AND state = 'resolved' ORDER BY seq", (node["id"],)
    ).fetchall()
    parks = conn.execute(
        "SELECT count(*) FROM decisions WHERE item_id = ? AND node_id = ? AND kind = 'park'",
        (node["item_id"], node["id"]),
    ).fetchone()[0]
    return flags, parks


def _text(row: sqlite3.Row, field: str) -> str:
    value = row[field]
    if not isinstance(value, str):
        raise Unreadable(f"{field} is not text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Unreadable(f"{field} is not UTF-8 (character {error.start})") from None
    return value


def _constraints(row: sqlite3.Row) -> tuple[Constraint, ...]:
    text = _text(row, "constraints")
    if text == "[]":
        return ()
    try:
        return tuple(Constraint(**one) for one in json.loads(text))
    except (ValueError, TypeError) as error:
        raise Unreadable(f"constraints cannot be parsed ({error})") from None


def _answers(flag: sqlite3.Row, revision: int) -> list[PersonsAnswer]:
    try:
        answer: dict[str, Any] = json.loads(flag["answer"])
        questions = json.loads(flag["questions"])
        if answer.get("does"):  # "try again" about a crash says nothing about the item itself
            return []
        stale = flag["revision"] != revision
        return [
            _one_answer(flag, asked, one, questions, stale=stale) for asked, one in each(answer, questions)
        ]
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise Unreadable(f"the answer to {flag['id']} cannot be parsed ({error})") from None


def _one_answer(
    flag: sqlite3.Row, asked: str, one: dict[str, Any], questions: list[dict[str, Any]], *, stale: bool
) -> PersonsAnswer:
    option = one.get("option")
    label = questions[one["question"] - 1]["options"][option - 1]["label"] if option else None
    text = one["text"] if not one.get("reason") else f"{one['text']} ({one['reason']})"
    return PersonsAnswer(flag["id"], asked, label, text, one["by"], one.get("at", flag["resolved_at"]), stale)
