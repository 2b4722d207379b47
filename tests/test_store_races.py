"""What people and doors do while a session runs, a question waits or a time is set: nothing slips past a hold."""

from __future__ import annotations

import pytest
from store_conformance import NOW, answered, claim, flagged, hand, state
from stores import new_state

from store.checkpoints import Outcome
from store.people import Answer
from store.sqlite import open_store


@pytest.fixture
def store(tmp_path):
    opened = open_store(new_state(tmp_path))
    yield opened
    opened.close()


def damage(store, sql):
    with store.db.write(point="intake") as conn:
        conn.execute(sql)


def test_an_item_paused_while_it_runs_stays_paused_when_its_session_is_revised_away(store):
    item = hand(store, key="k").id
    claim(store)
    store.people.pause(item, by="anna", now=NOW)
    hand(store, "a newer text", key="k")
    assert (state(store, item), claim(store)) == ("paused", None)


def test_a_hold_ends_with_the_item_and_retry_begins_without_it(store):
    item = hand(store, key="k").id
    running = claim(store)
    store.people.pause(item, by="anna", now=NOW)
    store.checkpoints.commit(running, answered(), now=NOW)
    store.people.retry(item, by="anna", now=NOW)
    assert state(store, item) == "queued"
    assert claim(store).item_id == item


def test_a_paused_item_that_was_aborted_and_is_tried_again_is_not_shown_as_paused_while_it_runs(store):
    item = hand(store, key="k").id
    store.people.pause(item, by="anna", now=NOW)
    store.people.abort(item, by="anna", reason="", now=NOW)
    store.people.retry(item, by="anna", now=NOW)
    assert (state(store, item), claim(store).item_id) == ("queued", item)


def test_a_revision_says_anew_when_the_item_may_run(store):
    item = hand(store, key="k").id
    hand(store, "not yet", key="k", not_before=NOW + 1000)
    assert claim(store) is None
    hand(store, "now after all", key="k")
    assert claim(store).item_id == item


def test_a_revision_does_not_cut_short_the_wait_after_a_failure(store):
    hand(store, key="k")
    failed = Outcome("failed", failed_call=True, not_before=NOW + 60)
    store.checkpoints.commit(claim(store), failed, now=NOW)
    hand(store, "a newer text", key="k", not_before=NOW + 10)
    assert claim(store, now=NOW + 20) is None
    assert claim(store, now=NOW + 61) is not None


def test_an_answered_question_does_not_bring_an_item_forward(store):
    hand(store, key="k")
    flag = flagged(store, claim(store))
    hand(store, "a newer text", key="k", not_before=NOW + 1000)
    store.people.resolve(flag, Answer("anna", "left"), now=NOW)
    assert claim(store) is None
    assert claim(store, now=NOW + 1001) is not None


def test_retry_of_a_park_that_ran_out_is_not_asked_about_again(store):
    item = hand(store, key="k").id
    parked = Outcome("parked", parked=True, not_before=NOW + 100, park_expires_at=NOW + 200)
    store.checkpoints.commit(claim(store), parked, now=NOW)
    store.people.retry(item, by="anna", now=NOW + 300)
    assert store.loading.load(claim(store, now=NOW + 300).node_id).park_expires_at is None


def test_an_item_whose_text_cannot_be_read_can_be_handed_in_again(store):
    item = hand(store, key="k").id
    damage(store, "UPDATE items SET body = CAST(x'ff41' AS TEXT), title = CAST(x'fe' AS TEXT)")
    assert hand(store, "whole", key="k").outcome == "revision"
    assert store.loading.load(claim(store).node_id).body == "whole"
    assert store.db.connection().execute("SELECT hex(body) FROM revisions").fetchone()[0] == "FF41"
    assert item


def test_an_item_whose_title_cannot_be_read_can_be_tried_again(store):
    item = hand(store, key="k").id
    damage(store, "UPDATE items SET title = CAST(x'fe' AS TEXT)")
    store.people.abort(item, by="anna", reason="", now=NOW)
    store.people.retry(item, by="anna", now=NOW)
    assert claim(store).item_id == item
