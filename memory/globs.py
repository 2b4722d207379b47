"""Source patterns to files: what ``docs/**/*.md`` means on disk now, at the cost of one stat a file.

    *, ?, [abc]   within one name          **   any number of folders
    a name that begins with "." is matched only by a pattern that begins with "."

Links: a folder that is a link is entered only where the pattern names it; a file that is a link counts only when
it leads to a place below the pattern's own fixed folder. Nothing here opens a file.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Final, NamedTuple

FILES_MAX: Final = 10_000
"""Most files of one queue; a pattern that matches more is a mistake more often than a library."""

_MAGIC: Final = re.compile(r"[*?[]")
_ESCAPED: Final = re.compile(r"\[([*?[])\]")


class Found(NamedTuple):
    """A file that a pattern matches. ``why_not`` says why it may not be read, "" when it may."""

    file: str
    bytes: int
    mtime_ns: int
    why_not: str = ""


class Listing(NamedTuple):
    """What is on disk: files by absolute path, in order; patterns that match none, each with its fixed folder; folders
    that cannot be listed, with the reason; and whether ``FILES_MAX`` ended it.
    """

    files: tuple[Found, ...]
    empty: tuple[tuple[str, str], ...]
    unlisted: tuple[tuple[str, str], ...]
    too_many: bool


def find(patterns: Iterable[str]) -> Listing:
    """Every file that one of these absolute patterns matches, each once."""
    walk = _Walk()
    found: dict[str, Found] = {}
    empty: list[tuple[str, str]] = []
    for pattern in dict.fromkeys(patterns):
        root, rest = fixed_folder(pattern)
        before = len(found)
        again = 0
        for file in walk.expand(root, rest):
            if file in found:
                again += 1
            elif len(found) >= FILES_MAX:
                return Listing(_ordered(found), tuple(empty), tuple(walk.unlisted.items()), too_many=True)
            elif (one := _look(file, root)) is not None:
                found[file] = one
        if len(found) == before and not again:
            empty.append((pattern, root))
    return Listing(_ordered(found), tuple(empty), tuple(walk.unlisted.items()), too_many=False)


def count(patterns: Iterable[str]) -> int:
    """How many files there are to read."""
    return sum(not one.why_not for one in find(patterns).files)


@lru_cache(maxsize=256)
def fixed_folder(pattern: str) -> tuple[str, tuple[str, ...]]:
    """The folder before the first wildcard, and the parts after it."""
    parts = pattern.split("/")
    fixed = 0
    while fixed < len(parts) - 1 and not _MAGIC.search(_ESCAPED.sub("", parts[fixed])):
        fixed += 1
    root = os.path.normpath("/".join(_ESCAPED.sub(r"\1", part) for part in parts[:fixed]) or "/")
    rest = tuple(part for part in parts[fixed:] if part)
    return root, (*rest, "*") if rest and rest[-1] == "**" else rest


def _ordered(found: dict[str, Found]) -> tuple[Found, ...]:
    return tuple(found[file] for file in sorted(found))


class _Walk:
    """Lists each folder at most once."""

    def __init__(self) -> None:
        self.unlisted: dict[str, str] = {}
        self._entries: dict[str, list[tuple[str, bool]]] = {}

    def expand(self, folder: str, parts: Sequence[str]) -> Iterator[str]:
        """Paths of files below `folder` that `parts` match."""
        part, rest = parts[0], parts[1:]
        if part == "**":
            yield from self.expand(folder, rest)
            for name, is_folder in self._list(folder):
                if is_folder and not name.startswith("."):
                    yield from self.expand(os.path.join(folder, name), parts)
            return
        matches = _matcher(part)
        for name, is_folder in self._list(folder):
            if not matches(name) or (name.startswith(".") and not part.startswith(".")):
                continue
            path = os.path.join(folder, name)
            if not rest:
                if not is_folder:
                    yield path
            elif is_folder or (not _MAGIC.search(part) and os.path.isdir(path)):
                yield from self.expand(path, rest)

    def _list(self, folder: str) -> list[tuple[str, bool]]:
        if folder not in self._entries:
            try:
                with os.scandir(folder) as entries:
                    found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            except OSError as error:
                self.unlisted[folder] = error.strerror or str(error)
                found = []
            self._entries[folder] = found
        return self._entries[folder]


@lru_cache(maxsize=256)
def _matcher(part: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(translate(part)).match


def _look(file: str, root: str) -> Found | None:
    try:
        status = os.lstat(file)
        if stat.S_ISLNK(status.st_mode):
            target, inside = os.path.realpath(file), os.path.realpath(root)
            if not target.startswith(inside.rstrip("/") + "/"):
                return Found(file, 0, status.st_mtime_ns, "a link that leads out of its folder")
            status = os.stat(target)
            if stat.S_ISDIR(status.st_mode):
                return None
    except OSError:
        return None  # gone since it was listed, or a link to nothing
    if not stat.S_ISREG(status.st_mode):
        return Found(file, 0, status.st_mtime_ns, "not a regular file")
    return Found(file, status.st_size, status.st_mtime_ns)
