"""A store is opened as it was, or refused: damaged, foreign, newer or vanished is never treated as empty."""

from __future__ import annotations

import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from store_conformance import NOW, answered, claim, hand

from store import opening
from store.database import connect
from store.errors import ConfigProblem, StoreGone, StoreRefused
from store.gate import WriteGate
from store.opening import note_clean_stop, open_database, prepare
from store.schema import ddl
from store.sqlite import open_for_reading, open_store
from store.tables import TABLES


@pytest.fixture(scope="module")
def used(tmp_path_factory):
    """A state folder with work in it, all of it in the log: its only process was killed."""
    folder = tmp_path_factory.mktemp("used") / "state"
    prepare(folder)
    script = (
        "import os, sys; from pathlib import Path\n"
        "from store.sqlite import open_store; from store.intake import Handed\n"
        "store = open_store(Path(sys.argv[1]))\n"
        "for n in range(20): store.intake.hand_in([Handed('q', f'item {n}' * 50, 'cli')], now=1.0, caps={'q': 99})\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(folder)], check=False).returncode == -9
    return folder


@pytest.fixture
def state(used, tmp_path):
    return shutil.copytree(used, tmp_path / "state")


def folded(state):
    """The same store with everything in the one file."""
    store = open_store(state)
    note_clean_stop(store.db)
    assert not (state / "shiftwork.db-wal").exists()
    return state / "shiftwork.db"


def tree(state):
    """Every file of the store that a refusal must not change (``-shm`` and an empty ``-wal`` are SQLite's scratch)."""
    found = {p.name: p.read_bytes() for p in sorted(state.iterdir()) if not p.name.endswith("-shm")}
    return {name: data for name, data in found.items() if data or not name.endswith("-wal")}


def refused(state, *words):
    before = tree(state)
    with pytest.raises(StoreRefused) as error:
        prepare(state)
    assert error.value.exit_code == 70
    for word in ("shiftwork.db", *words):
        assert word in str(error.value)
    assert tree(state) == before, "a refusal writes nothing"
    return str(error.value)


def test_before_the_first_run_readers_find_nothing_and_create_nothing(tmp_path):
    assert open_for_reading(tmp_path / "state") is None
    assert list(tmp_path.iterdir()) == []


def test_a_new_store_appears_whole_under_its_name(tmp_path):
    prepare(tmp_path / "state")
    names = sorted(p.name for p in (tmp_path / "state").iterdir())
    assert names == ["shiftwork.db", "store.lock"]
    conn = connect(tmp_path / "state" / "shiftwork.db")
    assert conn.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert conn.execute("PRAGMA user_version").fetchone()[0] == opening.KNOWN_VERSION
    assert conn.execute("PRAGMA application_id").fetchone()[0] == opening.KNOWN_APPLICATION


def test_what_a_killed_process_committed_is_there(state):
    assert prepare(state) == []
    assert len(open_store(state).views.items(queue="q", state=None, limit=99, now=NOW)) == 20


def test_a_missing_file_where_an_earlier_one_was_is_refused(state):
    (state / "shiftwork.db").unlink()
    words = refused(state, "missing", "store.lock (commit 20)")
    assert "shiftwork.db-wal" in words
    with pytest.raises(StoreRefused):
        open_for_reading(state)


def test_a_deleted_log_is_refused_since_commits_are_gone_with_it(state):
    (state / "shiftwork.db-wal").unlink()
    (state / "shiftwork.db-shm").unlink(missing_ok=True)
    refused(state, "lacks its newest 20 of 20 commits", "-wal")


def test_an_older_copy_in_the_file_s_place_is_refused_until_meant(state):
    old = folded(state).read_bytes()
    store = open_store(state)
    hand(store, "one more")
    note_clean_stop(store.db)
    (state / "shiftwork.db").write_bytes(old)
    refused(state, "lacks its newest 1 of 21 commits")
    new = state.parent / "new"
    new.mkdir()
    shutil.copyfile(state / "shiftwork.db", new / "shiftwork.db")
    assert prepare(new) == [], "alone in a new folder it is what it says"


@pytest.mark.parametrize("how", ["cut", "flipped"])
def test_a_log_damaged_anywhere_opens_as_an_earlier_whole_state(used, tmp_path, how):
    wal = (used / "shiftwork.db-wal").read_bytes()
    offsets = sorted(random.Random(7).sample(range(1, len(wal)), 200))
    found = set()
    for number, offset in enumerate(offsets):
        state = tmp_path / str(number)
        state.mkdir()
        for name in ("shiftwork.db", "store.lock"):
            shutil.copyfile(used / name, state / name)
        damaged = (
            wal[:offset] if how == "cut" else wal[:offset] + bytes([wal[offset] ^ 0xFF]) + wal[offset + 1 :]
        )
        (state / "shiftwork.db-wal").write_bytes(damaged)
        told = prepare(state)
        store = open_store(state)
        ids = [one["id"] for one in store.views.items(queue="q", state=None, limit=99, now=NOW)]
        with store.db.read() as conn:
            sequence = conn.execute("SELECT seq FROM commits").fetchone()[0]
            events = conn.execute("SELECT count(*) FROM events").fetchone()[0]
        assert (len(ids), events) == (sequence, sequence), "between two states"
        assert bool(told) == (sequence < 20), "lost commits are said"
        found.add(sequence)
        store.close()
        shutil.rmtree(state)
    assert len(found) > 5


def test_a_truncated_file_is_refused(state):
    path = folded(state)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    refused(state)


def test_zero_bytes_are_refused(state):
    folded(state).write_bytes(b"")
    refused(state, "empty")


def test_a_file_that_is_not_sqlite_is_refused(state):
    folded(state).write_bytes(b"dear diary, " * 500)
    refused(state, "not an SQLite file")


def test_another_program_s_database_is_refused(state):
    path = folded(state)
    conn = sqlite3.connect(path)
    conn.execute("PRAGMA application_id = 42")
    conn.close()
    refused(state, "another program", "state_dir")


def test_a_newer_schema_is_refused_with_both_versions(state):
    path = folded(state)
    conn = sqlite3.connect(path)
    conn.execute("PRAGMA user_version = 9")
    conn.close()
    refused(state, "newer Shiftwork (schema 9, this one knows 1)")
    with pytest.raises(StoreRefused, match="newer"):
        open_database(state)


def test_a_missing_table_is_refused_by_name(state):
    path = folded(state)
    conn = sqlite3.connect(path)
    conn.execute("DROP TABLE leases")
    conn.close()
    refused(state, "missing: leases")
    for read_only in (True, False):  # commands, too, look that far
        with pytest.raises(StoreRefused, match="missing: leases"):
            open_database(state, read_only=read_only)


def test_a_garbled_page_is_refused(state):
    path = folded(state)
    data = bytearray(path.read_bytes())
    conn = sqlite3.connect(path)
    page = conn.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'items'").fetchone()[0]
    conn.close()
    data[(page - 1) * 1024 : page * 1024] = bytes(range(256)) * 4
    path.write_bytes(data)
    refused(state, "damaged")


def test_a_hand_edited_state_that_breaks_its_machine_is_refused(state):
    path = folded(state)
    conn = sqlite3.connect(path)
    conn.execute("PRAGMA ignore_check_constraints = ON")
    conn.execute("UPDATE nodes SET state = 'sleeping' WHERE seq = 1")
    conn.commit()
    conn.close()
    refused(state, "CHECK constraint failed in nodes")


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE meta SET value = '{' WHERE key = 'store_id'",
        "DELETE FROM meta WHERE key = 'created_at'",
        "DELETE FROM _sqlite_migrations",
        "DELETE FROM commits",
    ],
)
def test_the_store_s_own_records_must_be_readable(state, edit):
    path = folded(state)
    conn = sqlite3.connect(path)
    conn.execute(edit)
    conn.commit()
    conn.close()
    refused(state)


def test_an_unreadable_row_of_one_item_is_no_damaged_store(state):
    path = folded(state)
    conn = sqlite3.connect(path)
    conn.execute("UPDATE items SET constraints = '[{' WHERE seq = 1")
    conn.commit()
    conn.close()
    assert prepare(state) == []


def test_the_check_is_skipped_only_when_nothing_changed_since_the_clean_stop(state):
    path = folded(state)
    conn = sqlite3.connect(path)
    conn.execute("PRAGMA ignore_check_constraints = ON")
    status = path.stat()
    conn.execute("UPDATE nodes SET state = 'sleeping' WHERE seq = 1")
    conn.commit()
    conn.close()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert prepare(state) == [], "same size and time: believed"
    os.utime(path)
    refused(state)


def test_a_failing_migration_changes_nothing(state, monkeypatch):
    folded(state)
    monkeypatch.setattr(opening, "KNOWN_VERSION", 2)
    (state / "clean.json").unlink()
    conn = sqlite3.connect(state / "shiftwork.db")
    conn.execute(
        "DELETE FROM _sqlite_migrations"
    )  # the first migration is run again and finds its tables there
    conn.commit()
    conn.close()
    before = (state / "shiftwork.db").read_bytes()
    with pytest.raises(StoreRefused, match="rolled back"):
        prepare(state)
    assert (state / "shiftwork.db").read_bytes() == before
    assert (state / "shiftwork.db.schema-1").exists(), "a copy is kept before anything is tried"


def test_a_folder_that_cannot_be_written_names_path_owner_and_user(tmp_path):
    for parent in (tmp_path, *tmp_path.parents):
        if parent == tmp_path or parent.name.startswith("pytest"):
            parent.chmod(0o755)
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    if os.geteuid() != 0:
        with pytest.raises(ConfigProblem, match=str(locked)):
            prepare(locked / "state")
        return
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(65534)
        os.setuid(65534)
        try:
            prepare(locked / "state")
        except ConfigProblem as error:
            os.write(writing, f"{error.exit_code} {error}".encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    said = os.read(reading, 4096).decode()
    os.close(reading)
    assert said.startswith("78 ")
    for word in (str(locked), "uid 0", "uid 65534"):
        assert word in said


def test_a_network_file_system_is_refused_unless_meant_and_then_has_no_log(tmp_path, monkeypatch):
    """FIELD 20"""
    monkeypatch.setattr(opening.mounts, "mount_of", lambda path: opening.mounts.Mount("/", "nfs4"))
    with pytest.raises(ConfigProblem, match="nfs4"):
        prepare(tmp_path / "state")
    prepare(tmp_path / "state", allow_network=True)
    conn = connect(tmp_path / "state" / "shiftwork.db")
    assert conn.execute("PRAGMA journal_mode").fetchone()[0] == "delete"


def test_a_database_replaced_under_a_running_process_is_noticed(state):
    """FIELD 22"""
    store = open_store(state)
    store.db.refuse_if_gone()
    shutil.copyfile(state / "shiftwork.db", state / "copy.db")
    (state / "copy.db").replace(state / "shiftwork.db")
    with pytest.raises(StoreGone, match="replaced or removed"):
        store.db.refuse_if_gone()


def test_a_thread_that_opens_a_database_that_was_moved_away_says_that_it_is_gone_and_not_that_the_disk_fails(
    state,
):
    """FIELD 22: a failing disk would be waited for."""
    store = open_store(state)
    told = []
    store.db.on_disk_trouble = told.append
    store.db.refuse_if_gone()
    (state / "shiftwork.db").rename(state / "moved.db")
    with ThreadPoolExecutor(1) as thread, pytest.raises(StoreGone, match="replaced or removed"):
        thread.submit(store.db.rows, "SELECT 1").result()
    assert told == []


def test_nothing_is_committed_to_a_database_that_was_unlinked(state):
    """FIELD 22: such a commit would succeed and go nowhere; a thread that comes later is not taken in either."""
    store = open_store(state)
    with store.db.write(point="intake"):
        pass
    shutil.copyfile(state / "shiftwork.db", state / "copy.db")
    (state / "shiftwork.db").unlink()
    refusals = []

    def commit():
        try:
            with store.db.write(point="intake"):
                refusals.append("written")
        except StoreGone as gone:
            refusals.append(str(gone))

    commit()
    (state / "copy.db").rename(state / "shiftwork.db")
    late = threading.Thread(target=commit)
    late.start()
    late.join()
    assert len(refusals) == 2
    assert all("nothing more is written" in words for words in refusals)
    store.close()


def test_the_gate_is_bounded_and_names_its_holder(tmp_path):
    from store.errors import StoreBusy
    from store.gate import holder

    script = (
        "import sys, time; from pathlib import Path; from store.gate import WriteGate\n"
        "with WriteGate(Path(sys.argv[1])).held(1): print('held', flush=True); time.sleep(30)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "held\n"
        assert holder(tmp_path / "lock") == child.pid
        gate = WriteGate(tmp_path / "lock")
        with pytest.raises(StoreBusy, match=str(child.pid)), gate.held(0.2):
            pass
    finally:
        child.kill()
        child.communicate()
    with gate.held(1):
        pass


def test_a_backup_is_whole_private_and_never_overwrites(state, tmp_path):
    """FIELD 24"""
    from store.backup import backup
    from store.errors import NameTaken

    store = open_store(state)
    store.checkpoints.commit(claim(store), answered(), now=NOW)
    target = tmp_path / "copy.db"
    backup(store.db, target)
    assert target.stat().st_mode & 0o777 == 0o600
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    shutil.copyfile(target, fresh / "shiftwork.db")
    assert prepare(fresh) == []
    assert len(open_store(fresh).views.items(queue="q", state="done", limit=9, now=NOW)) == 1
    with pytest.raises(NameTaken):
        backup(store.db, target)


def other_store(tmp_path, count):
    """Another store, its newest commits in a log as a kill -9 leaves it."""
    folder = tmp_path / "another" / "state"
    prepare(folder)
    script = (
        "import os, sys; from pathlib import Path\n"
        "from store.sqlite import open_store; from store.intake import Handed\n"
        "store = open_store(Path(sys.argv[1]))\n"
        "def hand(n): store.intake.hand_in([Handed('q', f'other {n}' * 50, 'cli')], now=1.0, caps={'q': 9999})\n"
        "for n in range(int(sys.argv[2])): hand(n)\n"
        "store.db.shrink_wal(); hand(-1); os.kill(os.getpid(), 9)\n"
    )
    assert (
        subprocess.run([sys.executable, "-c", script, str(folder), str(count)], check=False).returncode == -9
    )
    return folder


@pytest.mark.parametrize("count", [3])
def test_the_log_of_another_store_is_refused_and_never_folded_into_this_one(state, tmp_path, count):
    folded(state)
    alien = other_store(tmp_path, count)
    shutil.copy(alien / "shiftwork.db-wal", state / "shiftwork.db-wal")
    refused(state, "damaged")


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_folder_or_a_pipe_in_the_place_of_the_store_is_refused_at_once(state, make):
    folded(state).unlink()
    make(state / "shiftwork.db")
    with pytest.raises(StoreRefused, match="is not a file"):
        prepare(state)
    with pytest.raises(StoreRefused, match="is not a file"):
        open_database(state)


def test_a_missing_column_and_rows_without_their_item_are_damage(state):
    for damage, words in (
        ("DELETE FROM items WHERE seq = 1", "nodes has rows whose items are gone"),
        ("ALTER TABLE flags DROP COLUMN expires_at", "missing: flags.expires_at"),
    ):
        conn = sqlite3.connect(folded(state))
        conn.execute(damage)
        conn.commit()
        conn.close()
        with pytest.raises(StoreRefused, match=words):
            prepare(state)


def test_no_command_writes_to_a_store_whose_log_was_deleted(state):
    (state / "shiftwork.db-wal").unlink()
    (state / "shiftwork.db-shm").unlink()
    with pytest.raises(StoreRefused, match="lacks its newest 20 of 20 commits"):
        open_database(state)


def test_commits_that_were_lost_and_told_are_not_held_against_the_next_start(state):
    wal = state / "shiftwork.db-wal"
    wal.write_bytes(wal.read_bytes()[: wal.stat().st_size // 2])
    (state / "shiftwork.db-shm").unlink()
    assert any("are lost" in line for line in prepare(state))
    folded(state)
    assert prepare(state) == []
    assert open_database(state).connection().execute("PRAGMA user_version").fetchone()[0] == 1


def test_the_names_of_the_tables_are_those_of_the_schema():
    assert set(re.findall(r"CREATE (?:VIRTUAL )?TABLE (\w+)", ddl())) == TABLES
