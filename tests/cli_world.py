"""A folder with a configuration and a store in it, for tests of the verbs: filled by real sessions with a script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from session_world import World

from daemon.cli.main import main

ROOT = Path(__file__).parent.parent
CONFIG = """\
[queues.q]
inbox = "in"
outbox = "out"
decider = "x"
[queues.r]
decider = "x"
[deciders.x]
kind = "extractive"
"""
SEND = {
    "question": "May I send them now?",
    "kind": "confirm",
    "options": [
        {"label": "send 14", "cost": "cannot be undone"},
        {"label": "send 12", "cost": "2 stay parked"},
    ],
    "recommendation": {"option": 2, "reason": "the two bounces would count against the sender"},
}


class Desk:
    """The folder, and a person who types verbs into it. ``out`` and ``err`` are what the last verb said."""

    def __init__(self, folder: Path, capsys) -> None:
        self.folder = folder
        self.config = folder / "shiftwork.toml"
        self.config.write_text(CONFIG)
        self.capsys = capsys
        self.out = self.err = ""
        self.worlds: list[World] = []

    def world(self, *script, ago_s: float = 60.0) -> World:
        """The store, its sessions decided by ``script``, its clock ``ago_s`` before now."""
        world = World(self.folder, *script)
        world.now = time.time() - ago_s
        self.worlds.append(world)
        return world

    def flagged(self, *script, ago_s: float = 60.0, body: str = "which way?"):
        """An item that waits for a person: (item, flag)."""
        world = self.world(*script, ago_s=ago_s)
        item = world.hand(body, name="way")
        ended = world.session()
        return item, ended.flag_id

    def run(self, *words) -> int:
        self.capsys.readouterr()
        code = main(["--config", str(self.config), *words])
        self.out, self.err = self.capsys.readouterr()
        return code

    def json(self, *words):
        assert self.run(*words, "--json") == 0, self.err
        return json.loads(self.out)

    def lines(self, *words):
        assert self.run(*words) == 0, self.err
        return self.out.splitlines()

    def close(self) -> None:
        for world in self.worlds:
            world.close()


def spawn(folder: Path, *words, **more) -> subprocess.Popen[str]:
    """A real process ``python -m daemon WORDS``; what it would warn of ends it."""
    environment = {k: v for k, v in os.environ.items() if k != "SHIFTWORK_CONFIG"}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "daemon", *words],
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **more},
    )
