"""A daemon of one user, operators of its group: the state folder is shared as the unit shares it (FIELD 53)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from daemon_world import ENVIRONMENT, ROOT, World

DAEMON, OPERATOR, STRANGER, GROUP = 64001, 64002, 64003, 64000
OPERATORS_UMASK = 0o022


def python_for_others() -> tuple[str, str] | None:
    """A Python that any user may run, and the path of our packages for it; None where there is none."""
    packages = sysconfig.get_paths()["purelib"]
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    for one in (sys.executable, f"/usr/bin/python{ours}", f"/usr/local/bin/python{ours}"):
        with suppress(OSError):  # not there, or not for others
            done = subprocess.run(
                [one, "-c", "import pydantic, sqlite_utils"],
                user=STRANGER, group=STRANGER, extra_groups=[], cwd="/", capture_output=True, check=False,
                env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{packages}"},
            )  # fmt: skip
            if done.returncode == 0:
                return one, f"{ROOT}:{packages}"
    return None


class Shared(World):
    """A world whose daemon and commands run as different users."""

    def __init__(self, folder: Path, python: str, path: str) -> None:
        super().__init__(folder, daemon='grace = "1s"')
        self.python, self.environment = python, ENVIRONMENT | {"PYTHONPATH": path, "HOME": str(folder)}
        self.config.write_text(self.config.read_text().replace(sys.executable, python))
        self.state.mkdir()
        for place in (self.folder, self.state, self.folder / "in-work", self.folder / "out-work"):
            os.chown(place, DAEMON, GROUP)
            place.chmod(0o2770)
        folder.chmod(0o2775)

    def start_daemon(self) -> None:
        with (self.folder / "daemon.log").open("a") as log:
            self.process = subprocess.Popen(
                [self.python, "-P", "-m", "daemon", "run"], cwd=self.folder, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                user=DAEMON, group=GROUP, extra_groups=[], umask=0o007,
            )  # fmt: skip
        self.until(lambda: "Drop a file" in self.said())

    def said(self) -> str:
        return (self.folder / "daemon.log").read_text()

    def by(self, user: int, *words: str, check: int | None = 0, **more) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self.python, "-P", "-m", "daemon", *words], cwd=self.folder, env=self.environment,
            capture_output=True, text=True, timeout=60, check=False, umask=OPERATORS_UMASK,
            user=user, group=user, extra_groups=[GROUP] if user == OPERATOR else [], **more,
        )  # fmt: skip
        assert check is None or done.returncode == check, (words, done.stdout, done.stderr, self.said())
        return done


@pytest.fixture
def shared():
    if os.geteuid() != 0:
        pytest.skip("only root can become two other users")
    found = python_for_others()
    if found is None:
        pytest.skip("no Python here that other users may run with our packages")
    folder = Path(tempfile.mkdtemp(prefix="shared-"))
    world = Shared(folder, *found)
    yield world
    world.kill()
    shutil.rmtree(folder, ignore_errors=True)


def test_an_operator_resolves_beside_the_daemon_and_after_it_and_a_stranger_sees_nothing(shared):
    made = shared.by(OPERATOR, "add", "-", input="flag")  # the store itself is made by an operator here
    assert "queued" in made.stdout
    shared.start_daemon()
    shared.until(lambda: shared.value("SELECT count(*) FROM flags") == 1)
    assert "1 waiting" in shared.by(OPERATOR, "flags").stdout
    assert "running (pid" in shared.by(OPERATOR, "status").stdout
    shared.by(OPERATOR, "resolve", "f-0001", "--answer", "as anna says", "--final", "--by", "anna")
    shared.drop("more.md", "answer")
    shared.until_done(2)

    assert shared.by(STRANGER, "status", check=None).returncode != 0
    assert shared.by(STRANGER, "add", "-", check=None, input="x").returncode != 0

    assert shared.stop() == 0
    shared.by(OPERATOR, "add", "-", input="while it is down")
    shared.start_daemon()
    shared.until_done(3)
    for file in shared.state.rglob("*"):
        status = file.stat()
        assert status.st_gid == GROUP, file
        if file.is_file():
            assert status.st_mode & 0o060 == 0o060, f"{file} {status.st_mode:o}"
            assert status.st_mode & 0o007 == 0, f"{file} {status.st_mode:o}"


def test_an_operator_stops_a_session_and_is_told_how_to_stop_the_daemon(shared):
    shared.start_daemon()
    shared.by(OPERATOR, "add", "-", input="sleep 300")
    shared.until(shared.calls)
    shared.by(OPERATOR, "stop", "q-0001")
    shared.until(lambda: not shared.rows("SELECT 1 FROM leases"))
    shared.until(lambda: "its session was ended" in shared.said())
    assert shared.rows("SELECT crashes FROM nodes") == [(0,)]
    done = shared.by(OPERATOR, "stop", check=1)
    assert "belongs to another user" in done.stderr
    assert "systemctl stop shiftwork" in done.stderr
