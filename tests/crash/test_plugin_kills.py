"""Kill -9 while a plug-in hands in: what it hands in again after the restart is the same item, and nothing is lost."""

from __future__ import annotations

import random
import shutil
import time

import pytest
from daemon_world import ROOT
from plugin_world import PluginWorld

EXAMPLE = ROOT / "examples" / "plugin"
ROUNDS = 4
MAILS = 24


@pytest.fixture
def world(tmp_path):
    made = PluginWorld(tmp_path)
    made.install_example()
    shutil.copy(EXAMPLE / "shiftwork.toml", made.config)
    made.config.write_text(made.config.read_text().replace('every = "1s"', 'every = "50ms"'))
    for name in ("new", "cur"):
        (tmp_path / "mail" / name).mkdir(parents=True)
    yield made
    made.kill()


def deliver(world, name: str) -> None:
    """As a mail program does: whole, under its last name."""
    temporary = world.folder / "mail" / name
    temporary.write_text(f"Subject: {name}\n\nAn invoice, as always.\n")
    temporary.rename(world.folder / "mail" / "new" / name)


def left(world) -> list[str]:
    return sorted(path.name for path in (world.folder / "mail" / "new").iterdir())


def items(world) -> list[tuple[str, str]]:
    return sorted(world.rows("SELECT title, state FROM items"))


@pytest.mark.parametrize("place", ["intake.before", "intake.after"])
def test_a_kill_around_the_commit_of_a_hand_in_leaves_one_item(world, place):
    deliver(world, "one")
    world.start(ready=False, env={"SHIFTWORK_CRASH_AT": place})
    assert world.process.wait(60) < 0, world.said()
    assert left(world) == ["one"], "the mail is not marked as read"
    assert len(items(world)) == (1 if place == "intake.after" else 0)
    world.start()
    world.until_done(1)
    world.until(lambda: not left(world))
    assert items(world) == [("one", "done")]
    assert world.stop() == 0


def test_what_was_aborted_meanwhile_is_not_begun_anew_by_a_redelivery(world):
    deliver(world, "one")
    world.start(ready=False, env={"SHIFTWORK_CRASH_AT": "intake.after"})
    assert world.process.wait(60) < 0
    world.command("abort", world.value("SELECT id FROM items"), "--yes")
    world.start(ready=False)
    world.until(lambda: not left(world))
    assert items(world) == [("one", "aborted")]


def test_random_kills_while_mail_comes_in_lose_and_double_nothing(world):
    seed = time.time_ns()
    print(f"seed {seed}")
    choose = random.Random(seed)
    names = [f"mail-{number:03}" for number in range(MAILS)]
    for number in range(ROUNDS):
        for name in names[number::ROUNDS]:
            deliver(world, name)
        world.start(ready=False)
        time.sleep(choose.uniform(0.3, 1.2))
        world.kill()
    world.start()  # a stop before it listens to signals would just end it
    world.until(lambda: not left(world))
    world.until_done(MAILS)
    assert items(world) == [(name, "done") for name in names]
    assert world.value("SELECT count(*) FROM deliveries") == MAILS
    assert world.stop() == 0
