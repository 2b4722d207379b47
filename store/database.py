"""One SQLite file, opened plainly: short reads, and writes through the gate.

    with db.read() as conn:            one consistent snapshot, closed at once
    with db.write(point="claim") as conn:   gate → BEGIN IMMEDIATE → commit → note the sequence → gate released

Compute before you enter ``write``. Never hold either across a model call, a network call or a sleep.
Only the standard library is imported here: the read verbs of the command line start through this file.
"""

from __future__ import annotations

import operator
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from store.errors import StoreBusy, StoreGone, StoreRefused
from store.gate import WriteGate
from store.points import reach

DB_NAME = "shiftwork.db"
BUSY_TIMEOUT_MS = 10_000
PAGE_SIZE = 1024
AUTOCHECKPOINT_PAGES = 8000
WAL_LIMIT_BYTES = 64 * 1024 * 1024

DISK_CODES = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
)

Rider = Callable[[sqlite3.Connection], None]


class Database:
    """The store's file and its write gate. Safe to use from several threads; each has its own connection."""

    def __init__(self, state_dir: Path, *, read_only: bool = False, wait_s: float = 10.0) -> None:
        self.state_dir = state_dir
        self.path = state_dir / DB_NAME
        self.read_only = read_only
        self.wait_s = wait_s
        self.gate = WriteGate(state_dir / "store.lock")
        self.on_commit: Callable[[], None] | None = None
        self.on_disk_trouble: Callable[[sqlite3.OperationalError], None] | None = None
        """Called in the thread it happened in when the disk, not the work, refused a write or a new connection."""
        self._riders: list[Rider] = []
        self._local = threading.local()
        self._open: list[sqlite3.Connection] = []
        self._open_lock = threading.Lock()
        self._pid = os.getpid()
        self._identity: tuple[int, int] | None = None

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A read snapshot. Inside a ``write`` of the same thread it is that transaction."""
        conn = self.connection()
        if conn.in_transaction:
            yield conn
            return
        conn.execute("BEGIN")
        try:
            yield conn
        finally:
            conn.execute("ROLLBACK")

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[sqlite3.Row]:
        """All rows of one statement: a snapshot of its own, or the one that this thread is in."""
        return self.connection().execute(sql, values).fetchall()

    @contextmanager
    def write(self, *, point: str, wait_s: float | None = None) -> Iterator[sqlite3.Connection]:
        """One write transaction, committed at the end of the block, rolled back by any exception.

        ``point`` names the commit for crash tests. Raises StoreBusy when the gate or SQLite stays busy, StoreRefused
        when the file turned out to be damaged, StoreGone when it is another one than was opened.
        """
        if self.read_only:
            raise StoreRefused(f"{self.path} was opened for reading only")
        conn = self.connection()
        with self.gate.held(self.wait_s if wait_s is None else wait_s) as fd:
            self.refuse_if_gone()
            try:
                conn.execute("BEGIN IMMEDIATE")
                try:
                    yield conn
                    riders = list(self._riders)
                    for rider in riders:
                        rider(conn)
                    sequence = conn.execute("UPDATE commits SET seq = seq + 1 RETURNING seq").fetchone()[0]
                    reach(f"{point}.before")
                except BaseException:
                    conn.execute("ROLLBACK")
                    raise
                conn.execute("COMMIT")
            except sqlite3.OperationalError as error:
                self._tell_of_the_disk(error)
                raise _busy_or_same(error, self.path) from error
            os.pwrite(fd, b"%015d\n" % sequence, 0)
            del self._riders[: len(riders)]
            reach(f"{point}.after")
        if self.on_commit is not None:
            self.on_commit()

    def _tell_of_the_disk(self, error: sqlite3.OperationalError) -> None:
        if self.on_disk_trouble is not None and error.sqlite_errorcode & 0xFF in DISK_CODES:
            self.on_disk_trouble(error)

    def ride_along(self, rider: Rider) -> None:
        """Let ``rider`` write in this process's next commit: for marks that are not worth a commit of their own."""
        self._riders.append(rider)

    @property
    def riders(self) -> int:
        """How many riders wait for a commit."""
        return len(self._riders)

    def connection(self) -> sqlite3.Connection:
        """This thread's connection, with every pragma set; opened again after a fork. Raises StoreGone."""
        if self._pid != os.getpid():
            self._local, self._open, self._pid, self._identity = threading.local(), [], os.getpid(), None
        conn: sqlite3.Connection | None = getattr(self._local, "conn", None)
        if conn is None:
            self._identity = self._identity or identity(self.path)
            try:
                conn = connect(self.path, read_only=self.read_only)
            except sqlite3.OperationalError as error:  # it needs room on the disk, too
                if self._identity is not None and self._identity != identity(self.path):
                    raise self.gone() from error
                self._tell_of_the_disk(error)
                raise
            self._local.conn = conn
            with self._open_lock:
                self._open.append(conn)
        return conn

    def shrink_wal(self) -> None:
        """Fold the write-ahead log into the file and empty it, if nobody is reading."""
        with self.gate.held(self.wait_s):
            self.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def refuse_if_gone(self) -> None:
        """Raise StoreGone unless the path still names the file that this process opened first.

        A commit to a file that was replaced or unlinked would succeed, and be lost.
        """
        self.connection()
        if self._identity is None or self._identity != identity(self.path):
            raise self.gone()

    def gone(self) -> StoreGone:
        """The error for a store that is no longer where it was."""
        return StoreGone(
            f"{self.path} was replaced or removed while this ran; nothing more is written. "
            "Put the right file there and start again"
        )

    def close(self) -> None:
        """Close every connection of this process."""
        with self._open_lock:
            for conn in self._open:
                conn.close()
            self._open.clear()
        self._local = threading.local()
        self.gate.close()


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection as all of ours are: autocommit, rows by name, WAL and FULL checked, busy timeout set."""
    mode = "ro" if read_only else "rw"
    conn = sqlite3.connect(
        f"file:{_quoted(path)}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=BUSY_TIMEOUT_MS / 1000,
    )
    conn.row_factory = sqlite3.Row
    conn.text_factory = _text  # one row that is not UTF-8 must not make the whole store unreadable
    if not read_only:
        conn.execute("PRAGMA synchronous=FULL")
        conn.execute(f"PRAGMA wal_autocheckpoint={AUTOCHECKPOINT_PAGES}")
        conn.execute(f"PRAGMA journal_size_limit={WAL_LIMIT_BYTES}")
    return conn


def for_the_group(path: Path) -> None:
    """Make the file, if it is not there, with the rights of the lock's beside it, less the umask.

    SQLite would keep the group from writing whatever the umask allows; its log and shared memory follow the file's.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660))


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file at ``path``; None when there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def marks(values: Collection[object]) -> str:
    """A question mark for each value to be bound, with commas between."""
    return ", ".join("?" * len(values))


_text = operator.methodcaller("decode", "utf-8", "surrogateescape")
"""Bytes of a TEXT column as a string; called for each of them, so it is no function of Python's."""


def _quoted(path: Path) -> str:
    return os.fspath(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _busy_or_same(error: sqlite3.OperationalError, path: Path) -> Exception:
    if error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(f"{path}: another program is writing; try again")
    return error
