"""Files for people: ``NAME.answer.md`` when an item is done, ``NAME.waiting.md`` while a question waits.

Written after the checkpoint, whole or not at all, each once; never over a name that exists (``NAME.answer.md``, then
``NAME.ID.answer.md``). A file that is gone or edited belongs to the person: it is neither written again nor removed.
Every file carries a line with its item's id, by which a start after a crash knows its own. ``command`` words its
commands so that they can be copied in any folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from store import files, moments
from store.contract import Store
from store.keys import bytes_digest
from store.papers import Mark, Paper
from store.text import shown, shown_block

NAME_BYTES = 180
MAX_TRIES = 50
COMMAND = ("shiftwork", "")
"""What stands before and after the words of a command to copy, when nobody says."""


class Unmarked:
    """Marks of written files on their way to the store: they ride on this process's next commit."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._marks: list[Mark] = []

    def add(self, marks: Sequence[Mark], *, now: float) -> None:
        """Let these marks ride along."""
        if not marks:
            return
        if self.left():
            self._marks.extend(marks)
            return
        self._marks = list(marks)
        self._store.db.ride_along(lambda conn: self._store.papers.mark(conn, self._marks, now=now))

    def left(self) -> list[Mark]:
        """What no commit carried yet."""
        return self._marks if self._store.db.riders else []


def settle(
    store: Store,
    outboxes: Mapping[str, Path | None],
    *,
    item_id: str | None = None,
    command: tuple[str, str] = COMMAND,
) -> list[Mark]:
    """Write and remove what is due (of one item, or of all) and give the marks to record. Raises OSError.

    ``outboxes``: each queue's folder, None for a queue without one. A queue that is not in it is left as it is.
    """
    marks, trouble = _settle(store, outboxes, item_id, command)
    if trouble is not None:
        raise trouble
    return marks


def settle_and_mark(
    store: Store,
    outboxes: Mapping[str, Path | None],
    *,
    now: float,
    item_id: str | None = None,
    command: tuple[str, str] = COMMAND,
) -> int:
    """The same with the marks in a commit of their own (at start, from commands); how many files it was about."""
    marks, trouble = _settle(store, outboxes, item_id, command)
    store.papers.mark_now(marks, now=now)
    if trouble is not None:
        raise trouble
    return len(marks)


def _settle(
    store: Store, outboxes: Mapping[str, Path | None], item_id: str | None, command: tuple[str, str]
) -> tuple[list[Mark], OSError | None]:
    """What could be done, and the first trouble: one queue's broken folder holds up no other's files."""
    marks: list[Mark] = []
    trouble: OSError | None = None
    broken: set[str] = set()
    for paper in store.papers.due(item_id=item_id):
        queue = paper.item["queue"]
        if queue in broken:
            continue
        try:
            mark = _settle_one(paper, outboxes, command)
        except OSError as error:
            trouble = trouble or error
            broken.add(queue)
            continue
        if mark is not None:
            marks.append(mark)
    return marks, trouble


def render(paper: Paper, command: tuple[str, str] = COMMAND) -> bytes:
    """The file's bytes; the same paper and command always give the same ones."""
    text = _answer(paper) if paper.kind == "answer" else _waiting(paper, command)
    return text.encode("utf-8", "replace")


def _settle_one(paper: Paper, outboxes: Mapping[str, Path | None], command: tuple[str, str]) -> Mark | None:
    if paper.state == "unwanted":
        _remove_if_ours(paper, outboxes.get(paper.item["queue"]))
        return _mark(paper)
    if paper.item["queue"] not in outboxes:
        return None
    folder = outboxes[paper.item["queue"]]
    if folder is None or (paper.kind == "answer" and paper.item["result"] is None):
        return _mark(paper)
    data = render(paper, command)
    for name in _names(paper):
        path = folder / name
        if _write_new(path, data):
            return _mark(paper, str(path), bytes_digest(data))
        if _is_ours(path, paper):
            there = _bytes_of(path)
            same = _but_for_commands(there) == _but_for_commands(data)
            return _mark(paper, str(path), bytes_digest(there if same else data))
    return _mark(paper)


def _write_new(path: Path, data: bytes) -> bool:
    """Write it, and make the folder first where there is none."""
    try:
        return files.write_new(path, data, point="papers.write")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return files.write_new(path, data, point="papers.write")


def _mark(paper: Paper, path: str | None = None, digest: str | None = None) -> Mark:
    return Mark(paper.item_id, paper.kind, paper.about, path, digest)


def _names(paper: Paper) -> Iterator[str]:
    stem = _stem(paper.item["name"]) or paper.item["id"]
    number = paper.item["id"] if paper.kind == "answer" else paper.about
    yield f"{stem}.{paper.kind}.md"
    yield f"{stem}.{number}.{paper.kind}.md"
    for tries in range(2, MAX_TRIES):
        yield f"{stem}.{number}.{tries}.{paper.kind}.md"


def _stem(name: str) -> str:
    stem = (
        name.replace("/", "_").replace("\0", "").lstrip(".").encode("utf-8", "surrogateescape")[:NAME_BYTES]
    )
    return stem.decode("utf-8", "ignore").strip()


def _mark_line(paper: Paper) -> str:
    return f"<!-- shiftwork {paper.item['id']} {paper.about} -->"


def _is_ours(path: Path, paper: Paper) -> bool:
    """Whether an existing file was written for this very paper before a crash ate the mark.

    Only its last line says so: anything above it may be a quotation.
    """
    line = _mark_line(paper).encode() + b"\n"
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - len(line) - 1, 0))
            return file.read() in (b"\n" + line, line)
    except OSError:
        return False


def _remove_if_ours(paper: Paper, folder: Path | None) -> None:
    """Remove a file that is as we wrote it; one whose mark was lost is known by its name and its bytes."""
    if paper.path is not None:
        if _bytes_digest_of(Path(paper.path)) == paper.digest:
            files.remove(Path(paper.path), point="papers.remove")
        return
    for name in islice(_names(paper), 2) if folder is not None else ():
        path = Path(folder or "", name)
        if _but_for_commands(_bytes_of(path)) == _but_for_commands(render(paper)):
            files.remove(path, point="papers.remove")


def _bytes_of(path: Path) -> bytes:
    """What is there; nothing when it cannot be read."""
    with suppress(OSError):
        return path.read_bytes()
    return b""


def _bytes_digest_of(path: Path) -> str | None:
    data = _bytes_of(path)
    return bytes_digest(data) if data else None


def _but_for_commands(data: bytes) -> list[bytes]:
    """The lines without those to copy: another start of the program may have worded them otherwise."""
    return [line for line in data.split(b"\n") if not line.startswith(b"    ")]


def _answer(paper: Paper) -> str:
    item = paper.item
    result: dict[str, Any] = item["result"]
    lines = [f"# {shown(item['title']) or item['id']}", "", shown_block(result["text"]).rstrip(), ""]
    if result.get("by"):
        lines += [f"Answered by {shown(result['by'])}.", ""]
    cited = {one["ref"]: one for one in item["cited"]}
    if result.get("citations"):
        lines += ["## Sources", ""]
        for ref in result["citations"]:
            heading = f", {shown(cited[ref]['heading'])}" if ref in cited and cited[ref]["heading"] else ""
            lines.append(f"- {shown(ref)}{heading}")
        lines.append("")
    lines += [
        "---",
        f"{item['id']} · {moments.utc_minute(item['finished_at'] or 0)}",
        _mark_line(paper),
    ]
    return "\n".join(lines) + "\n"


def _waiting(paper: Paper, command: tuple[str, str]) -> str:
    flag = paper.flag or {}
    before, after = command
    lines = [
        f"# Waits for you: {shown(paper.item['title']) or paper.item['id']}",
        "",
        shown(flag["stuck"]),
        "",
    ]
    for number, question in enumerate(flag["questions"], 1):
        which = f" --question {number}" if len(flag["questions"]) > 1 else ""
        lines += [f"**{shown(question['question'])}**", ""]
        for place, option in enumerate(question.get("options", []), 1):
            lines.append(f"{place}. {shown(option['label'])} ({shown(option['cost'])})")
        advice = question.get("recommendation") or {}
        if advice.get("option"):
            lines += ["", f"Recommended: {advice['option']}, since {shown(advice['reason'])}"]
        lines += ["", "Answer with one of:", ""]
        forms = ['--answer "…"']
        if question.get("kind") == "confirm":
            forms = ["--approve", "--reject", *forms]
        if question.get("options"):
            forms = [f"--option {advice.get('option') or 1}", *forms]
        lines += [f"    {before} resolve {flag['id']}{which} {form}{after}" for form in forms]
        lines.append("")
    lines += [
        "---",
        f"{paper.item['id']} · {flag['id']} · asked {moments.utc_minute(flag['asked_at'])}",
        _mark_line(paper),
    ]
    return "\n".join(lines) + "\n"
