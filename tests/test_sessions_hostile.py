"""Replies and files that would harm a session: each is the decider's fault or nobody's, never a crash of the node."""

from __future__ import annotations

import json

import pytest
from session_world import World, answer, flag

BIG = 10**30


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    "usage",
    [{"input_tokens": BIG}, {"cost": 10**400}, {"output_tokens": -1}, {"input_tokens": True}, [], "much"],
)
def test_a_usage_that_is_no_number_of_this_world_is_bad_output(world, usage):
    world.decider.script = [json.dumps({**answer(), "usage": usage})]
    item = world.hand()
    ended = world.session()
    assert (ended.outcome, "bad output" in ended.why) == ("failed", True)
    assert world.item(item)["sessions"][0]["input_tokens"] is None


def test_an_infinite_cost_is_not_recorded(world):
    text = '{"decision": "answer", "reason": "r", "text": "t", "usage": {"cost": 1e999}}'
    world.decider.script = [text, json.dumps({**answer(), "usage": {"cost": 1.0}})]
    item = world.hand()
    assert world.session().outcome == "answered"
    assert world.item(item)["sessions"][0]["cost"] is None


def test_a_history_that_cannot_be_written_costs_no_session(world):
    world.store.history.path.mkdir()
    item = world.hand()
    assert world.session().outcome == "answered"
    steps = {step["name"]: step["what"] for step in world.item(item)["sessions"][0]["steps"]}
    assert "not kept" in steps["history"]


def test_a_damaged_history_is_begun_anew_without_the_old_ones_log(world):
    for tail in ("", "-wal", "-shm"):
        (world.state / f"history.db{tail}").write_bytes(b"no database at all, " * 300)
    world.hand()
    assert world.session().outcome == "answered"
    assert [one.kind for one in world.store.history.of_session(1)] == ["request", "reply"]
    assert (world.state / "history.damaged").exists()


def test_a_stored_decision_that_cannot_be_parsed_flags_its_item_and_crashes_nothing(world):
    world.decider.script = [flag(), answer()]
    item = world.hand()
    world.session()
    with world.store.db.write(point="intake") as conn:
        conn.execute("UPDATE decisions SET body = '{['")
        conn.execute("UPDATE flags SET state = 'withdrawn'")
        conn.execute("UPDATE nodes SET state = 'pending', waits_for = NULL WHERE kind = 'decide'")
    assert world.session().outcome == "denied"
    assert "unreadable" in world.flags()[0]["stuck"]
    assert world.state_of(item) == "waiting"


def test_an_answer_that_cites_what_changed_while_it_was_made_is_stale_from_birth(world):
    page = world.doc("fees.md", "# Fees\n\nThe fee is 40 euros.\n")

    def thinks(request):
        page.write_text("# Fees\n\nThe fee is 55 euros.\n")
        world.room.sources["q"].refresh(world.store, now=world.now)  # another session looked meanwhile
        return answer("40", citations=[request["passages"][0]["id"]])

    world.decider.script = [thinks]
    item = world.hand("What is the fee?")
    world.session()
    assert "changed" in world.item(item)["stale"]
