"""Front matter: TOML between two ``+++`` lines at the very start of a text file (FIELD 12).

    +++
    title = "Refunds of May"
    priority = 5
    +++
    The body.

A leading ``---`` block is body text: it is Markdown's horizontal rule, and YAML is not read here.
"""

from __future__ import annotations

import tomllib
from typing import Any

from store.errors import InputRefused

MAX_BYTES = 16 * 1024
"""Longest front matter, without its two ``+++`` lines, in bytes of UTF-8."""

FENCE = "+++"


def split(text: str) -> tuple[dict[str, Any], str]:
    """Front matter as a table (empty without one) and the body after it.

    Raises InputRefused: ``front-matter`` (not TOML, or never closed), ``front-matter-size``.
    """
    lines = text.split("\n")
    if lines[0].rstrip() != FENCE:
        return {}, text
    size = 0
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() == FENCE:
            return _table("".join(f"{one}\n" for one in lines[1:number])), "\n".join(lines[number + 1 :])
        size += len(line.encode()) + 1
        if size > MAX_BYTES:
            raise InputRefused(f"front matter larger than {MAX_BYTES // 1024} KiB", rule="front-matter-size")
    raise InputRefused(
        'front matter opens with "+++" and no second "+++" line closes it', rule="front-matter"
    )


def _table(source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(source.replace("\r\n", "\n"))
    except RecursionError:
        raise InputRefused("front matter is nested too deeply", rule="front-matter") from None
    except ValueError as error:  # TOMLDecodeError, or a number of thousands of digits
        raise InputRefused(f"front matter is not TOML: {error}", rule="front-matter") from None
