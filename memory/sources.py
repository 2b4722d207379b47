"""Source files to passages: what a queue's documents say now, indexed when they change and not otherwise.

    unchanged   same time and size as noted, or the same content under a new time
    changed     new content: old passages leave, new ones come, what rested on the old is marked stale
    gone        no pattern matches it any more
    unusable    not a regular file, too large, not UTF-8, NUL bytes: no passages, and its ``problem`` says why

A pattern that matches nothing is an outcome of its own: it is told once as a problem of the queue, and what was read
below its folder stays, for an unmounted disk has not changed what its documents say.
Two processes may refresh at once: each commit makes a source what its file held, and the next look repairs the loser.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from memory.globs import Found, Listing, find
from memory.passages import cut
from memory.tokens import tokens
from store.contract import Store
from store.keys import bytes_digest, digest
from store.sources import NewPassage, SourceChange, SourceRow
from store.text import shown

MAX_BYTES: Final = 1 << 20
"""A larger file is no document; it is left out, and said so."""

PASSAGES_A_COMMIT: Final = 256
"""About how many passages one commit brings, so that it holds the write gate for tens of milliseconds."""

CHEAP_LOOK_S: Final = 0.002
"""A look that is quicker than this is taken before every session."""

WATCH_SHARE: Final = 0.1
"""Of looks that cost more, at most about this share of a worker's time."""

_MARKDOWN: Final = (".md", ".markdown", ".mdx")
_UNREADABLE: Final = "cannot be read"
_NO_CONTENT: Final = "-"  # the digest of a source whose content was not looked at


class Refreshed(NamedTuple):
    """What a look at the files brought. ``empty`` are the patterns that match no file."""

    files: int
    changed: int = 0
    gone: int = 0
    unusable: int = 0
    stale: int = 0
    empty: tuple[str, ...] = ()


class Survey(NamedTuple):
    """Files whose time or size moved (with what the store knows of each), paths that went, and what stands unread:
    how many are unusable, and what is wrong, in words.
    """

    moved: tuple[tuple[str, Found, SourceRow | None], ...]
    gone: tuple[str, ...]
    unusable: int
    wrong: tuple[str, ...]


class SourceWatch:
    """One queue's sources as one process sees them: looks as often as it can afford, reads the store only when
    something moved.
    """

    def __init__(self, queue: str, globs: Sequence[str], base: Path) -> None:
        self._queue = queue
        self._globs = tuple(globs)
        self._base = base
        self._seen: Listing | None = None
        self._next_look_s = 0.0

    def refresh(self, store: Store, *, now: float, full: bool = False) -> int:
        """Index what changed since the last look; how many sources changed or went."""
        started_s = time.monotonic()
        if started_s < self._next_look_s and not full:
            return 0
        listing = find(self._globs)
        ended_s = time.monotonic()
        took_s = ended_s - started_s
        self._next_look_s = ended_s + (took_s * (1 / WATCH_SHARE - 1) if took_s > CHEAP_LOOK_S else 0.0)
        if listing == self._seen and not full:
            return 0
        done = _refresh(store, self._queue, self._globs, self._base, listing, now=now, full=full)
        self._seen = listing
        return done.changed + done.gone


def refresh(
    store: Store, queue: str, globs: Sequence[str], base: Path, *, now: float, full: bool = False
) -> Refreshed:
    """Make the queue's passages what its files say. `globs` are absolute, `base` is the folder that paths are shown
    from. `full` reads every file; otherwise time and size decide. No change, no write.
    """
    return _refresh(store, queue, globs, base, find(globs), now=now, full=full)


def survey(
    known: Sequence[SourceRow], listing: Listing, globs: Sequence[str], base: Path, *, full: bool = False
) -> Survey:
    """Compare what the store knows with what is on disk. Opens no file, writes nothing."""
    rows = {row.path: row for row in known if row.gone_at is None}
    moved = []
    wrong = list(_wrong_places(listing, globs, base))
    unusable = 0
    here = set()
    for found in listing.files:
        path = short(found.file, base)
        here.add(path)
        row = rows.get(path)
        if row is None or full or not _looks_same(row, found):
            moved.append((path, found, row))
        elif row.problem:
            unusable += 1
            wrong.append(f"{path}: {row.problem}")
    kept = _kept_below(listing, base)
    gone = tuple(path for path in rows if path not in here and not path.startswith(kept))
    return Survey(tuple(moved), gone, unusable, tuple(wrong))


def short(file: str, base: Path) -> str:
    """A file's name as it is stored and cited: from `base`, with everything risky escaped. One-to-one."""
    return shown(os.path.relpath(file, base).replace("\\", "\\\\"))


def passages_of(path: str, text: str) -> list[NewPassage]:
    """The passages of a document, with refs ``path#1``, ``path#2`` … and the tokens they are found by."""
    name, suffix = os.path.splitext(os.path.basename(path))
    return [
        NewPassage(
            ref=f"{path}#{number}",
            heading=piece.heading,
            text=piece.text,
            digest=digest("passage", piece.heading, piece.text),
            tokens=tokens(f"{name}\n{piece.outer}\n{piece.text}"),
        )
        for number, piece in enumerate(cut(text, markdown=suffix.lower() in _MARKDOWN), 1)
    ]


def _refresh(
    store: Store,
    queue: str,
    globs: Sequence[str],
    base: Path,
    listing: Listing,
    *,
    now: float,
    full: bool,
) -> Refreshed:
    found = survey(store.sources.known(queue), listing, globs, base, full=full)
    work = _Work(found)
    stale = 0
    for batch in _batches(work.changes()):
        stale += store.sources.change(queue, batch, now=now)["stale"]
    store.sources.touch(queue, work.touched)
    _tell(store, queue, (*found.wrong, *work.wrong), now=now)
    return Refreshed(
        files=len(listing.files),
        changed=work.changed,
        gone=len(found.gone),
        unusable=found.unusable + len(work.wrong),
        stale=stale,
        empty=tuple(_pattern(pattern, base) for pattern, _ in listing.empty),
    )


class _Work:
    """Reads what moved, one file at a time, and sorts it."""

    def __init__(self, found: Survey) -> None:
        self._found = found
        self.touched: list[tuple[str, int]] = []
        self.wrong: list[str] = []
        self.changed = 0

    def changes(self) -> Iterator[SourceChange]:
        """What has to be written."""
        for path in self._found.gone:
            yield SourceChange(path, "", 0, 0)
        for path, found, row in self._found.moved:
            change = _read(path, found)
            if change is None:
                continue
            if change.problem:
                self.wrong.append(f"{path}: {change.problem}")
                if row is not None and row.problem is None and change.problem.startswith(_UNREADABLE):
                    continue  # what it said still stands, as far as anybody knows
            if row is None or (row.digest, row.problem) != (change.digest, change.problem):
                self.changed += 1
                yield change
            elif (row.mtime_ns, row.bytes) != (change.mtime_ns, change.bytes):
                self.touched.append((path, change.mtime_ns))


def _batches(changes: Iterable[SourceChange]) -> Iterator[list[SourceChange]]:
    batch: list[SourceChange] = []
    passages = 0
    for change in changes:
        batch.append(change)
        passages += len(change.passages) + 1
        if passages >= PASSAGES_A_COMMIT:
            yield batch
            batch, passages = [], 0
    if batch:
        yield batch


def _tell(store: Store, queue: str, wrong: Sequence[str], *, now: float) -> None:
    """Keep the queue's one problem about its sources true; an event when it comes, changes or ends."""
    key = f"sources:{queue}"
    if not wrong:
        if store.alerts.clear_problem(key):
            store.events.note(now=now, kind="sources", queue=queue, data={"problem": None})
        return
    more = f" · and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    detail = " · ".join(wrong[:3]) + more
    if store.alerts.raise_problem(key, queue=queue, kind="sources", detail=detail, now=now):
        store.events.note(now=now, kind="sources", queue=queue, data={"problem": detail})


def _wrong_places(listing: Listing, globs: Sequence[str], base: Path) -> Iterator[str]:
    for pattern, _ in listing.empty:
        yield f"{_pattern(pattern, base)} matches no file"
    for folder, reason in listing.unlisted:
        if not any(root == folder for _, root in listing.empty):
            yield f"{short(folder, base)} cannot be listed ({reason})"
    if listing.too_many:
        yield f"{len(globs)} patterns match over {len(listing.files)} files; the rest is left out"


def _pattern(pattern: str, base: Path) -> str:
    import glob

    return shown(pattern.removeprefix(glob.escape(os.path.abspath(base)) + "/"))


def _kept_below(listing: Listing, base: Path) -> tuple[str, ...]:
    """Beginnings of paths about which this look says nothing."""
    if listing.too_many:
        return ("",)
    folders = [root for _, root in listing.empty] + [folder for folder, _ in listing.unlisted]
    shorts = [short(folder, base) for folder in folders]
    return tuple("" if one == "." else f"{one}/" for one in shorts)


def _looks_same(row: SourceRow, found: Found) -> bool:
    if row.problem is not None and row.problem.startswith(_UNREADABLE):
        return False
    return (row.mtime_ns, row.bytes) == (found.mtime_ns, found.bytes)


def _read(path: str, found: Found) -> SourceChange | None:
    """The file's content as a change; None when it vanished since it was listed."""
    if found.why_not:
        return SourceChange(path, _NO_CONTENT, found.bytes, found.mtime_ns, problem=found.why_not)
    if found.bytes > MAX_BYTES:
        return SourceChange(path, _NO_CONTENT, found.bytes, found.mtime_ns, problem=_too_large())
    try:
        data = _content(found.file)
    except FileNotFoundError:
        return None
    except OSError as error:
        problem = f"{_UNREADABLE} ({error.strerror})"
        return SourceChange(path, _NO_CONTENT, found.bytes, found.mtime_ns, problem=problem)
    known = bytes_digest(data)
    problem = ""
    text = ""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 at byte {error.start}"
    if len(data) > MAX_BYTES:
        problem = _too_large()
    elif "\0" in text:
        problem = f"NUL at byte {data.index(0)}: not a text"
    elif not problem and not text.strip():
        problem = "empty"
    passages = () if problem else passages_of(path, text)
    return SourceChange(path, known, found.bytes, found.mtime_ns, passages, problem or None)


def _too_large() -> str:
    return f"larger than {MAX_BYTES >> 20} MiB"


def _content(file: str) -> bytes:
    """At most one byte over the cap, from a regular file and nothing else."""
    fd = os.open(os.path.realpath(file), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as stream:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(0, "not a regular file")
        return stream.read(MAX_BYTES + 1)
