"""Where each key of a TOML text stands, so that a problem can be shown with its line.

``tomllib`` has accepted the text before; this scanner only has to find keys again, not to judge them. It
knows tables, dotted and quoted keys, strings of all four kinds, arrays and inline tables over several lines.
"""

from __future__ import annotations

import json
import re

KeyPath = tuple[str | int, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SPACE = re.compile(r"[ \t]*")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_TRIPLE = {
    '"""': re.compile(r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*"""+', re.DOTALL),
    "'''": re.compile(r"'''(?:[^']|'{1,2}(?!'))*'''+"),
}
_BASIC = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LITERAL = re.compile(r"'[^'\n]*'")
_SCALAR = re.compile(r"[^,\]\}#\n]+")


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line (from 1) of each table, key and array element; paths as in the parsed document.

    ``("queues", "questions", "sources", 0)`` is the first source's own line.
    """
    return _Scanner(text.replace("\r\n", "\n")).scan()


def line_of(lines: dict[KeyPath, int], path: KeyPath) -> int:
    """The line of ``path``, or of the nearest table around it; 1 for what is missing at the top."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


class _Scanner:
    """One pass over the text; ``at`` is the place, ``table`` the path that keys of this line belong to."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.table: KeyPath = ()
        self.lines: dict[KeyPath, int] = {}
        self.counts: dict[KeyPath, int] = {}  # length so far of each array of tables

    def scan(self) -> dict[KeyPath, int]:
        self._skip(_BLANK)
        while self.at < len(self.text):
            if self.text.startswith("[", self.at):
                self._header()
            else:
                self._pair(self.table)
            self._skip(_BLANK)
        return self.lines

    def _header(self) -> None:
        start, many = self.at, self.text.startswith("[[", self.at)
        self.at += 2 if many else 1
        path = self._key()
        self.at += 2 if many else 1
        self.table = ()
        for number, part in enumerate(path, 1):
            self.table = (*self.table, part)
            if many and number == len(path):
                self.counts[self.table] = self.counts.get(self.table, -1) + 1
            self._note(self.table, start)
            if self.table in self.counts:
                self.table = (*self.table, self.counts[self.table])
                self._note(self.table, start)

    def _pair(self, table: KeyPath) -> None:
        start = self.at
        path = table
        for part in self._key():
            path = (*path, part)
            self._note(path, start)
        self.at += 1  # the "="
        self._skip(_SPACE)
        self._value(path)

    def _key(self) -> list[str]:
        parts = []
        while True:
            self._skip(_SPACE)
            parts.append(self._key_part())
            self._skip(_SPACE)
            if not self.text.startswith(".", self.at):
                return parts
            self.at += 1

    def _key_part(self) -> str:
        opening = self.text[self.at]
        if opening == '"':
            quoted = self._take(_BASIC)
            return str(json.loads(re.sub(r"\\U0*([0-9a-fA-F]{4})(?![0-9a-fA-F])", r"\\u\1", quoted)))
        return self._take(_LITERAL)[1:-1] if opening == "'" else self._take(_BARE)

    def _value(self, path: KeyPath) -> None:
        opening = self.text[self.at : self.at + 3]
        if opening in _TRIPLE:
            self._take(_TRIPLE[opening])
        elif opening[0] == '"':
            self._take(_BASIC)
        elif opening[0] == "'":
            self._take(_LITERAL)
        elif opening[0] == "[":
            self._array(path)
        elif opening[0] == "{":
            self._inline_table(path)
        else:
            self._take(_SCALAR)

    def _array(self, path: KeyPath) -> None:
        self.at += 1
        index = 0
        while self._next_inside("]"):
            self._note((*path, index), self.at)
            self._value((*path, index))
            index += 1

    def _inline_table(self, path: KeyPath) -> None:
        self.at += 1
        while self._next_inside("}"):
            self._pair(path)

    def _next_inside(self, closing: str) -> bool:
        """Go to the next element; False when ``closing`` was there instead, and is passed."""
        self._skip(_BLANK)
        if self.text.startswith(",", self.at):
            self.at += 1
            self._skip(_BLANK)
        if self.text.startswith(closing, self.at):
            self.at += 1
            return False
        return True

    def _note(self, path: KeyPath, at: int) -> None:
        self.lines.setdefault(path, self.text.count("\n", 0, at) + 1)

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None or match.end() == self.at:
            raise ValueError(f"no key or value at character {self.at}")
        self.at = match.end()
        return match[0]
