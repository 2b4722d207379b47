"""The one way in: every door (files, timer, ``add``, webhooks) reads its input here and hands it to the store here.

``parse`` is pure: bytes in, a ``Draft`` out, or InputRefused with the name of the broken rule. ``hand_in`` is the one
call of ``store.intake`` that the doors make. So validation, keys and caps are the same whatever the door:

    body         UTF-8, no NUL, not blank, at most ``max_bytes``
    .json        one strict object: the same keys and ``body`` (strictjson.py)
    any other    text; TOML front matter between ``+++`` lines may give the keys (frontmatter.py)
    keys         key, title, priority, not_before, constraints; an unknown one is refused with the nearest known one

Rules: too-large, not-utf8, nul, empty, unknown-key, bad-value, front-matter, front-matter-size, json-…
Only light imports here: ``shiftwork add`` starts through this file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from store.contract import IntakePart
from store.database import DISK_CODES
from store.errors import CapReached, InputRefused, StoreBusy
from store.intake import Constraint, Handed, Taken
from store.text import first_line, shown
from triggers import frontmatter, strictjson

MAX_BYTES = 1024 * 1024
"""Default cap on one handed-in thing, bytes."""
MAX_KEY = 200
MAX_TITLE = 200
TITLE_CUT = 80
"""A title taken from the body's first line is cut here, characters."""
MAX_CONSTRAINTS = 50
MAX_CONSTRAINT = 2000
MAX_PRIORITY = 1000
CONSTRAINT_KINDS = ("scope", "prohibition", "acceptance", "interface")
KEYS = ("key", "title", "priority", "not_before", "constraints")
_PASSING = DISK_CODES | {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_LATEST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()


class Draft(NamedTuple):
    """What a door was given, read and checked. ``not_before`` is UTC epoch seconds; ``key`` None means by content."""

    body: str
    title: str
    key: str | None = None
    priority: int = 0
    not_before: float | None = None
    constraints: tuple[Constraint, ...] = ()

    def handed(self, *, queue: str, door: str, origin: str = "", name: str = "") -> Handed:
        """The store's form of it. ``name`` is the base name for files written for people."""
        return Handed(
            queue=queue,
            body=self.body,
            key=self.key,
            title=self.title,
            priority=self.priority,
            not_before=self.not_before,
            constraints=self.constraints,
            door=door,
            origin=origin,
            name=name,
        )


def hand_in(
    door: IntakePart, batch: Sequence[Handed], *, now: float, caps: Mapping[str, int], force: bool = False
) -> list[Taken]:
    """Store ``batch`` in one commit. Raises CapReached, StoreBusy; then nothing of it is stored."""
    return door.hand_in(batch, now=now, caps=caps, force=force) if batch else []


def passes(error: Exception) -> bool:
    """Whether what kept the store from taking a batch may be over in a minute: a full queue or disk, another writer."""
    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorcode & 0xFF in _PASSING
    return isinstance(error, StoreBusy | CapReached)


def parse(data: bytes, *, name: str = "", max_bytes: int = MAX_BYTES) -> Draft:
    """Read one handed-in thing. ``name`` (its file name, may be empty) decides between JSON and text.

    Raises InputRefused: its message says what is wrong and where, its ``rule`` is one of those above.
    """
    text = decoded(data, max_bytes=max_bytes)
    if os.path.splitext(name)[1].lower() == ".json":
        return from_table(*_json_parts(text))
    return from_table(*frontmatter.split(text))


def decoded(data: bytes, *, max_bytes: int = MAX_BYTES) -> str:
    """The text of ``data`` without a byte order mark. Raises InputRefused: too-large, not-utf8, nul."""
    if len(data) > max_bytes:
        raise too_large(len(data), max_bytes)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputRefused(
            f"not UTF-8: byte 0x{data[error.start]:02x} at position {error.start} ({error.reason})",
            rule="not-utf8",
        ) from None
    nul = data.find(b"\x00")
    if nul >= 0:
        raise InputRefused(f"a NUL byte at position {nul}", rule="nul")
    return text.removeprefix("\ufeff")


def too_large(size: int, max_bytes: int) -> InputRefused:
    """The refusal of ``size`` bytes under a cap of ``max_bytes``; known from the size alone."""
    return InputRefused(
        f"{size:,} bytes; this queue takes at most {max_bytes:,} (max_bytes)", rule="too-large"
    )


def from_table(table: Mapping[str, Any], body: str) -> Draft:
    """A draft from a table of keys (front matter, JSON, a timer's item, options of ``add``) and a body."""
    for key in table:
        if key not in KEYS:
            raise InputRefused(f'unknown key "{shown(key, 40)}"{_nearest(key)}', rule="unknown-key")
    if not body.strip():
        raise InputRefused("empty: there is nothing to work on", rule="empty")
    return Draft(
        body=body,
        title=_title(table.get("title"), body),
        key=_key(table.get("key")),
        priority=_priority(table.get("priority", 0)),
        not_before=_instant(table.get("not_before")),
        constraints=_constraints(table.get("constraints", [])),
    )


def _json_parts(text: str) -> tuple[dict[str, Any], str]:
    if not text.strip():
        raise InputRefused("empty: there is nothing to work on", rule="empty")
    value = strictjson.loads(text)
    if not isinstance(value, dict):
        raise InputRefused("the JSON value is not an object with a body", rule="json-object")
    body = value.pop("body", None)
    if body is None and (unknown := next((key for key in value if key not in KEYS), None)) is not None:
        raise InputRefused(
            f'unknown key "{shown(unknown, 40)}"{_nearest(unknown, "body")}', rule="unknown-key"
        )
    if not isinstance(body, str):
        raise InputRefused('the object needs "body", a string', rule="bad-value")
    return value, body


def _nearest(key: str, *more: str) -> str:
    from difflib import get_close_matches

    known = (*KEYS, *more)
    found = get_close_matches(key.lower(), known, n=1, cutoff=0.5)
    return f'; did you mean "{found[0]}"?' if found else f"; known are {', '.join(known)}"


def _bad(key: str, problem: str) -> InputRefused:
    return InputRefused(f"{key}: {problem}", rule="bad-value")


def _key(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise _bad("key", "must be a string that is not blank")
    key = value.strip()
    if len(key) > MAX_KEY:
        raise _bad("key", f"{len(key)} characters; at most {MAX_KEY}")
    if not key.isprintable():
        raise _bad("key", f'holds control characters: "{shown(key, 60)}"')
    return key


def _title(value: Any, body: str) -> str:
    if value is None:
        return first_line(body, TITLE_CUT)
    if not isinstance(value, str):
        raise _bad("title", "must be a string")
    title = " ".join(value.split())
    if len(title) > MAX_TITLE:
        raise _bad("title", f"{len(title)} characters; at most {MAX_TITLE}")
    return title or first_line(body, TITLE_CUT)


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _bad("priority", "must be a whole number")
    if abs(value) > MAX_PRIORITY:
        raise _bad("priority", f"{value} is outside -{MAX_PRIORITY} … {MAX_PRIORITY}")
    return value


def _instant(value: Any) -> float | None:
    """A time with its zone, as UTC epoch seconds. A time without one would mean something else on each machine."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise _bad(
                "not_before", f'"{shown(str(value), 40)}" is not a time like 2026-03-29T08:00:00Z'
            ) from None
    if not isinstance(value, datetime):
        raise _bad("not_before", "must be a time with its zone, like 2026-03-29T08:00:00Z")
    if value.tzinfo is None:
        raise _bad("not_before", "the time has no zone; write 2026-03-29T08:00:00Z or …+01:00")
    try:
        seconds = value.timestamp()
    except OverflowError:
        seconds = -1.0
    if not 0 <= seconds < _LATEST:
        raise _bad("not_before", "lies before 1970 or after 9998")
    return seconds


def _constraints(value: Any) -> tuple[Constraint, ...]:
    if not isinstance(value, list):
        raise _bad("constraints", 'must be a list of strings or {text = "…", kind = "…"}')
    if len(value) > MAX_CONSTRAINTS:
        raise _bad("constraints", f"{len(value)} of them; at most {MAX_CONSTRAINTS}")
    return tuple(_constraint(one, f"constraints[{number}]") for number, one in enumerate(value, start=1))


def _constraint(value: Any, where: str) -> Constraint:
    if isinstance(value, str):
        value = {"text": value}
    if not isinstance(value, dict) or not set(value) <= {"text", "kind"}:
        raise _bad(where, 'must be a string or {text = "…", kind = "…"}')
    text, kind = value.get("text"), value.get("kind", "scope")
    if not isinstance(text, str) or not text.strip():
        raise _bad(where, "text must be a string that is not blank")
    if len(text) > MAX_CONSTRAINT:
        raise _bad(where, f"{len(text)} characters; at most {MAX_CONSTRAINT}")
    if kind not in CONSTRAINT_KINDS:
        raise _bad(where, f"kind must be one of {', '.join(CONSTRAINT_KINDS)}")
    return Constraint(text=text, kind=kind)
