"""The command decider: any program, and nothing it does harms the session (FIELD 25, 27)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from sessions.decider import DeciderFailure
from sessions.deciders.command import CommandDecider

REPLY = '{"decision": "answer", "reason": "r", "text": "t"}'


def command(tmp_path, code, *, timeout_s=20.0, max_output=1 << 20):
    program = tmp_path / "decide.py"
    program.write_text(f"import json, os, subprocess, sys, time\n{code}\n")
    return CommandDecider(
        (sys.executable, str(program)), timeout_s=timeout_s, max_output=max_output, folder=str(tmp_path)
    )


def gone(pid):
    for _ in range(100):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_it_gets_the_request_on_stdin_and_gives_its_stdout(tmp_path):
    decider = command(tmp_path, 'r = json.load(sys.stdin); print(json.dumps({"got": r}))')
    got = json.loads(
        decider.decide({"schema": "shiftwork.request/1", "item": {"id": "q-1"}}, timeout_s=9).text
    )["got"]
    assert got == {"schema": "shiftwork.request/1", "item": {"id": "q-1"}, "deadline_s": 9}


def test_a_program_that_reads_nothing_may_still_decide(tmp_path):
    decider = command(tmp_path, f"print('''{REPLY}''')")
    assert json.loads(decider.decide({"body": "x" * 5_000_000}, timeout_s=20).text)["text"] == "t"


def test_a_large_request_and_a_large_reply_do_not_block_each_other(tmp_path):
    decider = command(tmp_path, "data = sys.stdin.read(); sys.stdout.write(data)", max_output=9 << 20)
    assert len(decider.decide({"body": "y" * 4_000_000}, timeout_s=30).text) > 4_000_000


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("sys.exit(3)", "exit code 3"),
        ("sys.stderr.write('no quota'); sys.exit(1)", "no quota"),
        ("os.kill(os.getpid(), 9)", "signal 9"),
        ("time.sleep(60)", "took over 0.5 s"),
        ("sys.stdout.close(); os.close(1); time.sleep(60)", "took over 0.5 s"),
    ],
)
def test_no_reply_is_a_decider_failure_that_says_how(tmp_path, code, words):
    started = time.monotonic()
    with pytest.raises(DeciderFailure, match=words):
        command(tmp_path, code).decide({}, timeout_s=0.5 if "took" in words else 20)
    assert time.monotonic() - started < 15


def test_a_program_that_is_not_there_is_named(tmp_path):
    decider = CommandDecider(("./nowhere",), timeout_s=1, max_output=100, folder=str(tmp_path))
    with pytest.raises(DeciderFailure, match=r"\./nowhere cannot be started") as told:
        decider.decide({}, timeout_s=1)
    assert told.value.away, "it is missing for every item: none is to blame"


def test_endless_output_is_cut_and_the_program_ended(tmp_path):
    with pytest.raises(DeciderFailure, match="over 10000 bytes"):
        command(tmp_path, "while True: print('x' * 100)", max_output=10_000).decide({}, timeout_s=20)


def test_nothing_the_program_started_outlives_the_call(tmp_path):
    """FIELD 27: also what detached itself."""
    code = (
        "child = subprocess.Popen([sys.executable, '-c', 'import os, time; os.setsid(); time.sleep(99)'],"
        " stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "print(json.dumps({'pid': child.pid}))"
    )
    pid = json.loads(command(tmp_path, code).decide({}, timeout_s=20).text)["pid"]
    assert gone(pid)


def test_a_program_dies_with_its_worker_however_that_dies(tmp_path):
    code = (
        "import sys; from sessions.deciders.command import CommandDecider\n"
        'program = \'import os, time; open("pid", "w").write(str(os.getpid())); time.sleep(99)\'\n'
        "argv = (sys.executable, '-c', program)\n"
        "CommandDecider(argv, timeout_s=99, max_output=99, folder=sys.argv[1]).decide({}, timeout_s=99)\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    note = tmp_path / "pid"
    while not (note.exists() and note.read_text()):
        assert worker.poll() is None
        time.sleep(0.02)
    worker.kill()
    worker.wait()
    assert gone(int(note.read_text()))


def test_it_sees_no_secret_of_the_daemon_s_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SHIFTWORK_SECRET_KEY", "hush")
    decider = command(tmp_path, "print(json.dumps(dict(os.environ)))")
    environment = json.loads(decider.decide({}, timeout_s=20).text)
    assert "SHIFTWORK_SECRET_KEY" not in environment
    assert environment["PATH"] == os.environ["PATH"]


def test_hostile_text_is_data_and_never_shell(tmp_path):
    """FIELD 11"""
    decider = command(tmp_path, "print(json.dumps(json.load(sys.stdin)['title']))")
    title = "$(touch pwned); `id`\n-rf \x00 \ud800 😀"
    assert json.loads(decider.decide({"title": title}, timeout_s=20).text).startswith("$(touch pwned)")
    assert not (tmp_path / "pwned").exists()


def test_a_program_that_leaves_a_daemon_with_its_outputs_behind_has_answered_when_it_ends(tmp_path):
    code = f"""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("left.pid", "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
while not os.path.exists("left.pid") or not open("left.pid").read():
    time.sleep(0.01)
print('''{REPLY}''')"""
    started = time.monotonic()
    assert json.loads(command(tmp_path, code).decide({}, timeout_s=20).text)["text"] == "t"
    assert time.monotonic() - started < 10
    assert gone(int((tmp_path / "left.pid").read_text()))


def test_a_reply_that_is_not_utf8_is_refused_not_mended(tmp_path):
    code = """sys.stdout.buffer.write(b'{"text": "\\xff"}')"""
    with pytest.raises(DeciderFailure, match=r"not UTF-8 \(byte 10\)"):
        command(tmp_path, code).decide({}, timeout_s=20)
