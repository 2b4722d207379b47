"""The shipped units: right by systemd's own judgement, and run by a real manager (FIELD 31, 51-55)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest
from daemon_world import World
from systemd_world import CREDENTIALS, PROGRAM, SHIPPED, UNITS, Manager, Service, directives, manager_problem

EXPOSURE = 12  # tenths

pytestmark = pytest.mark.timeout(180)
needs_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here"
)
needs_manager = pytest.mark.skipif(bool(manager_problem()), reason=manager_problem())


UNIT_FILES = sorted(file for file in UNITS.iterdir() if file.suffix in {".service", ".timer"})


def verified(name, tmp_path, more=""):
    """The shipped units, with a program that is there, as ``systemd-analyze verify`` sees them."""
    program = tmp_path / "shiftwork"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for unit in UNIT_FILES:
        (tmp_path / unit.name).write_text(unit.read_text().replace(PROGRAM, str(program)))
    if more:
        (tmp_path / f"{name}.d").mkdir()
        (tmp_path / f"{name}.d" / "more.conf").write_text(more)
    return subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / name],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def manager():
    one = Manager()
    problem = one.wait()
    if problem:
        one.end()
        pytest.skip(problem)
    yield one
    one.end()


@pytest.fixture
def world(tmp_path):
    one = World(tmp_path)
    yield one
    one.kill()


# ---------------------------------------------------------------- the files


@needs_analyze
@pytest.mark.parametrize("name", [file.name for file in UNIT_FILES])
def test_systemd_verifies_the_unit_without_a_word(name, tmp_path):
    """FIELD 54: a misspelt key is a word on stderr and exit 0, so both are looked at."""
    done = verified(name, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_analyze
def test_a_misspelt_key_would_be_seen(tmp_path):
    done = verified("shiftwork.service", tmp_path, more="[Service]\nWatchdogSecs=3\n")
    assert "WatchdogSecs" in done.stderr


@needs_analyze
def test_the_drop_in_of_the_example_is_right_too(tmp_path):
    example = (UNITS / "examples" / "inbox-elsewhere.conf").read_text()
    done = verified("shiftwork.service", tmp_path, more=example)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_round_on_a_timer_lives_in_the_same_sandbox():
    same = [
        text[text.index("# ---- the sandbox") :].partition("[Install]")[0].strip()
        for text in (SHIPPED.read_text(), (UNITS / "shiftwork-drain.service").read_text())
    ]
    assert same[0] == same[1]


@needs_analyze
@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda file: file.name)
def test_the_unit_is_little_exposed(unit):
    """FIELD 54."""
    done = subprocess.run(
        ["systemd-analyze", "security", "--no-pager", "--offline=true", f"--threshold={EXPOSURE}", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make folders of another user")
@pytest.mark.skipif(
    not (shutil.which("systemd-sysusers") and shutil.which("systemd-tmpfiles")),
    reason="there is no systemd-sysusers or systemd-tmpfiles here",
)
def test_user_group_and_folders_are_made_as_the_unit_needs_them(tmp_path):
    """FIELD 53. In a root folder of the test's own: neither tool touches anything else."""
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    for tool, file in (("systemd-sysusers", "sysusers.d"), ("systemd-tmpfiles", "tmpfiles.d")):
        more = ["--create"] if tool == "systemd-tmpfiles" else []
        done = subprocess.run(
            [tool, f"--root={root}", *more, UNITS / file / "shiftwork.conf"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    user = next(
        line for line in (root / "etc/passwd").read_text().splitlines() if line.startswith("shiftwork:")
    )
    uid, gid = map(int, user.split(":")[2:4])
    assert user.endswith(":/var/lib/shiftwork:/usr/sbin/nologin")
    for name, mode, owner, group in (
        ("etc/shiftwork", 0o750, 0, gid),
        ("etc/shiftwork/credentials", 0o700, 0, 0),
        ("var/lib/shiftwork", 0o2770, uid, gid),
    ):
        status = (root / name).stat()
        assert (status.st_mode & 0o7777, status.st_uid, status.st_gid) == (mode, owner, group), name


# ---------------------------------------------------------------- under a manager

FAST = {"RestartSec": "100ms"}


@pytest.fixture
def service(manager, world, request):
    """The shipped unit for ``world``, not started; ended at the end."""
    made = []

    def make(**settings: str) -> Service:
        made.append(Service(manager, world, f"t{len(request.node.name)}-{id(world):x}", **FAST | settings))
        return made[0]

    yield make
    for one in made:
        one.ctl("stop", check=False)


def is_active(one: Service) -> bool:
    return one.show("ActiveState") == "active"


@needs_manager
def test_it_is_ready_when_it_serves_and_says_how_things_stand(service, world):
    """FIELD 51."""
    one = service()
    one.ctl("start")
    assert is_active(one)
    assert "Drop a file" in one.said()
    one.until(lambda: one.show("StatusText") == "nothing to do")
    world.add("flag")
    one.until(lambda: one.show("StatusText").startswith("1 waiting for a person (oldest "))
    one.ctl("stop")
    assert (one.show("Result"), one.show("ExecMainStatus")) == ("success", "0")


@needs_manager
def test_a_reload_ends_also_when_the_new_configuration_is_refused_and_the_status_says_so(service, world):
    """FIELD 51."""
    one = service()
    one.ctl("start")
    good = world.config.read_text()
    world.config.write_text(good + "[nonsense]\n")
    one.ctl("reload")
    one.until(lambda: "refused, the old one stays in force" in one.show("StatusText"))
    assert is_active(one)
    world.add("answer")
    world.until_done(1)
    world.config.write_text(good)
    one.ctl("reload")
    one.until(lambda: one.show("StatusText") == "nothing to do")
    assert "it is in force" in one.said()
    assert (is_active(one), one.restarts()) == (True, 0)


@needs_manager
def test_the_watchdog_spares_a_long_session_and_ends_a_stuck_daemon(service, world):
    """FIELD 52: the session lasts longer than the watchdog waits; then the daemon itself stands still."""
    one = service(WatchdogSec="5s")
    one.ctl("start")
    world.add("sleep 7")
    world.until_done(1)
    assert one.restarts() == 0
    one.kill("SIGSTOP")
    one.until(lambda: one.restarts() == 1 and is_active(one))
    assert "Fatal Python error: Aborted" in one.said()  # where each thread was
    world.add("answer")
    world.until_done(2)


@needs_manager
def test_after_a_kill_it_is_started_again_and_what_was_under_way_is_done_once(service, world):
    one = service()
    one.ctl("start")
    for n in range(3):
        world.add(f"sleep 1 number {n}")
    one.until(world.calls)
    one.kill("SIGKILL")
    world.until_done(3)
    assert one.restarts() == 1
    results = world.rows(
        "SELECT body, count(*) FROM items JOIN papers ON papers.item_id = items.id GROUP BY body"
    )
    assert sorted(tuple(row) for row in results) == [(f"sleep 1 number {n}", 1) for n in range(3)]
    assert world.value("SELECT count(*) FROM sessions WHERE outcome = 'answered'") == 3


@needs_manager
def test_a_stop_with_a_running_session_ends_in_time_and_gives_its_claim_back(service, world):
    """FIELD 31."""
    world.write_config(daemon='grace = "1s"')
    one = service()
    one.ctl("start")
    world.add("sleep 300")
    one.until(world.calls)
    one.ctl("stop")
    assert (one.show("Result"), one.show("ExecMainStatus"), one.show("ActiveState")) == (
        "success",
        "0",
        "inactive",
    )
    assert world.value("SELECT count(*) FROM leases") == 0
    assert world.rows("SELECT state, crashes FROM nodes") == [("pending", 0)]
    left = one.manager.run("sh", "-c", "pgrep -f [d]ecider.py || true").stdout
    assert left == ""


@needs_manager
@pytest.mark.parametrize(("code", "hurt"), [(78, "config"), (70, "store")])
def test_what_waits_for_a_person_is_not_started_again(service, world, code, hurt):
    """FIELD 53."""
    one = service()
    if hurt == "config":
        world.config.write_text("[nonsense]\n")
    else:
        world.state.mkdir()
        (world.state / "shiftwork.db").write_text("this is no store" * 100)
    assert one.ctl("start", check=False).returncode != 0
    assert (one.show("ActiveState"), one.show("ExecMainStatus")) == ("failed", str(code))
    assert one.restarts() == 0


@needs_manager
def test_a_credential_is_handed_over_and_children_hear_nothing_of_the_manager(service, world):
    """FIELD 53, 50. A folder without secrets is no reason not to start."""
    (world.folder / "decider.py").write_text(
        "import json, os, sys\n"
        "open('seen.json', 'w').write(json.dumps([dict(os.environ), open(f'/proc/{os.getppid()}/environ').read()]))\n"
        "print(json.dumps({'decision': 'answer', 'reason': 'r', 'text': 't', 'citations': []}))\n"
    )
    one = service()
    one.ctl("start")
    world.add("answer")
    world.until_done(1)
    own, parents = json.loads((world.folder / "seen.json").read_text())
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        assert name not in own
        assert name not in parents
    assert not [name for name in own if "CREDENTIALS" in name]

    world.write_config(extra='[notify]\nheartbeat_url_file = "credential:beat.url"\n')
    one.ctl("reload")
    one.until(lambda: "was not handed over by the service manager" in one.said())
    (one.credentials / "beat.url").write_text("http://127.0.0.1:9/beat")
    one.ctl("restart")
    assert is_active(one)
    one.until(lambda: one.show("StatusText") == "nothing to do")


@needs_manager
def test_a_round_on_a_timer_does_what_is_ready_and_keeps_away_from_a_daemon(manager, world):
    one = Service(manager, world, "drain", shipped=UNITS / "shiftwork-drain.service")
    world.add("answer")
    one.ctl("start")  # returns when the round is over, and fails when that failed
    assert world.states() == {"answer": "done"}
    world.start()
    one.ctl("start")
    assert "is already running on" in one.said()
    assert world.process.poll() is None


def test_the_unit_that_is_tested_differs_from_the_shipped_one_in_places_alone():
    """What the tests above rest on, as it stands in the file."""
    shipped = directives(SHIPPED.read_text())
    keys = [key for _, key, _ in shipped]
    assert {key for key in keys if keys.count(key) > 1} == {"SystemCallFilter"}
    assert ("Service", "LoadCredential", f"shiftwork:{CREDENTIALS}") in shipped
    assert ("Service", "KillMode", "mixed") in shipped
    assert ("Service", "RestartPreventExitStatus", "70 78") in shipped
