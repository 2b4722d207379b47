"""A queue with a real store and a real inbox, for the tests of the doors."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store import opening
from store.alerts import Alerts
from store.database import Database
from store.events import Events
from store.intake import Intake
from triggers.inbox.scan import scan_once
from triggers.inbox.spec import InboxMemory, InboxSpec, ScanReport

NOW = 1_800_000_000.0  # far from the real clock: ctimes of test files lie before it


@dataclass
class World:
    """A state folder, an inbox and the store's parts that doors use."""

    folder: Path
    db: Database
    events: Events
    intake: Intake
    alerts: Alerts
    spec: InboxSpec
    memory: InboxMemory

    @property
    def inbox(self) -> Path:
        return self.spec.folder

    def scan(self, now: float = NOW, **more: Any) -> ScanReport:
        return scan_once(self.spec, self, now, self.memory, **more)

    def restarted(self) -> None:
        """Forget what a process remembers."""
        self.memory = InboxMemory()

    def drop(self, name: str, data: bytes | str = "What is this?\n") -> Path:
        path = self.inbox / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.db.read() as conn:
            return [tuple(row) for row in conn.execute(sql, values)]

    @property
    def state_dir(self) -> Path:
        return self.db.state_dir

    def items(self) -> list[tuple[Any, ...]]:
        """(id, body) of every item."""
        return self.rows("SELECT id, body FROM items ORDER BY seq")

    def kinds(self) -> list[str]:
        """The kinds of all events, in order."""
        return [row[0] for row in self.rows("SELECT kind FROM events ORDER BY id")]

    def problems(self) -> dict[str, str]:
        return dict(self.rows("SELECT key, detail FROM problems ORDER BY key"))

    def tree(self, below: str = "") -> list[str]:
        """Every file in the inbox (or a folder of it), relative, sorted."""
        root = self.inbox / below
        return sorted(
            os.path.relpath(os.path.join(folder, name), root)
            for folder, _, names in os.walk(root)
            for name in names
        )


def make_world(tmp_path: Path, **spec: Any) -> World:
    shutil.copytree(_prepared(), tmp_path / "state", dirs_exist_ok=True)
    return open_world(tmp_path, **spec)


@functools.cache
def _prepared() -> Path:
    """A new store, made once: making one starts a process."""
    folder = Path(tempfile.mkdtemp(prefix="shiftwork-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    opening.prepare(folder)
    return folder


def open_world(tmp_path: Path, **spec: Any) -> World:
    """The world in a folder where ``make_world`` was called before."""
    inbox = Path(spec.pop("inbox", tmp_path / "inbox"))
    inbox.mkdir(parents=True, exist_ok=True)
    db = Database(tmp_path / "state")
    events = Events(db)
    return World(
        folder=tmp_path,
        db=db,
        events=events,
        intake=Intake(db, events),
        alerts=Alerts(db, events),
        spec=InboxSpec(queue="questions", folder=inbox, **spec),
        memory=InboxMemory(),
    )


def python(
    code: str, *arguments: str, env: dict[str, str] | None = None, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a process of its own that finds our packages."""
    root = Path(__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'tests'}", **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **more,
    )


def count_syncs(db: Path) -> int:
    """How many commits the store has seen."""
    conn = sqlite3.connect(db)
    try:
        return int(conn.execute("SELECT seq FROM commits").fetchone()[0])
    finally:
        conn.close()
