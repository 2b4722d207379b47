"""Forward migrations, each with its record in one transaction; run in a process of their own.

    migrations.py create FOLDER NAME     a new, complete store under a temporary name
    migrations.py migrate FILE           an older store to this version, in place

sqlite-utils keeps the record (table ``_sqlite_migrations``); it is imported here only, so no other process carries it.
A migration is a function with the next number; it sets ``user_version`` itself.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

if (_root := str(Path(__file__).resolve().parent.parent)) not in sys.path:
    sys.path.insert(0, _root)  # started as a file with -P, so that the current folder is not looked at

import sqlite_utils

from store.database import PAGE_SIZE, for_the_group
from store.points import outside
from store.schema import APPLICATION_ID, ddl

if TYPE_CHECKING:
    from sqlite_utils import Database

migrations = sqlite_utils.Migrations("shiftwork")


@migrations()
def schema_1(db: Database) -> None:
    """The first schema, whole."""
    run_script(db.conn, ddl())
    now = time.time()
    db.conn.executemany(
        "INSERT INTO meta (key, value) VALUES (?, ?)",
        [("store_id", f'"{uuid.uuid4()}"'), ("created_at", repr(now))],
    )
    db.conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.conn.execute("PRAGMA user_version = 1")


def run_script(conn: sqlite3.Connection, script: str) -> None:
    """Execute the statements one by one inside the transaction that is open (``executescript`` would end it)."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            conn.execute(statement)
            statement = ""


def create(folder: Path, name: str, *, wal: bool = True) -> None:
    """Build a complete store in ``folder`` under ``name``, durable and closed."""
    path = folder / name
    for_the_group(path)
    conn = sqlite3.connect(path)
    conn.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    if wal:
        conn.execute("PRAGMA journal_mode = WAL")
    conn.execute("PRAGMA synchronous = FULL")
    _apply(conn)
    conn.close()
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    os.fsync(fd)
    os.close(fd)


def migrate(path: Path) -> None:
    """Apply what is missing, each migration in one transaction with its record."""
    conn = sqlite3.connect(path, timeout=10)
    conn.execute("PRAGMA synchronous = FULL")
    _apply(conn)
    conn.close()


def _apply(conn: sqlite3.Connection) -> None:
    """A new store takes every migration, an older one those it lacks: one path, so one crash point proves both."""
    with outside("store.migrate"):
        migrations.apply(sqlite_utils.Database(conn))


def main(arguments: list[str]) -> int:
    """The process's entry; errors go to stderr as one line."""
    try:
        if arguments[0] == "create":
            create(Path(arguments[1]), arguments[2], wal="--no-wal" not in arguments)
        else:
            migrate(Path(arguments[1]))
    except (sqlite3.Error, OSError, ValueError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
