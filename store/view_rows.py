"""Rows as the plain objects that verbs print. A row whose JSON does not parse shows as nothing; the rest goes on."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

STEP_FIELDS = ("name", "decided_by", "what", "ms")


def flag_dict(row: sqlite3.Row, now: float) -> dict[str, Any]:
    """A flag as verbs print it: its first question on top, every question with its options.

    A parked flag whose time has come waits again, also while no daemon is there to write that down.
    """
    questions = parsed(row["questions"], [])
    first = questions[0] if questions else {}
    due = row["state"] == "parked" and row["parked_until_at"] <= now
    state = "waiting" if due else row["state"]
    return {
        "id": row["id"],
        "item": row["item_id"],
        "queue": row["queue"],
        "stuck": row["stuck"],
        "question": first.get("question", ""),
        "kind": row["kind"],
        "options": first.get("options", []),
        "recommendation": first.get("recommendation"),
        "questions": questions,
        "state": state,
        "cause": row["cause"],
        "evidence": parsed(row["evidence"], []),
        "asked_at": row["asked_at"],
        "age_s": max(0.0, now - row["asked_at"]),
        "parked_until_at": None if due else row["parked_until_at"],
        "expires_at": row["expires_at"],
        "expired": row["expires_at"] is not None and row["expires_at"] <= now and state == "waiting",
        "resolved_at": row["resolved_at"],
        "resolved_by": row["resolved_by"],
        "answer": parsed(row["answer"], None),
    }


def item_dict(item: sqlite3.Row, now: float) -> dict[str, Any]:
    """An item's own row; ``state`` is the shown one."""
    return {
        "id": item["id"],
        "queue": item["queue"],
        "key": item["key"],
        "title": item["title"],
        "state": item["shown"] or item["state"],
        "age_s": max(0.0, now - item["created_at"]),
        "version": item["version"],
        "generation": item["generation"],
        "revision": item["revision"],
        "priority": item["priority"],
        "door": item["door"],
        "origin": item["origin"],
        "stale": item["stale"],
        "unverified": bool(item["unverified"]),
        "created_at": item["created_at"],
        "finished_at": item["finished_at"],
        "body": item["body"],
        "constraints": [{**one, "author": "item"} for one in parsed(item["constraints"], [])],
        "result": parsed(item["result"], None),
    }


def event_dict(row: sqlite3.Row) -> dict[str, Any]:
    """An event with its data as an object."""
    return {**dict(row), "data": parsed(row["data"], {})}


def session_dict(row: sqlite3.Row) -> dict[str, Any]:
    """A session with its steps as objects."""
    steps = [dict(zip(STEP_FIELDS, step, strict=False)) for step in parsed(row["steps"], [])]
    return {**dict(row), "steps": steps}


def conclusion_dict(row: sqlite3.Row) -> dict[str, Any]:
    """A conclusion with its evidence as a list."""
    return {**dict(row), "evidence": parsed(row["evidence"], [])}


def parsed(text: str | None, otherwise: Any) -> Any:
    """JSON of one row, or ``otherwise`` where there is none or it does not parse."""
    if text is None:
        return otherwise
    try:
        return json.loads(text)
    except ValueError:
        return otherwise
