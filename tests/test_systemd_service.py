"""The shipped units: right by systemd's own judgement, and run by a real manager (FIELD 31, 51-55)."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from daemon_world import World
from systemd_world import PROGRAM, UNITS, Manager, Service, manager_problem

EXPOSURE = 12  # tenths

pytestmark = pytest.mark.timeout(180)
needs_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here"
)
needs_manager = pytest.mark.skipif(bool(manager_problem()), reason=manager_problem())


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
@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda file: file.name)
def test_systemd_verifies_the_unit_without_a_word(unit, tmp_path):
    """FIELD 54: a misspelt key is a word on stderr and exit 0, so both are looked at."""
    program = tmp_path / "shiftwork"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(PROGRAM, str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


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


# ---------------------------------------------------------------- under a manager


@needs_manager
def test_it_is_ready_when_it_serves_and_says_how_things_stand(manager, world):
    """FIELD 51."""
    one = Service(manager, world, "ready")
    one.ctl("start")
    assert one.show("ActiveState") == "active"
    assert "Drop a file" in one.said()
    one.until(lambda: one.show("StatusText") == "nothing to do")
    world.add("flag")
    one.until(lambda: one.show("StatusText").startswith("1 waiting for a person (oldest "))
    one.ctl("stop")
    assert (one.show("Result"), one.show("ExecMainStatus")) == ("success", "0")
