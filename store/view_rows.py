"""Rows as the plain objects that verbs print. A row whose JSON does not parse shows as nothing; the rest goes on."""

from __future__ import annotations

import sqlite3
from typing import Any

from store.answers import given, open_questions
from store.text import parsed

STEP_FIELDS = ("name", "decided_by", "what", "ms")


def flag_dict(row: sqlite3.Row, now: float) -> dict[str, Any]:
    """A flag as verbs print it: its first question on top, every question with its options.

    A parked flag whose time has come waits again, also while no daemon is there to write that down.
    """
    questions = [_question(one) for one in parsed(row["questions"], []) if isinstance(one, dict)]
    answered = given(row["given"]) if "given" in row.keys() else []  # noqa: SIM118 - a Row iterates its values
    still_open = open_questions(questions, answered) if answered else []
    first = questions[still_open[0] - 1 if still_open else 0] if questions else {}
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
        "answered": answered,
        "state": state,
        "cause": row["cause"],
        "evidence": [str(one) for one in parsed(row["evidence"], [])],
        "asked_at": row["asked_at"],
        "age_s": max(0.0, now - row["asked_at"]),
        "parked_until_at": None if due else row["parked_until_at"],
        "expires_at": row["expires_at"],
        "expired": row["expires_at"] is not None and row["expires_at"] <= now and state == "waiting",
        "resolved_at": row["resolved_at"],
        "resolved_by": row["resolved_by"],
        "answer": parsed(row["answer"], {}) or None,
    }


def item_dict(item: sqlite3.Row, now: float) -> dict[str, Any]:
    """An item's own row; ``state`` is the shown one."""
    return {
        "id": item["id"],
        "queue": item["queue"],
        "key": item["key"],
        "title": text_of(item["title"]),
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
        "body": text_of(item["body"]),
        "constraints": item_rules(item["constraints"]),
        "result": _result(item["result"]),
    }


def event_dict(row: sqlite3.Row) -> dict[str, Any]:
    """An event with its data as an object."""
    return {**dict(row), "data": parsed(row["data"], {})}


def session_dict(row: sqlite3.Row) -> dict[str, Any]:
    """A session with its steps as objects."""
    found = [step for step in parsed(row["steps"], []) if isinstance(step, list)]
    steps = [dict(zip(STEP_FIELDS, step, strict=False)) for step in found]
    return {**dict(row), "steps": steps}


def conclusion_dict(row: sqlite3.Row) -> dict[str, Any]:
    """A conclusion with its evidence as a list."""
    return {**dict(row), "evidence": parsed(row["evidence"], [])}


def item_rules(text: str) -> list[dict[str, Any]]:
    """An item's own constraints, verbatim: text, kind, author."""
    rules = [one for one in parsed(text, []) if isinstance(one, dict) and isinstance(one.get("text"), str)]
    return [{"text": one["text"], "kind": str(one.get("kind", "scope")), "author": "item"} for one in rules]


def text_of(value: object) -> str:
    """A column that should hold text, as text: a hand-edited row must not keep the others from being shown."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def _result(text: str | None) -> dict[str, Any] | None:
    """An item's result: its text and citations, and whatever else was recorded."""
    found = parsed(text, {})
    if not found:
        return None
    citations = found.get("citations")
    return {
        **found,
        "text": str(found.get("text", "")),
        "citations": citations if isinstance(citations, list) else [],
    }


def _question(one: dict[str, Any]) -> dict[str, Any]:
    """A question of a flag; options without a label, which only a hand-edited row has, are left out."""
    options = one.get("options")
    kept = (
        [option for option in options if isinstance(option, dict) and isinstance(option.get("label"), str)]
        if isinstance(options, list)
        else []
    )
    return {**one, "question": str(one.get("question", "")), "options": kept}


def alert_dict(row: sqlite3.Row, now: float) -> dict[str, Any]:
    """A firing alert: since when, who was told, who took it on."""
    number = row["number"]
    return {
        "key": row["key"],
        "severity": row["severity"],
        "since_at": row["since_at"],
        "age_s": max(0.0, now - row["since_at"]),
        "id": None if number is None else f"E-{number:04d}",
        "told_at": row["told_at"],
        "acked": row["acked_until_at"] is not None and now < row["acked_until_at"],
        "acked_by": row["acked_by"],
        "acked_until_at": row["acked_until_at"],
    }
