"""A store written by each earlier schema opens, keeps what it held, and its work goes on."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from session_world import World, answer

from store.opening import KNOWN_VERSION, prepare

GOLDEN = Path(__file__).parent / "golden"


def test_every_schema_has_its_golden_store():
    assert [(GOLDEN / f"schema-{number}.db.gz").exists() for number in range(1, KNOWN_VERSION + 1)] == [
        True
    ] * KNOWN_VERSION


@pytest.mark.parametrize("number", range(1, KNOWN_VERSION + 1))
def test_a_golden_store_opens_and_its_work_goes_on(tmp_path, number):
    state = tmp_path / "state"
    state.mkdir()
    (state / "shiftwork.db").write_bytes(gzip.decompress((GOLDEN / f"schema-{number}.db.gz").read_bytes()))
    prepare(state)
    world = World(tmp_path, answer())
    states = {
        one["title"]: one["state"]
        for one in world.store.views.items(queue=None, state=None, limit=99, now=world.now)
    }
    assert states == {
        "done: how is tea made?": "done",
        "waiting": "waiting",
        "parked": "parked",
        "aborted": "aborted",
        "paused": "paused",
        "revised twice": "queued",
        "running": "running",
    }
    world.store.claims.reclaim(
        [(one, "daemon") for one in world.store.claims.leases()], now=world.now, crash_limit=3
    )
    world.drain()
    done = world.store.views.items(queue=None, state="done", limit=99, now=world.now)
    assert {one["title"] for one in done} == {"done: how is tea made?", "revised twice", "running"}
    world.close()
