"""``shiftwork init``: a quickstart in any folder. Nothing that exists is ever overwritten (exit 5).

The docs that its queue quotes come from the installed wheel (``daemon/docs``), or from ``docs/`` in a checkout.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

import daemon
from daemon.cli import light, screen
from store.errors import NameTaken, ShiftworkError
from store.text import shown

QUEUE = "questions"
QUESTION = "How do I resolve a flagged item?"
CONFIGURATION = f"""\
# A Shiftwork quickstart: the queue "{QUEUE}" answers from docs/ by quoting, without network or key.
# Relative paths start at this file's folder. Every key is explained in docs/config.example.toml.
# After a change:  shiftwork check-config, then restart the daemon or send it SIGHUP.

state_dir = "state"               # the store; on a local disk, created by the first run

[queues.{QUEUE}]
inbox = "inbox"                   # drop .md, .txt or .json files here
outbox = "outbox"                 # NAME.answer.md, or NAME.waiting.md when a person is needed
sources = ["docs/**/*.md"]        # what answers are quoted from
decider = "local"

[deciders.local]
kind = "extractive"               # quotes the best supported passage; flags what none supports

# Be paged when something waits too long. The file holds one Apprise URL:
# [notify]
# services = [{{ url_file = "page.url", tags = ["page"] }}]
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """DIR."""
    parser.add_argument(
        "dir", nargs="?", default=".", metavar="DIR", help="where to write it (default: here)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the quickstart and say what to type next."""
    folder = Path(args.dir)
    pages = write(folder)
    where = "here" if os.path.realpath(folder) == os.path.realpath(".") else f"to {screen.quoted(folder)}"
    screen.out(
        f"Wrote a quickstart {where}: {light.LOCAL}, inbox/, outbox/, docs/ ({screen.count(pages, 'page')})."
    )
    screen.out("Start it:")
    screen.out(f"  {screen.command('run', config=folder / light.LOCAL)}")
    screen.out("Then, in a second terminal in this folder, drop a question and read the answer:")
    screen.out(f'  echo "{QUESTION}" > {screen.quoted(folder / "inbox" / "hello.md")}')
    screen.out(f"  cat {screen.quoted(folder / 'outbox' / 'hello.answer.md')}")
    return 0


def write(folder: Path) -> int:
    """Write the quickstart into ``folder`` and give the number of pages in docs/.

    Everything is made in a folder beside and moved in name by name, the configuration last: a name that exists
    raises NameTaken, and what was moved before is taken back.
    """
    taken = [name for name in ("inbox", "outbox", "docs", light.LOCAL) if os.path.lexists(folder / name)]
    if taken:
        names = ", ".join(screen.quoted(folder / name) for name in taken)
        raise NameTaken(f"{names} {'exists' if len(taken) == 1 else 'exist'} already. Nothing was written.")
    created = _create(folder)
    moved: list[Path] = []
    try:
        return _write(folder, moved)
    except BaseException:
        for path in [*moved, *([created] if created else [])]:
            _remove(path)
        raise


def _write(folder: Path, moved: list[Path]) -> int:
    staging = Path(tempfile.mkdtemp(prefix=".shiftwork-init-", dir=folder))
    try:
        pages = _fill(staging)
        for name in ("inbox", "outbox", "docs", light.LOCAL):
            _move(staging / name, folder / name)
            moved.append(folder / name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return pages


def shipped_docs() -> list[tuple[str, Path]]:
    """(name below docs/, file) of everything the quickstart's queue may quote, sorted."""
    package = Path(daemon.__file__).parent
    folder = package / "docs" if (package / "docs").is_dir() else package.parent / "docs"
    found = [(os.fspath(file.relative_to(folder)), file) for file in folder.rglob("*") if file.is_file()]
    example = package.parent / "config.example.toml"
    if folder.parent == package.parent and example.is_file():
        found.append((example.name, example))
    if not any(name.endswith(".md") for name, _ in found):
        raise ShiftworkError(f"{folder} holds no docs: this installation is incomplete, install it again")
    return sorted(found)


def _fill(staging: Path) -> int:
    (staging / "inbox").mkdir()
    (staging / "outbox").mkdir()
    pages = 0
    for name, file in shipped_docs():
        target = staging / "docs" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
        pages += name.endswith(".md")
    (staging / light.LOCAL).write_text(CONFIGURATION, encoding="utf-8")
    return pages


def _create(folder: Path) -> Path | None:
    """Create ``folder`` with its parents; the topmost one that was new."""
    new = None
    for path in (folder, *folder.parents):
        if os.path.lexists(path):
            break
        new = path
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NameTaken(f"{shown(str(folder))} exists and is not a folder. Nothing was written.") from None
    return new


def _move(source: Path, target: Path) -> None:
    if source.is_dir():
        os.rename(source, target)  # a folder replaces an empty folder at most
        return
    try:
        with open(target, "xb") as stream:
            stream.write(source.read_bytes())
    except FileExistsError:
        raise NameTaken(f"{screen.quoted(target)} exists already. Nothing was written.") from None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
