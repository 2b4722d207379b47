"""Opening the store, or refusing it: an unknown, damaged or vanished store is never treated as empty.

    missing, nothing of an earlier one beside it   → created under a temporary name, renamed whole
    missing, but an earlier one left traces         → refused
    not ours, newer, truncated, damaged, commits lost with a deleted WAL → refused
    older                                           → a copy is kept, then migrated
    ours                                            → ``quick_check`` unless nothing changed since the last clean stop

Beside the file lie ``store.lock`` (the write gate; holds the number of the last commit) and ``clean.json`` (size and
mtime at the last clean stop; not in the database, so that a lost database cannot vouch for itself).
A refusal writes nothing, names the file and says what to do; exit 70.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import struct
import sys
from pathlib import Path

from store import mounts
from store.database import DB_NAME, Database, connect, for_the_group
from store.errors import ConfigProblem, NameTaken, StoreRefused
from store.gate import WriteGate
from store.tables import TABLES

KNOWN_VERSION = 1
KNOWN_APPLICATION = 0x53484654
CLEAN_NAME = "clean.json"
TRACES = (f"{DB_NAME}-wal", CLEAN_NAME, "history.db")
LOST = "the newest"  # how a line about lost commits begins
RESTORE = "To go on from a backup, move the whole folder away and put the copy, as shiftwork.db, alone into a new one"
_HEADER = b"SQLite format 3\x00"


def prepare(state_dir: Path, *, allow_network: bool = False) -> list[str]:
    """Create, migrate or check the store; lines worth telling (empty when all is as it was).

    Raises StoreRefused, ConfigProblem (a network file system, a folder that cannot be written), StoreBusy.
    """
    check_folder(state_dir)
    if not allow_network and mounts.mount_of(state_dir).foreign:
        raise ConfigProblem(
            f"{state_dir} is on a {mounts.mount_of(state_dir).kind} file system; the store needs a local disk. "
            "Point state_dir to one, or set [daemon] allow_network_store = true (slower, and one machine only)"
        )
    gate = WriteGate(state_dir / "store.lock")
    try:
        with gate.held(10.0) as fd:
            noted = _sequence(fd)
            told = _prepare_locked(state_dir, noted, wal=not mounts.mount_of(state_dir).foreign)
            if told and noted and noted > (kept := _commits(state_dir / DB_NAME)):
                os.pwrite(
                    fd, b"%015d\n" % kept, 0
                )  # told once: the state before the lost commits is the state now
            return told
    except (IsADirectoryError, PermissionError) as error:
        raise unwritable(Path(error.filename or gate.path), error) from error
    finally:
        gate.close()


def open_database(state_dir: Path, *, read_only: bool = False) -> Database | None:
    """The store for a command: None when there is none yet and never was one.

    Looks at the header, the version, the names of the tables and the number of commits only. Raises StoreRefused.
    """
    path = state_dir / DB_NAME
    if not path.exists():
        _refuse_if_vanished(state_dir, _sequence_at(state_dir / "store.lock"))
        return None
    _check_header(path)
    had_wal, noted = _wal_has_frames(state_dir), _sequence_at(state_dir / "store.lock")
    db = Database(state_dir, read_only=read_only)
    try:
        version = db.connection().execute("PRAGMA user_version").fetchone()[0]
        if version == KNOWN_VERSION:
            _check_table_names(db.connection(), path)
            _check_commits(db.connection(), path, noted, had_wal=had_wal)
    except sqlite3.DatabaseError as error:
        raise damaged(path, str(error)) from error
    _check_version(path, version)
    if version < KNOWN_VERSION:
        raise StoreRefused(
            f"{path} is of schema {version}, older than this Shiftwork ({KNOWN_VERSION}). Start it once:  shiftwork run"
        )
    return db


def _commits(path: Path) -> int:
    with contextlib.closing(connect(path, read_only=True)) as conn:
        found: int = conn.execute("SELECT seq FROM commits").fetchone()[0]
        return found


def note_clean_stop(db: Database) -> None:
    """Fold the log, close, and note size and mtime: the next start may skip its check."""
    from store import files

    with contextlib.suppress(sqlite3.Error):
        db.shrink_wal()
    db.close()
    status = db.path.stat()
    note = json.dumps({"bytes": status.st_size, "mtime_ns": status.st_mtime_ns}).encode()
    place = db.state_dir / CLEAN_NAME
    if not place.exists() or place.read_bytes() != note:  # a run that had nothing to do writes nothing
        files.replace_own(place, note, point="store.mark")


def damaged(path: Path, what: str) -> StoreRefused:
    """The error for a file that SQLite itself complains about."""
    return StoreRefused(f"{path} is damaged ({what}). Nothing was written. {RESTORE}")


def _prepare_locked(state_dir: Path, sequence: int, *, wal: bool) -> list[str]:
    path = state_dir / DB_NAME
    if not path.exists():
        _refuse_if_vanished(state_dir, sequence)
        _create(state_dir, wal=wal)
        return [f"new store {path}"]
    _check_header(path)
    had_wal = _wal_has_frames(state_dir)
    clean = not had_wal and _is_clean(state_dir)
    told: list[str] = []
    try:
        version = _looked_at(path, sequence, clean=clean, had_wal=had_wal, told=told)
        if version < KNOWN_VERSION:
            told.append(_migrate(state_dir, version))
            _looked_at(path, sequence, clean=False, had_wal=had_wal, told=[])
        with contextlib.closing(connect(path)) as conn:
            _check_journal(conn, path, wal=wal)
    except sqlite3.DatabaseError as error:
        raise damaged(path, str(error)) from error
    return told


def _looked_at(path: Path, sequence: int, *, clean: bool, had_wal: bool, told: list[str]) -> int:
    """Every check; the schema's version. An older one is looked at again when it is migrated.

    The last connection to close folds the log into the file, a doubtful one, too, unless it cannot write. (Checks
    need one that can: SQLite looks at no CHECK through the other.)
    """
    with contextlib.closing(connect(path, read_only=True)) as last, contextlib.closing(connect(path)) as conn:
        last.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        version: int = conn.execute("PRAGMA user_version").fetchone()[0]
        _check_version(path, version)
        if version == KNOWN_VERSION:
            _check_tables(conn, path)
        if not clean:
            _quick_check(conn, path)
        told += _check_commits(conn, path, sequence, had_wal=had_wal)
        if version == KNOWN_VERSION:
            _check_meta(conn, path)
    return version


def check_folder(state_dir: Path) -> None:
    """The state folder is there and this user may write in it; else ConfigProblem with path, owner, user."""
    import tempfile

    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o770)
        with tempfile.TemporaryFile(dir=state_dir):
            pass
    except OSError as error:
        raise unwritable(state_dir, error) from error


def unwritable(folder: Path, error: OSError) -> ConfigProblem:
    """The error for a state folder that this user cannot write: path, owner, user."""
    at = folder
    while not os.path.exists(at):
        at = at.parent
    owner = at.stat()
    return ConfigProblem(
        f"{folder} cannot be written ({error.strerror}).\n"
        f"{at} belongs to {_user(owner.st_uid)}, mode {owner.st_mode & 0o7777:04o}; you are {_user(os.geteuid())}.\n"
        "Give the folder to this user, or let state_dir in the configuration name another one."
    )


def _user(uid: int) -> str:
    """``anna (uid 1000)``, or the number alone where it has no name."""
    import pwd

    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _refuse_if_vanished(state_dir: Path, sequence: int) -> None:
    traces = [name for name in TRACES if (state_dir / name).exists()]
    if sequence > 0:
        traces.append(f"store.lock (commit {sequence})")
    if traces:
        raise StoreRefused(
            f"{state_dir / DB_NAME} is missing, but this folder held a store: {', '.join(traces)}. "
            f"Nothing was written. Put the file back. {RESTORE}. To begin anew on purpose, move the folder away"
        )


def _check_header(path: Path) -> None:
    if not path.is_file():  # opening a pipe would wait for ever
        raise StoreRefused(
            f"{path} is not a file. Nothing was written. Put the store or a backup in its place"
        )
    with path.open("rb") as file:
        head = file.read(100)
    if not head:
        raise StoreRefused(f"{path} is empty (0 bytes). Nothing was written. {RESTORE}")
    if len(head) < 100 or head[:16] != _HEADER:
        raise StoreRefused(f"{path} is not an SQLite file. Nothing was written. {RESTORE}")
    application, version = struct.unpack(">I", head[68:72])[0], struct.unpack(">I", head[60:64])[0]
    if application != KNOWN_APPLICATION:
        raise StoreRefused(
            f"{path} belongs to another program (application id {application:#x}). Nothing was written. "
            "Set state_dir to a folder of Shiftwork's own"
        )
    _check_version(path, version)


def _check_version(path: Path, version: int) -> None:
    if version > KNOWN_VERSION:
        raise StoreRefused(
            f"{path} was written by a newer Shiftwork (schema {version}, this one knows {KNOWN_VERSION}).\n"
            "Nothing was touched. Install that version again, or put back a backup from before"
        )
    if version < 1:
        raise damaged(path, f"schema version {version}")


def _check_tables(conn: sqlite3.Connection, path: Path) -> None:
    from store.schema import ddl

    model = sqlite3.connect(":memory:")
    model.executescript(ddl())
    query = (
        "SELECT type, name FROM sqlite_schema WHERE sql IS NOT NULL UNION ALL "
        "SELECT 'column', s.name || '.' || c.name FROM sqlite_schema s JOIN pragma_table_info(s.name) c "
        "WHERE s.type = 'table' AND s.sql NOT LIKE 'CREATE VIRTUAL%'"
    )
    wanted = {tuple(row) for row in model.execute(query)}
    model.close()
    missing = sorted(name for kind, name in wanted - {tuple(row) for row in conn.execute(query)})
    if missing:
        raise damaged(path, f"missing: {', '.join(missing)}")


def _check_table_names(conn: sqlite3.Connection, path: Path) -> None:
    """What a command can afford of ``_check_tables``: no table is gone."""
    there = {row[0] for row in conn.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    missing = sorted(TABLES - there)
    if missing:
        raise damaged(path, f"missing: {', '.join(missing)}")


def _quick_check(conn: sqlite3.Connection, path: Path) -> None:
    found = [row[0] for row in conn.execute("PRAGMA quick_check(3)")]
    if found != ["ok"]:
        raise damaged(path, "; ".join(found))
    orphan = conn.execute("PRAGMA foreign_key_check").fetchone()
    if orphan is not None:
        raise damaged(path, f"{orphan['table']} has rows whose {orphan['parent']} are gone")


def _check_commits(conn: sqlite3.Connection, path: Path, noted: int, *, had_wal: bool) -> list[str]:
    row = conn.execute("SELECT seq FROM commits").fetchone()
    if row is None:
        raise damaged(path, "its commit counter is gone")
    if row[0] >= noted:
        return []
    lost = f"{noted - row[0]} of {noted} commits"
    if not had_wal:
        raise StoreRefused(
            f"{path} lacks its newest {lost}: {path.name}-wal was deleted, or an older copy was put here. "
            f"Nothing was written. Put the -wal file back. {RESTORE}"
        )
    return [f"{LOST} {lost} are lost: {path.name}-wal was cut or damaged; the state before them is whole"]


def _check_meta(conn: sqlite3.Connection, path: Path) -> None:
    try:
        meta = {row["key"]: json.loads(row["value"]) for row in conn.execute("SELECT key, value FROM meta")}
        good = isinstance(meta["store_id"], str) and isinstance(meta["created_at"], float)
        steps = [
            row["name"]
            for row in conn.execute("SELECT name FROM _sqlite_migrations WHERE migration_set = 'shiftwork'")
        ]
    except (ValueError, KeyError) as error:
        raise damaged(path, f"its own records cannot be read: {error}") from error
    if not good or steps != [f"schema_{number}" for number in range(1, KNOWN_VERSION + 1)]:
        raise damaged(path, "its own records (meta, migrations) are not what they were")


def _check_journal(conn: sqlite3.Connection, path: Path, *, wal: bool) -> None:
    wanted = "wal" if wal else "delete"
    got = conn.execute(f"PRAGMA journal_mode = {wanted}").fetchone()[0]
    if got != wanted:
        raise StoreRefused(
            f"{path}: asked for journal mode {wanted}, got {got}; is another program using it?"
        )


def _create(state_dir: Path, *, wal: bool) -> None:
    from store import files  # brings ctypes and tempfile: only who writes files pays for them

    temporary = f".new-{os.getpid()}.db"
    for old in state_dir.glob(".new-*.db*"):
        old.unlink(missing_ok=True)
    _child("create", str(state_dir), temporary, *([] if wal else ["--no-wal"]), path=state_dir / DB_NAME)
    with contextlib.suppress(NameTaken):
        files.rename(state_dir / temporary, state_dir / DB_NAME, point="store.create")
    files.fsync_folder(state_dir)


def _migrate(state_dir: Path, version: int) -> str:
    from store import files

    path = state_dir / DB_NAME
    copy = state_dir / f"{DB_NAME}.schema-{version}"
    if not copy.exists():
        conn = connect(path, read_only=True)
        temporary = state_dir / f".copy-{os.getpid()}.db"
        temporary.unlink(missing_ok=True)
        for_the_group(temporary)
        conn.execute("VACUUM INTO ?", (str(temporary),))
        conn.close()
        files.rename(temporary, copy, point="store.mark")
    _child("migrate", str(path), path=path)
    return f"migrated {path} from schema {version} to {KNOWN_VERSION}; the file as it was: {copy}"


def _child(action: str, *arguments: str, path: Path) -> None:
    import subprocess

    program = Path(__file__).with_name(
        "migrations.py"
    )  # as a file: no folder of the user's can stand in for ours
    done = subprocess.run(
        [sys.executable, "-P", str(program), action, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode == -9:
        os.kill(os.getpid(), 9)  # a crash point in the child is a crash of the whole
    if done.returncode:
        raise StoreRefused(
            f"{path}: {action} failed and was rolled back: {done.stderr.strip()}. Nothing was changed. "
            "Install the version that wrote it, or report this"
        )


def _is_clean(state_dir: Path) -> bool:
    try:
        note = json.loads((state_dir / CLEAN_NAME).read_bytes())
        status = (state_dir / DB_NAME).stat()
        return bool(note == {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns})
    except (OSError, ValueError):
        return False


def _wal_has_frames(state_dir: Path) -> bool:
    wal = state_dir / f"{DB_NAME}-wal"
    return wal.exists() and wal.stat().st_size > 0


def _sequence(fd: int) -> int:
    text = os.pread(fd, 32, 0).split(b"\n")[0].strip()
    return int(text) if text.isdigit() else 0


def _sequence_at(path: Path) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        return _sequence(fd)
    finally:
        os.close(fd)
