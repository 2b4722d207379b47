"""README and docs/ as tests read them: their pages, code, tables and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\(([^)\s]+)\)")
_SPAN = re.compile(r"`([^`\n]+)`")


def fences(text: str, language: str) -> list[str]:
    """The insides of the fenced blocks of this language."""
    return [body for found, body in _FENCE.findall(text) if found == language]


def indented(text: str) -> Iterator[str]:
    """Indented code blocks, without their indent."""
    block: list[str] = []
    for line in [*_FENCE.sub("", text).splitlines(), "end"]:
        if line.startswith("    ") or (block and not line):
            block.append(line[4:])
        elif block:
            yield "\n".join(block).rstrip()
            block = []


def spans(text: str) -> list[str]:
    """What stands in backticks inside sentences and tables."""
    return _SPAN.findall(_FENCE.sub("", text))


def links(text: str) -> list[str]:
    """The targets of links that lead to files."""
    return [target for target in _LINK.findall(_FENCE.sub("", text)) if "://" not in target]


def section(text: str, heading: str) -> str:
    """What stands under a heading, up to the next one."""
    _, found, rest = text.partition(f"## {heading}\n")
    assert found, f"there is no heading {heading!r}"
    return re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of the first table in a text, without its head."""
    table = re.search(r"^\|.*\|\n\| ?-.*\n((?:\|.*\n?)+)", text, re.MULTILINE)
    assert table, "there is no table"
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table[1].splitlines()]
