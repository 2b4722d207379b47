"""``shiftwork backup FILE``: a whole, checked copy of the store, with the daemon up or down (FIELD 24)."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from daemon.cli import reach, screen, shapes
from store.errors import NotFound
from store.text import shown

_STEPS = 1000  # of SQLite's machine between two looks: a few hundred rows
_EVERY_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """FILE --json."""
    parser.add_argument("file", metavar="FILE", help="the new file; one that exists is never overwritten")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    """Copy. Exit 3 when there is no store yet, 5 when FILE exists."""
    from store.backup import backup

    with reach.reading(args) as (places, store):
        if store is None:
            raise NotFound(f"there is nothing to back up: no store in {shown(str(places.state_dir))}")
        target = Path(os.path.abspath(args.file))
        if sys.stderr is not None and sys.stderr.isatty():
            store.db.connection().set_progress_handler(_progress(target, store.db.path), _STEPS)
        count = backup(store.db, target)
        store.db.connection().set_progress_handler(None, 0)
    if args.json:
        shapes.out({"file": str(target), "bytes": count, "at": time.time()})
        return 0
    screen.out(f"{screen.quoted(target)}  {screen.size(count)}, whole and checked")
    screen.note(
        f"To restore: stop the daemon, move {screen.quoted(places.state_dir)} away, put the copy back as shiftwork.db."
    )
    return 0


def _progress(target: Path, source: Path) -> Callable[[], int]:
    """Says on the terminal how far the copy is, a few times a second."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    whole = max(source.stat().st_size, 1)
    last = 0.0

    def look() -> int:
        nonlocal last
        if time.monotonic() - last > _EVERY_S:
            last = time.monotonic()
            try:
                share = min(temporary.stat().st_size / whole, 1.0)
            except OSError:
                share = 0.0
            print(f"\rcopying {share:4.0%}\r", end="", file=sys.stderr, flush=True)
        return 0

    return look
