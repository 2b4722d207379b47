"""``shiftwork add`` and ``shiftwork inbox explain``, as a person or a program calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFIG = """
state_dir = "state"
[queues.questions]
inbox = "inbox"
outbox = "outbox"
decider = "local"
max_bytes = "1KiB"
max_waiting = 3
ignore = ["*.bak"]
[deciders.local]
kind = "extractive"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "shiftwork.toml").write_text(CONFIG)
    (tmp_path / "inbox").mkdir()
    return tmp_path


def shiftwork(folder: Path, *words: str, text: str | bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "daemon", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=text.encode() if isinstance(text, str) else text,
        capture_output=True,
        timeout=60,
        check=False,
    )


def added(folder: Path, *words: str, text: str | bytes = b"") -> dict:
    done = shiftwork(folder, "add", *words, "--json", text=text)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_add_works_with_the_daemon_down_and_creates_the_store(folder):
    done = shiftwork(folder, "add", "-", text="What is this?\n")
    assert done.returncode == 0, done.stderr.decode()
    out = done.stdout.decode()
    assert "q-0001 is queued" in out
    assert "show q-0001" in out
    assert "outbox/q-0001.answer.md" in out
    assert (folder / "state" / "shiftwork.db").exists()


def test_json_says_id_duplicate_and_state_and_nothing_else(folder):
    assert added(folder, "-", text="one") == {"id": "q-0001", "duplicate": False, "state": "queued"}
    assert added(folder, "-", text="one") == {"id": "q-0001", "duplicate": True, "state": "queued"}
    assert added(folder, "-", "--force", text="one") == {
        "id": "q-0002",
        "duplicate": False,
        "state": "queued",
    }


def test_a_file_gives_its_name_to_the_answer_and_options_go_before_front_matter(folder):
    (folder / "hello.md").write_text('+++\ntitle = "From the file"\npriority = 1\nkey = "k"\n+++\nBody\n')
    done = shiftwork(folder, "add", "hello.md", "--title", "From the line", "--priority", "7")
    assert b"outbox/hello.answer.md" in done.stdout
    import sqlite3

    conn = sqlite3.connect(folder / "state" / "shiftwork.db")
    assert conn.execute("SELECT title, priority, key, body, door FROM items").fetchall() == [
        ("From the line", 7, "k", "Body\n", "cli")
    ]
    conn.close()


def test_the_same_key_with_other_content_is_a_revision(folder):
    added(folder, "-", "--key", "k", text="one")
    done = shiftwork(folder, "add", "-", "--key", "k", text="two")
    assert b"q-0001 is revised" in done.stdout


@pytest.mark.parametrize("when", ["2h", "2999-01-01T00:00:00Z"])
def test_not_before_takes_a_time_or_a_while(folder, when):
    added(folder, "-", "--not-before", when, text="later")
    import sqlite3

    conn = sqlite3.connect(folder / "state" / "shiftwork.db")
    assert conn.execute("SELECT not_before_at > 0 FROM nodes").fetchone() == (1,)
    conn.close()


@pytest.mark.parametrize(
    ("words", "text", "code", "says"),
    [
        (["-"], b"\xff", 1, "position 0"),
        (["-"], b"", 1, "empty"),
        (["-"], b"x" * 1025, 1, "at most 1,024"),
        (["-", "--not-before", "soon"], b"x", 2, "--not-before"),
        (["-", "--not-before", "2026-03-29"], b"x", 2, "no zone"),
        (["-", "--key", " "], b"x", 2, "--key"),
        (["-", "--queue", "nope"], b"x", 3, "questions"),
        (["nowhere.md"], b"", 1, "nowhere.md"),
        (["-", "--priority", "high"], b"x", 2, "priority"),
        ([], b"", 2, "FILE"),
    ],
)
def test_what_cannot_be_added_says_why_and_stores_nothing(folder, words, text, code, says):
    done = shiftwork(folder, "add", *words, text=text)
    assert done.returncode == code, done.stderr
    assert says in done.stderr.decode()
    assert done.stdout == b""
    assert not (folder / "state").exists()


def test_a_full_queue_ends_with_75(folder):
    for number in range(3):
        added(folder, "-", text=f"q {number}")
    done = shiftwork(folder, "add", "-", text="one too many")
    assert done.returncode == 75
    assert "max_waiting" in done.stderr.decode()


def test_several_queues_want_to_be_named(folder):
    with (folder / "shiftwork.toml").open("a") as config:
        config.write('[queues.letters]\ndecider = "local"\n')
    done = shiftwork(folder, "add", "-", text="x")
    assert done.returncode == 2
    assert "--queue: letters, questions" in done.stderr.decode()
    assert added(folder, "-", "--queue", "letters", text="x")["id"] == "q-0001"


def test_add_imports_nothing_heavy(folder):
    code = (
        "import sys; from daemon.cli.main import main; main(['add', '-', '--json'])\n"
        "heavy = [name for name in ('pydantic', 'asyncio', 'sqlite_utils', 'watchfiles', 'apscheduler', 'httpx') "
        "if name in sys.modules]\n"
        "print(heavy, file=sys.stderr)"
    )
    added(folder, "-", text="first")  # the store is made by then
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=b"second",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stderr.decode().strip() == "[]"


def explained(folder: Path, name: str) -> str:
    done = shiftwork(folder, "inbox", "explain", f"inbox/{name}")
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_explain_names_the_rule_that_applies(folder):
    inbox = folder / "inbox"
    (inbox / "good.md").write_text("good")
    (inbox / "old.bak").write_text("x")
    (inbox / "x~").write_text("x")
    (inbox / "bad.md").write_bytes(b"\xff")
    (inbox / "big.md").write_bytes(b"x" * 2000)
    (inbox / "empty.md").touch()
    (inbox / "twice.json").write_text('{"body": "a", "body": "b"}')
    os.mkfifo(inbox / "pipe")
    os.symlink("/etc/passwd", inbox / "link.md")
    assert "to be taken at the next scan" in explained(folder, "good.md")
    assert '"*.bak"' in explained(folder, "old.bak")
    assert "an editor's backup copy" in explained(folder, "x~")
    assert "rule not-utf8" in explained(folder, "bad.md")
    assert "rule too-large" in explained(folder, "big.md")
    assert "empty" in explained(folder, "empty.md")
    assert "rule json-duplicate-key" in explained(folder, "twice.json")
    assert "rule fifo" in explained(folder, "pipe")
    assert "rule link" in explained(folder, "link.md")
    assert "not there" in explained(folder, "none.md")
    assert "archived" in explained(folder, "archive/a.md")
    with (inbox / "open.md").open("w") as out:
        out.write("x")
        out.flush()
        assert "open for writing" in explained(folder, "open.md")
    assert "lies in no inbox" in shiftwork(folder, "inbox", "explain", "/etc/passwd").stdout.decode()
    assert sorted(os.listdir(inbox)) == sorted(
        [
            "good.md",
            "old.bak",
            "x~",
            "bad.md",
            "big.md",
            "empty.md",
            "twice.json",
            "pipe",
            "link.md",
            "open.md",
        ]
    )


def test_explain_shows_the_reason_of_a_rejected_file(folder):
    rejected = folder / "inbox" / "rejected"
    rejected.mkdir()
    (rejected / "a.md").write_text("x")
    (rejected / "a.md.reason").write_text("Not taken: because\nRule: nul\n")
    assert "Rule: nul" in explained(folder, "rejected/a.md")
