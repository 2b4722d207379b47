"""``backup FILE``: a whole, consistent copy that never shows half of itself."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from store import files
from store.database import Database
from store.errors import NameTaken
from store.points import outside


def backup(db: Database, target: Path) -> int:
    """Copy the store into ``target`` (VACUUM INTO, then a rename), mode 0600; its size in bytes.

    Raises NameTaken when ``target`` exists.
    """
    if target.exists():
        raise NameTaken(f"{target} exists and is not overwritten; give a new name")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    fd = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    os.close(fd)
    try:
        with outside("backup.write"):
            db.connection().execute("VACUUM INTO ?", (os.fspath(temporary),))
        check = sqlite3.connect(f"file:{temporary}?mode=ro", uri=True)
        found = check.execute("PRAGMA quick_check(1)").fetchone()[0]
        check.close()
        if found != "ok":
            raise sqlite3.DatabaseError(f"the copy does not check: {found}")
        fd = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
        os.fsync(fd)
        os.close(fd)
        files.rename(temporary, target, point="backup.replace")
    finally:
        temporary.unlink(missing_ok=True)
    files.fsync_folder(target.parent)
    return target.stat().st_size
