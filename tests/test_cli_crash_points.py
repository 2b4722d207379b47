"""A command that reaches a named crash point takes the daemon along, unless it is to die alone."""

from __future__ import annotations

import pytest
from daemon_world import World


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.kill()


@pytest.mark.parametrize(("alone", "daemon_lives"), [("", False), ("@self", True)])
def test_a_command_at_a_crash_point_takes_the_daemon_along_unless_told_not_to(world, alone, daemon_lives):
    world.start()
    done = world.command(
        "add", "-", check=None, input="answer me", env={"SHIFTWORK_CRASH_AT": f"intake.before{alone}"}
    )
    assert done.returncode == -9
    if not daemon_lives:
        world.until(lambda: world.process.poll() is not None)
    assert (world.process.poll() is None) is daemon_lives
    assert world.value("SELECT count(*) FROM items") == 0
