"""A real, private ``systemd --user`` in its own pid, mount and cgroup namespaces, and the shipped unit run under it.

The unit that runs is the shipped file, line by line, with three changes: places (program, configuration, credentials)
are the test's; what a user's manager cannot do (``NOT_FOR_USERS``) is dropped; what a test may add comes as a drop-in.
Where no manager can run, ``MANAGER_PROBLEM`` says why and the tests are skipped with these words.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from daemon_world import ROOT, World

UNITS = ROOT / "systemd"
SHIPPED = UNITS / "shiftwork.service"
PROGRAM = "/opt/shiftwork/bin/shiftwork"
CONFIG = "/etc/shiftwork/config.toml"
CREDENTIALS = "/etc/shiftwork/credentials"
MANAGERS = ("/usr/lib/systemd/systemd", "/lib/systemd/systemd")
NOT_FOR_USERS = (
    "User", "Group", "StateDirectory", "StateDirectoryMode", "WorkingDirectory",  # a user's manager has its own
    "ProtectHome", "PrivateTmp",  # they would hide the test's own folder and the checkout
    "Wants", "After", "WantedBy",  # targets of the system's manager
)  # fmt: skip

# What the system's manager has made before a user's one starts, in a /run of our own; nothing else is mounted or run.
# The first process of the namespaces must not be the manager itself.
INSIDE = """
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system /run/systemd/inaccessible/dir || exit 1
cd /run/systemd/inaccessible && touch reg && mkfifo fifo && mknod chr c 0 0; mknod blk b 0 0; chmod 000 *; cd /
"$0" --user --log-target=console & wait
"""


class Manager:
    """A running ``systemd --user``; ``folder`` is its runtime folder."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="user-systemd."))
        self.folder.chmod(0o700)
        self.units = self.folder / "units"
        self.units.mkdir()
        for name in ("default", "basic", "shutdown"):  # of the machine's own units none is started
            (self.units / f"{name}.target").write_text(
                f"[Unit]\nDescription={name}\nDefaultDependencies=no\n"
            )
        program = next(one for one in MANAGERS if os.path.exists(one))
        # outside XDG_RUNTIME_DIR nothing of the caller's session is passed on
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "XDG_RUNTIME_DIR": str(self.folder),
            "SYSTEMD_UNIT_PATH": str(self.units),
            "LANG": "C.UTF-8",
        }
        with (self.folder / "manager.log").open("w") as log:
            self.process = subprocess.Popen(
                ["unshare", "--pid", "--mount", "--cgroup", "--fork", "--kill-child", "--mount-proc",
                 "sh", "-c", INSIDE, program],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment,
            )  # fmt: skip

    def wait(self, seconds: float = 20.0) -> str:
        """Until it serves; what stands in the way, or nothing."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            if self.ctl("is-system-running", check=False).stdout.strip() in {"running", "degraded"}:
                return ""
            time.sleep(0.05)
        return f"systemd --user does not run here: {self.log()[-300:]}"

    def log(self) -> str:
        return (self.folder / "manager.log").read_text(errors="replace")

    @property
    def inside(self) -> int:
        """The first process of the namespaces, as its pid is seen from outside."""
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def run(self, *argv: str, check: bool = True, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """A command in the manager's namespaces."""
        try:
            inside = self.inside
        except (OSError, IndexError):
            return subprocess.CompletedProcess(argv, 1, "", "not up yet")
        done = subprocess.run(
            ["nsenter", "-t", str(inside), "--pid", "--mount", "--cgroup", *argv],
            env=self.environment, capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, (argv, done.stdout, done.stderr, self.log()[-3000:])
        return done

    def ctl(self, *words: str, check: bool = True, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        return self.run("systemctl", "--user", *words, check=check, timeout=timeout)

    def end(self) -> None:
        """The namespace's first process takes everything in it along."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def manager_problem() -> str:
    """Why no private manager can run here, or nothing."""
    if not any(os.path.exists(one) for one in MANAGERS):
        return "no systemd is installed here"
    for tool in ("unshare", "nsenter", "systemctl"):
        if shutil.which(tool) is None:
            return f"there is no {tool} here"
    if os.geteuid() != 0:
        return "only root can give systemd --user namespaces and a cgroup of its own here"
    if tempfile.gettempdir().startswith("/dev/shm"):
        return "systemd covers /dev/shm, where temporary files lie here, while it hands over credentials"
    return ""


def directives(text: str) -> list[tuple[str, str, str]]:
    """(section, key, value) of a unit file, in order."""
    found, section = [], ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif "=" in line and not line.startswith(("#", ";")):
            key, _, value = line.partition("=")
            found.append((section, key, value))
    return found


class Service:
    """One shipped unit under a manager, on a ``World`` of its own."""

    def __init__(
        self, manager: Manager, world: World, name: str, shipped: Path = SHIPPED, **settings: str
    ) -> None:
        self.manager, self.world, self.name = manager, world, f"{name}.service"
        folder = manager.units
        self.credentials = world.folder / "credentials"
        self.credentials.mkdir(mode=0o700, exist_ok=True)
        program = world.folder / "shiftwork"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m daemon "$@"\n')
        program.chmod(0o755)
        lines = shipped.read_text().splitlines()
        kept = [line for line in lines if line.partition("=")[0] not in NOT_FOR_USERS]
        text = "\n".join(kept)
        for place, ours in (
            (PROGRAM, str(program)),
            (CONFIG, str(world.config)),
            (CREDENTIALS, str(self.credentials)),
        ):
            assert place in text
            text = text.replace(place, ours)
        (folder / self.name).write_text(text + "\n")
        drop_in = folder / f"{self.name}.d"
        drop_in.mkdir(exist_ok=True)
        more = {
            "WorkingDirectory": str(world.folder),
            "ReadWritePaths": str(world.folder),
            "Environment": f"PYTHONPATH={ROOT} PYTHONWARNINGS=error",
            "StandardOutput": f"append:{world.folder}/service.log",
            "StandardError": f"append:{world.folder}/service.log",
            **settings,
        }
        (drop_in / "test.conf").write_text("[Service]\n" + "".join(f"{k}={v}\n" for k, v in more.items()))
        manager.ctl("daemon-reload")

    def ctl(self, verb: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.manager.ctl(verb, self.name, check=check)

    def show(self, name: str) -> str:
        return self.manager.ctl("show", self.name, "--property", name, "--value").stdout.strip()

    def kill(self, name: str) -> None:
        """A signal to the daemon alone, not to its children."""
        self.manager.ctl("kill", "--kill-whom=main", f"--signal={name}", self.name)

    def restarts(self) -> int:
        return int(self.show("NRestarts"))

    def said(self) -> str:
        log = self.world.folder / "service.log"
        return log.read_text() if log.exists() else ""

    def until(self, condition, seconds: float = 30.0):
        end = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < end, (self.said()[-3000:], self.manager.log()[-3000:])
            time.sleep(0.05)
        return found
