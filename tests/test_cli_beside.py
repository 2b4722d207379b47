"""Real processes of the command line beside each other and beside readers that go away."""

from __future__ import annotations

import json

import pytest
from cli_world import Desk, spawn
from daemon_world import World as Daemon
from session_world import flag

from store.sqlite import open_for_reading


@pytest.fixture
def desk(tmp_path, capsys):
    desk = Desk(tmp_path, capsys)
    yield desk
    desk.close()


def test_twenty_processes_resolve_and_add_beside_each_other_without_an_error(desk):
    """FIELD 19."""
    world = desk.world(flag())
    for number in range(10):
        world.hand(f"which way {number}?", name=f"way-{number}")
        world.session()
    processes = []
    for number in range(10):
        (desk.folder / f"{number}.md").write_text(f"new question {number}")
        words = ["resolve", f"f-{number + 1:04d}", "--option", "2", "--by", f"person-{number}"]
        processes.append(spawn(desk.folder, *words))
        processes.append(spawn(desk.folder, "add", f"{number}.md", "--queue", "q", "--json"))
    said = [(process, *process.communicate(timeout=60)) for process in processes]
    for process, _, err in said:
        assert process.returncode == 0, err
        assert "rror" not in err
    added = [json.loads(out)["id"] for _, out, _ in said[1::2]]
    assert len(set(added)) == 10
    store = open_for_reading(desk.folder / "state")
    assert store.views.flags(now=0.0) == []
    answers = [store.views.flag(f"f-{number:04d}", now=0.0) for number in range(1, 11)]
    assert [one["resolved_by"] for one in answers] == [f"person-{number}" for number in range(10)]
    assert len(store.views.items(queue="q", state="queued", limit=100, now=0.0)) == 20
    store.close()


def test_twenty_processes_resolve_and_add_beside_a_busy_daemon_without_an_error(tmp_path):
    """FIELD 19: and what they did is worked on by the daemon at once."""
    daemon = Daemon(tmp_path)
    daemon.start()
    try:
        for number in range(10):
            daemon.drop(f"flag-{number}.md", f"flag me {number}")
        daemon.until(lambda: daemon.value("SELECT count(*) FROM flags WHERE state = 'waiting'") == 10)
        for number in range(60):
            daemon.drop(f"busy-{number}.md", f"answer {number}")
        processes = []
        for number in range(10):
            (tmp_path / f"{number}.md").write_text(f"new question {number}")
            words = [
                "resolve",
                f"f-{number + 1:04d}",
                "--answer",
                "so be it",
                "--final",
                "--by",
                f"person-{number}",
            ]
            processes.append(spawn(tmp_path, *words))
            processes.append(spawn(tmp_path, "add", f"{number}.md", "--json"))
        for process in processes:
            _, err = process.communicate(timeout=60)
            assert (process.returncode, err) == (0, "")
        daemon.until_done(80)
        assert daemon.value("SELECT count(*) FROM flags WHERE state = 'resolved'") == 10
        assert (
            daemon.value("SELECT count(*) FROM sessions WHERE outcome IN ('crashed', 'conflict', 'failed')")
            == 0
        )
        daemon.until(lambda: not list((tmp_path / "out-work").glob("*.waiting.md")))
        daemon.until(lambda: len(list((tmp_path / "out-work").glob("*.answer.md"))) == 80)
    finally:
        daemon.kill()


def test_of_ten_processes_that_answer_one_flag_one_wins_and_nine_hear_who(desk):
    """FIELD 44."""
    _, asked = desk.flagged(flag())
    processes = [
        spawn(desk.folder, "resolve", asked, "--option", "1", "--by", f"person-{number}")
        for number in range(10)
    ]
    said = [(process.communicate(timeout=60), process.returncode) for process in processes]
    winners = [out for (out, _), code in said if code == 0]
    assert len(winners) == 1
    by = winners[0].split(", by ")[1].partition(",")[0]
    for (out, err), code in said:
        if code:
            assert (code, out) == (5, "")
            assert err.startswith(f"already resolved by {by} at ")
            assert err.strip().endswith('as "1 left"')


@pytest.mark.parametrize(
    "words", [("list", "--limit", "100000"), ("log", "--limit", "100000"), ("show", "q-0001", "--json")]
)
def test_a_reader_that_goes_away_is_no_traceback(desk, words):
    world = desk.world()
    world.hand("x" * 300_000)
    for number in range(3000):
        world.hand(f"{number} " + "y" * 60)
    process = spawn(desk.folder, *words)
    process.stdout.read(10)
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=30) in (0, 1)
    assert "Traceback" not in err
    assert "Broken" not in err


def test_data_is_on_stdout_and_everything_else_on_stderr(desk):
    """FIELD 46."""
    desk.flagged(flag())
    done = spawn(desk.folder, "flags", "--json")
    out, err = done.communicate(timeout=30)
    assert json.loads(out)["count"] == 1
    assert err == ""
    done = spawn(desk.folder, "show", "f-0099", "--json")
    out, err = done.communicate(timeout=30)
    assert (done.returncode, out) == (3, "")
    assert "f-0099" in err


def test_a_full_stdout_is_an_error_not_a_silent_loss(desk):
    desk.flagged(flag())
    with open("/dev/full", "w") as full:
        process = spawn(desk.folder, "list", stdout=full)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "No space left" in err
