"""Every line that says what to type next works when it is copied: program and configuration as they were called."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from cli_world import ROOT, Desk
from session_world import flag

from daemon import terminal
from daemon.cli import screen
from sessions import papers
from store.claims import Order


@pytest.fixture
def desk(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a folder").mkdir()
    desk = Desk(tmp_path / "a folder", capsys)
    yield desk
    desk.close()


def typed(line: str, cwd) -> subprocess.CompletedProcess[str]:
    """The line in a shell, in a folder that has nothing to do with it."""
    return subprocess.run(
        ["sh", "-c", line], cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_command_in_a_waiting_file_answers_the_flag_from_any_folder(desk, tmp_path):
    item, _ = desk.flagged(flag())
    world = desk.worlds[0]
    command = screen.command_anywhere(desk.config)
    papers.settle_and_mark(world.store, {"q": desk.folder / "out"}, now=world.now, command=command)
    text = (desk.folder / "out" / "way.waiting.md").read_text()
    [line] = [line.strip() for line in text.splitlines() if "--option 1" in line]
    done = typed(line, tmp_path)
    assert done.returncode == 0, done.stderr
    assert desk.json("show", item)["state"] == "queued"
    assert not (desk.folder / "out" / "way.waiting.md").exists()


def test_a_waiting_file_whose_mark_was_lost_goes_however_its_commands_were_worded(desk):
    item, asked = desk.flagged(flag())
    world = desk.worlds[0]
    papers.settle(
        world.store, {"q": desk.folder / "out"}, command=("/elsewhere/shiftwork", " --config /x.toml")
    )
    assert (desk.folder / "out" / "way.waiting.md").exists()
    assert desk.run("resolve", asked, "--option", "1") == 0
    assert not (desk.folder / "out" / "way.waiting.md").exists(), f"{item}: the mark was never written"


def test_a_waiting_file_is_known_again_however_its_commands_were_worded_before_the_crash(desk):
    _, asked = desk.flagged(flag())
    world, outboxes = desk.worlds[0], {"q": desk.folder / "out"}
    papers.settle(world.store, outboxes, command=("/elsewhere/shiftwork", " --config /x.toml"))
    papers.settle_and_mark(world.store, outboxes, now=world.now)
    assert desk.run("resolve", asked, "--option", "1") == 0
    assert not list((desk.folder / "out").iterdir())


@pytest.mark.parametrize(
    "words", [("show", "q-9999"), ("why", "q-9999"), ("retry", "q-9999"), ("show", "f-9999")]
)
def test_an_error_advises_a_line_that_can_be_copied(desk, tmp_path, words):
    desk.world()
    assert desk.run(*words) == 3
    advice = desk.err.strip().rpartition("  ")[2]
    assert f"--config {screen.quoted(desk.config)}" in advice
    assert typed(advice, tmp_path).returncode == 0


def test_a_second_daemon_is_told_how_to_look_and_to_end_the_first(desk, tmp_path):
    from daemon.lock import Lock

    desk.world()
    lock = Lock.acquire(desk.folder / "state", now=1.0)
    try:
        assert desk.run("run", "--once") == 4
        [look, end] = [line.partition(":  ")[2].strip() for line in desk.err.splitlines()[1:]]
        assert "running" in typed(look, tmp_path).stdout
        assert end.endswith(" stop")
    finally:
        lock.release()


def test_in_the_root_folder_paths_keep_their_slash(monkeypatch):
    monkeypatch.chdir("/")
    assert screen.quoted("/etc/shiftwork/config.toml") == "/etc/shiftwork/config.toml"
    assert terminal.path_words("/srv/out/a.md") == "/srv/out/a.md"


def test_a_current_folder_that_is_gone_costs_no_words(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert screen.quoted("/etc/x.toml") == terminal.path_words("/etc/x.toml") == "/etc/x.toml"
    assert screen.command("run", config="/etc/x.toml").endswith(" --config /etc/x.toml run")


def test_a_program_of_the_current_folder_is_not_looked_for_on_path(tmp_path, monkeypatch):
    program = tmp_path / "shiftwork"
    program.write_text("#!/bin/sh\necho here\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["./shiftwork"])
    assert typed(screen.command("status"), tmp_path).stdout == "here\n"
    monkeypatch.setattr(sys, "argv", ["pytest"])
    monkeypatch.setattr(sys, "executable", str(program))
    assert typed(screen.command("status"), tmp_path).stdout == "here\n"


def test_only_advice_is_reworded_and_nothing_that_came_from_outside():
    text = 'there is no item "shiftwork list"; see:  shiftwork list'
    assert screen.copyable(text).startswith('there is no item "shiftwork list"; see:  ')
    assert screen.copyable(text).endswith(" -m daemon list" if "pytest" not in sys.argv[0] else " list")


def test_a_stale_item_names_the_verb_that_decides_it_anew(desk):
    world = desk.world({"decision": "answer", "text": "old", "reason": "r"})
    item = world.hand("one", key="k")
    world.session()
    work = desk.folder / "work.md"
    work.write_text("two")
    assert desk.run("add", str(work), "--queue", "q", "--key", "k") == 0
    assert f"{item} is done; the new text is stored and its answer marked stale" in desk.out
    assert f"retry {item}" in desk.out
    assert desk.lines("show", item)[-1].endswith(f"retry {item}")


def test_status_never_says_that_a_session_runs_without_a_daemon(desk):
    world = desk.world()
    world.hand("one")
    world.store.claims.claim(
        Order(["q"], owner="1-1", daemon="1-1", trigger="x", lease_s=60.0, deadline_s=60.0), now=world.now
    )
    first = desk.lines("status")[0]
    assert "not running" in first
    assert "session runs" not in first
    assert "was cut off" in first
