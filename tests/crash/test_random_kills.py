"""Kills at random, under load: daemon, workers, the process that starts them, deciders; and what must hold after 200.

Seeded, so that a failure can be looked at again. A node's crashes are limited to more than a round can bring;
another test keeps the limit of three.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from crash_world import CrashWorld
from daemon_world import ENVIRONMENT, alive, children
from hook_sender import Hook, Told
from notify_receivers import web

from daemon import config as configuration
from notify.pager import Pager
from notify.policy import policy_from
from store.sqlite import open_store

ROUNDS = 50
PATIENCE_S = 2.0
SEEDS = (1, 2, 3, 4)


class Load:
    """Files, commands and deliveries, as they come, for both queues."""

    def __init__(self, world: CrashWorld, chance: random.Random) -> None:
        self.world, self.chance = world, chance
        self.count = 0
        self.commands: list[subprocess.Popen[str]] = []
        self.senders: list[threading.Thread] = []
        self.told: dict[str, list[Told]] = {}  # delivery → what its sender saw

    def body(self) -> str:
        self.count += 1
        verb = self.chance.choices(
            ["answer", "sleep-once 0.2", "fail-once", "park-once", f"kill-once {signal.SIGKILL}", "flag"],
            [60, 20, 2, 5, 3, 5],
        )[0]
        return f"{verb} number {self.count}"

    def come(self) -> None:
        for _ in range(self.chance.randrange(4)):
            body, queue = self.body(), self.chance.choice(["alpha", "beta"])
            if body.startswith("flag"):
                self.world.flagged.add(body)
            self.world.drop(f"file-{self.count}.md", body, queue)
        if self.chance.random() < 0.1:
            self.count += 1
            self.world.drop_bad(f"bad-{self.count}.md", self.chance.choice(["alpha", "beta"]))
        if self.chance.random() < 0.3:
            self.add()
        for _ in range(self.chance.randrange(3)):
            self.deliver()

    def deliver(self) -> None:
        """A sender that sends until it is told that its delivery was taken, also while the daemon is being killed."""
        body, delivery = f"answer by webhook {self.count}", f"msg-{self.count}"
        self.count += 1
        self.world.handed[body] = self.world.hook.queue

        def send() -> None:
            self.told[delivery] = self.world.hook.until_told(body, delivery)

        sender = threading.Thread(target=send)
        sender.start()
        self.senders.append(sender)

    def add(self) -> None:
        """A command that runs beside everything else, also while the daemon is being killed."""
        body, queue = f"answer by command {self.count}", self.chance.choice(["alpha", "beta"])
        self.count += 1
        self.world.handed[body] = queue
        command = subprocess.Popen(
            [sys.executable, "-P", "-m", "daemon", "add", "-", "--queue", queue],
            cwd=self.world.folder, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        command.stdin.write(body)
        command.stdin.close()
        command.stdin = None
        self.commands.append(command)

    def ended(self) -> None:
        """No command may have failed, every delivery was taken, and its sender was told of one item only."""
        for command in self.commands:
            out, err = command.communicate(timeout=60)
            assert command.returncode == 0, (out, err)
        self.commands.clear()
        for sender in self.senders:
            sender.join()
        assert len(self.told) == len(self.senders)
        assert all(len({one.id for one in told if one.id}) == 1 for told in self.told.values())


def kill_somebody(world: CrashWorld, chance: random.Random) -> str:
    """SIGKILL for the daemon (half of the time), else for a worker, a decider or the process that starts workers.

    A slow machine may need a moment until there is one of the kind.
    """
    kind = chance.choices(["daemon", "worker", "decider", "zygote"], [50, 35, 10, 5])[0]
    pid = world.process.pid
    if kind != "daemon":
        patience = time.monotonic() + PATIENCE_S
        while not (some := family(world)[kind]):
            if time.monotonic() > patience:
                return f"no {kind}"
            time.sleep(0.005)
        pid = chance.choice(some)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return f"{kind} gone"
    return kind


def family(world: CrashWorld) -> dict[str, list[int]]:
    """The daemon's processes by what they are."""
    zygotes = children(world.process.pid)
    workers = [worker for one in zygotes for worker in children(one)]
    return {
        "zygote": zygotes,
        "worker": workers,
        "decider": [decider for one in workers for decider in children(one)],
    }


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", SEEDS)
def test_kills_at_random_lose_nothing_and_double_nothing(tmp_path, seed):
    """200 rounds in all, two queues fed by files, commands and a webhook together, a raised crash limit."""
    world = CrashWorld(tmp_path, daemon="crash_limit = 100\nmax_sessions = 2", hook=Hook())
    chance = random.Random(seed)
    load = Load(world, chance)
    killed: list[str] = []
    world.start()
    try:
        for _ in range(ROUNDS):
            load.come()
            time.sleep(chance.uniform(0, 0.5))  # the moment of the kill, not a proof of anything
            killed.append(kill_somebody(world, chance))
            if killed[-1] == "daemon":
                world.until_dead()
                world.start(ready=False)
        load.ended()
        world.until_quiet(120)
        world.answer_flags()
        world.until_quiet(120)
        world.assert_whole()
        print({kind: killed.count(kind) for kind in sorted(set(killed))}, f"{len(world.handed)} items")
        again = [told for told in load.told.values() if len(told) > 1]
        unheard = sum(told[-1].status == 200 for told in again)
        print(f"{len(load.told)} deliveries, {len(again)} sent again, {unheard} of those were taken already")
        assert len(again) > 0
        assert killed.count("daemon") >= ROUNDS // 4
        assert world.value("SELECT count(*) FROM sessions WHERE outcome = 'crashed'") >= 3
        assert world.stop() == 0
        world.assert_nobody_left()
    finally:
        world.kill()


def test_three_crashes_in_a_row_ask_a_person_once_and_the_queue_goes_on(tmp_path):
    """FIELD 25: the limit of three. One flag, one page, and whoever waits behind the poison is served."""
    with web() as receiver:
        (tmp_path / "page.url").write_text(f"json://127.0.0.1:{receiver.port}/")
        world = CrashWorld(tmp_path, daemon="", extra='[notify]\nservices = [{ url_file = "page.url" }]\n')
        poison = f"kill {signal.SIGKILL} poison"
        world.flagged.add(poison)
        world.drop("1-poison.md", poison, "beta")
        world.drop("2-good.md", "answer good", "beta")
        world.start()
        try:
            world.until_quiet()
            world.drop("3-after.md", "answer after", "beta")
            world.until_quiet()
            world.assert_whole()
            item = world.value("SELECT id FROM items WHERE body = ?", poison)
            [flag] = json.loads(world.command("flags", "--json").stdout)["flags"]
            assert flag["item"] == item
            assert "crashed 3 sessions" in flag["stuck"]
            assert (
                world.rows("SELECT outcome, cause FROM sessions WHERE item_id = ?", item)
                == [("crashed", "worker")] * 3
            )
            assert world.value("SELECT sum(crashes) FROM nodes WHERE item_id <> ?", item) == 0
            world.until(lambda: world.value("SELECT state FROM alerts WHERE key = 'crash:beta'") == "firing")
            assert receiver.ids == []  # crashes are grouped: the first message waits five minutes
            assert world.stop() == 0
            store = open_store(world.state)
            policy = policy_from(configuration.load(world.config).notify)
            for later_s in (290, 310, 900, 3000):
                Pager(store, policy, clock=lambda later_s=later_s: time.time() + later_s).turn()
                assert len(receiver.ids) == (1 if later_s > 300 else 0)
            store.close()
            assert item in receiver.got[0]["message"]
            world.process = None
            world.start()
            world.command("resolve", flag["id"], "--option", "2")
            world.flagged.clear()
            world.aborted.add(poison)
            world.until_quiet()
            world.assert_whole()
        finally:
            world.kill()
        world.assert_nobody_left()


def test_a_worker_that_was_killed_is_gone_with_its_decider(tmp_path):
    """Nobody works on for a session that is over."""
    world = CrashWorld(tmp_path)
    world.start()
    try:
        world.drop("1.md", "sleep-once 60 one")
        call = world.until(lambda: [call for call in world.calls() if alive(call[1])])[0]
        os.kill(call[2], signal.SIGKILL)
        world.until(lambda: not alive(call[1]), 10)
        world.until_quiet()
        world.assert_whole()
    finally:
        world.kill()
