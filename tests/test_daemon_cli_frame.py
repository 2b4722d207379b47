from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from daemon.cli import screen
from daemon.cli.verbs import VERBS
from daemon.platform import unfit
from store import moments

ROOT = Path(__file__).parent.parent
HEAVY = ("pydantic", "dataclasses", "asyncio", "logging", "sqlite_utils", "httpx", "apprise", "numpy")
READING = {"version", "status", "flags", "list", "alerts", "doctor"}


def shiftwork(*words, cwd=None, env=None, **more):
    environment = {k: v for k, v in os.environ.items() if k != "SHIFTWORK_CONFIG"} | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-P", "-m", "daemon", *words],
        cwd=cwd,
        env=environment | (env or {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **more,
    )


# --- the frame ---------------------------------------------------------------------------------------------------


def test_alone_it_says_what_there_is_and_where_to_begin(tmp_path):
    done = shiftwork(cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    for verb, (_, purpose) in VERBS.items():
        assert f"  {verb}" in done.stdout
        assert purpose in done.stdout
    assert "init demo" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if "-m daemon" not in line)


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_is_the_same_screen(words, tmp_path):
    assert shiftwork(*words, cwd=tmp_path).stdout == shiftwork(cwd=tmp_path).stdout


@pytest.mark.parametrize("verb", list(VERBS))
def test_each_verb_explains_itself(verb, tmp_path):
    done = shiftwork(*verb.split(), "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: shiftwork {verb}")
    assert shiftwork("help", *verb.split(), cwd=tmp_path).stdout == done.stdout


@pytest.mark.parametrize("verb", list(VERBS))
def test_each_verb_refuses_an_option_it_does_not_have(verb, tmp_path):
    """FIELD 46, 47: usage errors are 2, on stderr, with nothing on stdout."""
    done = shiftwork(*verb.split(), "--no-such-option", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--help" in done.stderr


def test_a_misspelt_verb_gets_the_nearest_one(tmp_path):
    done = shiftwork("chekc-config", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == 'there is no verb "chekc-config"; did you mean "check-config"?'


def test_a_hostile_verb_is_shown_escaped(tmp_path):
    done = shiftwork("\x1b[31mx\n", cwd=tmp_path)
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
    assert "\\x1b[31mx\\n" in done.stderr


def test_options_are_never_guessed_from_their_beginning(tmp_path):
    assert shiftwork("version", "--js", cwd=tmp_path).returncode == 2


def test_the_version_is_that_of_the_package(tmp_path):
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert json.loads(shiftwork("version", "--json", cwd=tmp_path).stdout)["shiftwork"] == project["version"]
    assert shiftwork("--version", cwd=tmp_path).stdout == shiftwork("version", cwd=tmp_path).stdout


def test_the_configuration_may_be_named_before_or_after_the_verb(tmp_path):
    (tmp_path / "a.toml").write_text("x = 1\n")
    for words in (
        ["--config", "a.toml", "check-config"],
        ["--config=a.toml", "check-config"],
        ["check-config", "--config", "a.toml"],
    ):
        done = shiftwork(*words, cwd=tmp_path)
        assert done.returncode == 78
        assert "a.toml:1  x = 1" in done.stdout
    assert shiftwork("--config", cwd=tmp_path).returncode == 2


def test_without_a_configuration_the_places_are_listed_and_init_is_named(tmp_path):
    done = shiftwork("check-config", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (78, "")
    assert "./shiftwork.toml" in done.stderr
    assert "/etc/shiftwork/config.toml" in done.stderr
    assert f"{sys.executable} -m daemon init" in done.stderr, "as it was called"


def test_a_reader_that_goes_away_is_no_traceback(tmp_path):
    """`shiftwork … | head` ends quietly."""
    command = f"{shlex.quote(sys.executable)} -P -m daemon check-config --show"
    shiftwork("init", cwd=tmp_path)
    done = subprocess.run(
        ["sh", "-c", f"{{ {command}; echo code $? >&2; }} | true"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.stderr.strip() in ("code 1", "code 0")  # 0 when all was written before `true` went away


def test_a_full_disk_behind_stdout_is_an_error_and_no_traceback(tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "daemon", "version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "No space left on device\n")


def test_a_closed_stdout_or_stderr_is_no_traceback(tmp_path):
    for closing in (">&-", "2>&-", ">&- 2>&-"):
        command = f"{shlex.quote(sys.executable)} -P -m daemon version {closing}"
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, env=env, timeout=60, check=False
        )
        assert "Traceback" not in done.stderr


def test_ctrl_c_ends_a_verb_without_a_traceback(tmp_path):
    os.mkfifo(tmp_path / "shiftwork.toml")  # nobody writes: the verb waits
    waiting = subprocess.Popen(
        [sys.executable, "-P", "-m", "daemon", "check-config"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_for_open_call(waiting.pid)
    waiting.send_signal(signal.SIGINT)
    assert waiting.communicate(timeout=30) == (b"", b"")
    assert waiting.returncode == 130


def wait_for_open_call(pid: int) -> None:
    """Until the process sleeps in the kernel's FIFO code."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if Path(f"/proc/{pid}/wchan").read_text() in ("fifo_open", "wait_for_partner"):
            return
        time.sleep(0.02)
    raise AssertionError("it never waited")


def test_a_terminal_without_the_character_shows_its_escape(tmp_path):
    done = shiftwork("chekc-cönfig", cwd=tmp_path, env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 2
    assert "ch" in done.stderr
    assert "Traceback" not in done.stderr


# --- quick ---------------------------------------------------------------------------------------------------------


def loaded_by(code: str, folder: Path) -> set[str]:
    """The modules that `code` brought in."""
    script = textwrap.dedent(code) + "\nimport sys\nopen(sys.argv[1], 'w').write(' '.join(sys.modules))"
    subprocess.run(
        [sys.executable, "-P", "-c", script, str(folder / "modules")],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set((folder / "modules").read_text().split())


@pytest.mark.parametrize("verb", sorted(READING & set(VERBS)))
def test_a_reading_verb_imports_nothing_heavy(verb, tmp_path):
    shiftwork("init", cwd=tmp_path)
    code = f"import os; from daemon.cli.main import main; os.chdir({str(tmp_path)!r}); main({verb.split()!r})"
    assert not loaded_by(code, tmp_path) & set(HEAVY)


def test_the_frame_itself_imports_nothing_heavy(tmp_path):
    code = "import daemon.cli.main, daemon.cli.light, daemon.cli.screen, daemon.cli.verbs"
    assert not loaded_by(code, tmp_path) & set(HEAVY)


@pytest.mark.alone
def test_a_light_verb_starts_within_three_times_an_import_of_sqlite3():
    """Measured as the best of several, alternating, so that neighbours on the machine cost both alike."""
    env = os.environ | {"PYTHONPATH": str(ROOT)}

    def seconds(*arguments: str) -> float:
        begun = time.perf_counter()
        subprocess.run([sys.executable, *arguments], env=env, capture_output=True, check=True)
        return time.perf_counter() - begun

    pairs = [(seconds("-c", "import sqlite3"), seconds("-P", "-m", "daemon", "version")) for _ in range(9)]
    assert min(pair[1] for pair in pairs) <= 3 * min(pair[0] for pair in pairs)


# --- platform ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("platform", "release", "fits"),
    [
        ("linux", "5.13.0", True),
        ("linux", "6.1.0-18-amd64", True),
        ("linux", "5.15.153.1-microsoft-standard-WSL2", True),
        ("linux", "10.0", True),
        ("linux", "custom", True),
        ("linux", "5.12.19", False),
        ("linux", "4.19.0", False),
        ("darwin", "23.1.0", False),
        ("win32", "", False),
    ],
)
def test_it_runs_on_linux_from_5_13_on_and_says_so_elsewhere(platform, release, fits):
    problem = unfit(platform, release)
    assert (problem is None) == fits
    assert problem is None or "\n" not in problem


# --- screen --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0.9, "0s"),
        (40, "40s"),
        (1200, "20m"),
        (10800, "3h"),
        (11400, "3h 10m"),
        (187200, "2d 4h"),
        (40 * 86400 + 7200, "40d"),
    ],
)
def test_ages_are_short(seconds, text):
    assert moments.age(seconds) == text


def test_times_for_programs_are_utc():
    assert moments.iso(0.9) == "1970-01-01T00:00:00Z"


def test_a_printed_command_can_be_copied(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHIFTWORK_CONFIG", raising=False)
    tool = tmp_path / "odd folder" / "shiftwork"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(tool)])
    assert screen.command("flags") == "'odd folder/shiftwork' flags"
    monkeypatch.setenv("PATH", f"{tool.parent}:/bin")
    assert screen.command("flags") == "shiftwork flags"
    config = tmp_path / "demo" / "shiftwork.toml"
    config.parent.mkdir()
    config.touch()
    assert screen.command("flags", config=config) == "shiftwork --config demo/shiftwork.toml flags"
    monkeypatch.chdir(config.parent)
    assert screen.command("flags", config=config) == "shiftwork flags"
    monkeypatch.setattr(sys, "argv", ["/x/daemon/__main__.py"])
    assert screen.command("flags").endswith("-m daemon flags")


# --- init ----------------------------------------------------------------------------------------------------------


def test_init_writes_a_quickstart_that_check_config_finds_good(tmp_path):
    done = shiftwork("init", "demo", cwd=tmp_path)
    assert done.returncode == 0
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == [
        "docs",
        "inbox",
        "outbox",
        "shiftwork.toml",
    ]
    checked = shiftwork("check-config", "--json", cwd=tmp_path / "demo")
    result = json.loads(checked.stdout)
    assert (checked.returncode, result["errors"], result["warnings"]) == (0, [], [])
    assert result["queues"]["questions"]["kind"] == "extractive"
    assert result["queues"]["questions"]["sources"] == len(list((ROOT / "docs").rglob("*.md")))


def test_the_lines_that_init_prints_can_be_copied_as_they_are(tmp_path):
    done = shiftwork("init", "my demo", cwd=tmp_path)
    lines = [line.strip() for line in done.stdout.splitlines() if line.startswith("  ")]
    run, echo, cat = lines
    assert run.endswith("-m daemon --config 'my demo/shiftwork.toml' run")
    assert subprocess.run(["sh", "-c", echo], cwd=tmp_path, check=False).returncode == 0
    assert (tmp_path / "my demo" / "inbox" / "hello.md").read_text() == "How do I resolve a flagged item?\n"
    assert cat == "cat 'my demo/outbox/hello.answer.md'"


def test_init_here_needs_no_configuration_named(tmp_path):
    done = shiftwork("init", cwd=tmp_path)
    assert "Wrote a quickstart here" in done.stdout
    assert "--config" not in done.stdout


@pytest.mark.parametrize("name", ["inbox", "outbox", "docs", "shiftwork.toml"])
def test_init_never_overwrites(tmp_path, name):
    (tmp_path / name).write_text("mine")
    before = sorted(tmp_path.iterdir())
    done = shiftwork("init", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr == f"{name} exists already. Nothing was written.\n"
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / name).read_text() == "mine"


def test_init_twice_changes_nothing_and_names_all_that_exists(tmp_path):
    shiftwork("init", "d", cwd=tmp_path)
    done = shiftwork("init", "d", cwd=tmp_path)
    assert done.returncode == 5
    assert done.stderr == "d/inbox, d/outbox, d/docs, d/shiftwork.toml exist already. Nothing was written.\n"


def test_init_beside_other_files_leaves_them_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert shiftwork("init", cwd=tmp_path).returncode == 0
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_init_where_a_file_is_says_so(tmp_path):
    (tmp_path / "d").write_text("")
    done = shiftwork("init", "d", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (5, "d exists and is not a folder. Nothing was written.\n")
    done = shiftwork("init", "d/e", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_a_failed_init_leaves_nothing_behind(tmp_path):
    def no_file_over_100_bytes():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    done = shiftwork("init", "new/demo", cwd=tmp_path, preexec_fn=no_file_over_100_bytes)
    assert done.returncode == 1
    assert done.stderr.endswith("File too large\n")
    assert list(tmp_path.iterdir()) == []


# --- check-config --------------------------------------------------------------------------------------------------

CONFIG = """\
[queues.q]
inbox = "in"
outbox = "out"
decider = "d"
[deciders.d]
kind = "extractive"
"""


def test_check_config_prints_all_errors_and_exits_78(tmp_path):
    (tmp_path / "shiftwork.toml").write_text(CONFIG.replace("decider =", "decidr =").replace('"in"', "1"))
    done = shiftwork("check-config", cwd=tmp_path)
    assert done.returncode == 78
    assert done.stdout.splitlines() == [
        "shiftwork.toml:2  queues.q.inbox = 1    must be a path in quotes",
        'shiftwork.toml:4  queues.q.decidr = "d"    unknown key; did you mean "decider"?',
        "2 errors. Nothing was changed.",
    ]
    result = json.loads(shiftwork("check-config", "--json", cwd=tmp_path).stdout)
    assert result["ok"] is False
    assert result["errors"][0] == {
        "line": 2,
        "key": "queues.q.inbox",
        "value": "1",
        "rule": "must be a path in quotes",
    }


def test_check_config_says_what_a_good_file_comes_to_and_warns_on_stderr(tmp_path):
    (tmp_path / "shiftwork.toml").write_text(CONFIG)
    done = shiftwork("check-config", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "shiftwork.toml is good, 1 warning · state state",
        "q  inbox in  outbox out  decider d (extractive)  0 sources",
        "services  none: nobody is paged",
    ]
    assert done.stderr == (
        "shiftwork.toml:1  queues.q    no sources, so every item will be flagged: extractive quotes sources"
        "  (warning)\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shiftwork.toml"]


def test_the_next_three_times_of_each_timer_are_told(tmp_path):
    """FIELD 49."""
    (tmp_path / "shiftwork.toml").write_text(
        CONFIG + '[triggers.nightly]\nkind = "timer"\ncron = "0 2 * * 0"\ntimezone = "UTC"\nqueues = ["q"]\n'
    )
    timers = json.loads(shiftwork("check-config", "--json", cwd=tmp_path).stdout)["timers"]
    assert len(timers["nightly"]) == 3
    for text in timers["nightly"]:
        at = time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")
        assert (at.tm_wday, at.tm_hour, at.tm_min) == (6, 2, 0)  # 0 is Sunday, whatever the library says
    lines = shiftwork("check-config", cwd=tmp_path).stdout.splitlines()
    assert any(line.startswith("timer nightly  next 20") and line.count(",") == 2 for line in lines)


def test_services_are_counted_as_apprise_really_makes_them(tmp_path):
    """FIELD 49; ALERTS: a bad line is silent in Apprise, so what loads is counted."""
    for name, url in (("good", "json://localhost:9/hush\n"), ("bad", "nonsense://hush\n")):
        (tmp_path / name).write_text(url)
        (tmp_path / name).chmod(0o600)
    services = '[{ url_file = "good", tags = ["page"] }, { url_file = "bad", tags = ["page", "ticket"] }]'
    (tmp_path / "shiftwork.toml").write_text(f"{CONFIG}[notify]\nservices = {services}\n")
    done = shiftwork("check-config", cwd=tmp_path)
    assert done.returncode == 0
    assert "services  page 1, ticket 0" in done.stdout
    assert "shiftwork.toml:8  notify.services[1]    reaches nobody: " in done.stderr
    assert "hush" not in done.stdout + done.stderr


def test_show_prints_what_is_in_force_as_a_file_that_loads_with_secrets_masked(tmp_path):
    """FIELD 50."""
    (tmp_path / "shiftwork.toml").write_text(
        CONFIG + '[deciders.c]\nkind = "command"\nargv = ["sh", "--token=hush", "https://me:hush@host/"]\n'
        '[deciders.o]\nkind = "openai"\nbase_url = "http://h/"\nmodel = "m"\nextra = { password = "hush" }\n'
        '[triggers.t]\nkind = "timer"\nevery = "90s"\nqueues = ["q"]\nitem = { body = "b" }\n'
    )
    for words in (["--show"], ["--show", "--json"]):
        done = shiftwork("check-config", *words, cwd=tmp_path)
        assert done.returncode == 0
        assert "hush" not in done.stdout
        assert "***" in done.stdout
    shown = shiftwork("check-config", "--show", cwd=tmp_path).stdout
    again = tmp_path / "again"
    again.mkdir()
    (again / "shiftwork.toml").write_text(shown)
    once_more = shiftwork("check-config", "--show", cwd=again).stdout
    assert once_more.splitlines()[1:] == shown.splitlines()[1:]
    assert 'every = "90s"' in shown


def test_check_config_is_at_home_without_the_daemon_and_creates_nothing(tmp_path):
    shiftwork("init", cwd=tmp_path)
    before = sorted(path for path in tmp_path.rglob("*"))
    assert shiftwork("check-config", cwd=tmp_path).returncode == 0
    assert sorted(path for path in tmp_path.rglob("*")) == before
