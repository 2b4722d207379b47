"""A person's answer, and a flag's several questions: each is answered once, and the last one ends the flag.

Answers are kept with the human node, which goes on waiting while a question is open. One text may answer all that is
still open; a final answer, or one that tries again or gives up, ends the flag at once.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from store.errors import AlreadyResolved
from store.text import parsed

ALL = 0


class Answer(NamedTuple):
    """A person's answer. ``does`` is ``retry``, ``abort`` or empty (it goes to the context).

    ``option`` and ``question`` count from 1; ``question`` 0: the text answers all that is still open of a flag.
    """

    by: str
    text: str
    question: int = 1
    option: int | None = None
    does: str = ""
    reason: str = ""
    final: bool = False
    verdict: str = ""


def given(text: str | None) -> list[dict[str, Any]]:
    """The answers kept with a human node; none where that is not readable."""
    return parsed(text, [])


def open_questions(questions: Sequence[Any], answers: Sequence[Mapping[str, Any]]) -> list[int]:
    """The numbers of the questions that nobody has answered yet."""
    if any(one["question"] == ALL for one in answers):
        return []
    return sorted(set(range(1, len(questions) + 1)) - {one["question"] for one in answers})


def keep(conn: sqlite3.Connection, flag: sqlite3.Row, answer: Answer, now: float) -> list[int]:
    """Keep an answer with the flag's human node; which questions are open then. AlreadyResolved: that one is not."""
    kept = given(
        conn.execute("SELECT result FROM nodes WHERE id = ?", (flag["node_id"],)).fetchone()["result"]
    )
    before = next((one for one in kept if answer.question == one["question"]), None)
    if before is not None:
        raise AlreadyResolved(
            f"question {answer.question} of {flag['id']} was already answered by {before['by']}"
        )
    kept.append({**answer._asdict(), "at": now})
    conn.execute(
        "UPDATE nodes SET result = ? WHERE id = ? AND state = 'pending'",
        (json.dumps(kept, ensure_ascii=False), flag["node_id"]),
    )
    if answer.final or answer.does:
        return []
    return open_questions(parsed(flag["questions"], []), kept)


def whole(conn: sqlite3.Connection, flag: sqlite3.Row, last: Answer) -> dict[str, Any]:
    """What a resolved flag says: its one answer, or all of them with the question each belongs to."""
    kept = given(
        conn.execute("SELECT result FROM nodes WHERE id = ?", (flag["node_id"],)).fetchone()["result"]
    )
    if len(kept) < 2:
        return last._asdict()
    text = " · ".join(f"{one['question']}: {one['text']}" if one["question"] else one["text"] for one in kept)
    return {**last._asdict(), "question": ALL, "option": None, "text": text, "answers": kept}


def each(answer: Mapping[str, Any], questions: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """(question, answer) of a resolved flag, one by one. Raises KeyError, IndexError, TypeError."""
    found: list[tuple[str, Any]] = []
    answers = answer.get("answers", [answer])
    named = {one.get("question", 1) for one in answers}
    for one in answers:
        number = one.get("question", 1)
        rest = [q["question"] for place, q in enumerate(questions, 1) if place not in named]
        found.append((questions[number - 1]["question"] if number else " / ".join(rest), one))
    return found
