"""What any store must pass: subclass with fixtures ``store`` and ``other`` (a second opening of the same store)."""

from __future__ import annotations

import json

import pytest

from store.checkpoints import Note, Outcome
from store.claims import Order
from store.errors import AlreadyResolved, CapReached, CheckpointConflict, Conflict, NotFound
from store.intake import Constraint, Handed
from store.people import Answer

NOW = 1_800_000_000.0
CAPS = {"q": 100, "r": 100}
ANSWER = {"decision": "answer", "reason": "it is so", "text": "42"}


def hand(store, body="what is it?", *, queue="q", now=NOW, force=False, caps=CAPS, **more):
    return store.intake.hand_in(
        [Handed(queue, body, "cli", title=body[:20], **more)], now=now, caps=caps, force=force
    )[0]


def claim(store, queues=("q",), *, now=NOW, owner="me"):
    return store.claims.claim(
        Order(list(queues), owner=owner, daemon="d", trigger="test", lease_s=60.0, deadline_s=600.0), now=now
    )


def answered(**more):
    fields = {
        "reuse_key": "k",
        "decision": ANSWER,
        "result": {"text": "42", "citations": []},
        "notes": [Note("conclusion", "it is 42")],
        **more,
    }
    return Outcome("answered", **fields)


def flagged(store, item_claim):
    from store.asking import Ask

    question = {
        "question": "Which?",
        "kind": "direction",
        "options": [{"label": "left", "cost": "none"}, {"label": "right", "cost": "much"}],
        "recommendation": {"option": 1, "reason": "cheap"},
    }
    ask = Ask(item_claim.item_id, item_claim.node_id, item_claim.queue, "direction", "two ways", [question])
    decision = {"decision": "flag", "reason": "unsure"}
    return store.checkpoints.commit(
        item_claim, Outcome("flagged", reuse_key="f", decision=decision, ask=ask), now=NOW
    ).flag_id


def state(store, item):
    return store.views.item(item, now=NOW)["state"]


class StoreConformance:
    """Sentences about a store; each is one test."""

    # handing in

    def test_what_waits_is_asked_for_once_the_store_may_be_written_and_each_has_its_own_outcome(self, store):
        def waiting():
            return [
                Handed("q", "one", "webhook", key="k1", delivery="d1", source="webhook:shop"),
                Handed("r", "two", "webhook", key="k2", delivery="d2", source="webhook:shop"),
                Handed("q", "one", "webhook", key="k1", delivery="d3", source="webhook:shop"),
                Handed("q", "more", "webhook", key="k3", delivery="d4", source="webhook:shop"),
            ]

        caps = {"q": 1, "r": 5}
        new, other, same, full = store.intake.hand_in_waiting(waiting, now=NOW, caps=caps, wait_s=5)
        assert (new.outcome, other.outcome, same.outcome) == ("new", "new", "duplicate")
        assert same.id == new.id != other.id
        assert isinstance(full, CapReached)
        again = store.intake.hand_in_waiting(waiting, now=NOW, caps=caps, wait_s=5)
        assert [one.outcome for one in again[:3]] == ["duplicate"] * 3
        assert isinstance(again[3], CapReached)

    def test_a_delivery_whose_item_is_gone_is_still_that_item(self, store):
        """FIELD 14: ids outlive pruning."""
        handed = Handed("q", "one", "webhook", key="k1", delivery="d1", source="webhook:shop")
        first = store.intake.hand_in([handed], now=NOW, caps=CAPS)[0]
        with store.db.write(point="events.note") as conn:
            conn.execute("DELETE FROM nodes WHERE item_id = ?", (first.id,))
            conn.execute("DELETE FROM items WHERE id = ?", (first.id,))
            conn.execute(
                "INSERT INTO tombstones (queue, key, digest, item_id, outcome, at) "
                "VALUES ('q', 'k1', 'x', ?, 'done', 1)",
                (first.id,),
            )
        again = store.intake.hand_in([handed], now=NOW + 80 * 3600, caps=CAPS)[0]
        assert (again.id, again.outcome, again.state) == (first.id, "duplicate", "pruned")

    def test_a_delivery_id_is_unique_among_those_of_its_source_whichever_queue_it_goes_to(self, store):
        one = hand(store, "one", delivery="d", source="webhook:shop")
        assert hand(store, "two", queue="r", delivery="d", source="webhook:shop").id == one.id
        assert hand(store, "three", delivery="d", source="webhook:code").id != one.id
        assert hand(store, "four", delivery="d").outcome == "new"

    def test_the_same_content_again_is_the_same_item(self, store):
        first, again = hand(store), hand(store)
        assert (first.outcome, again.outcome, again.id) == ("new", "duplicate", first.id)

    def test_the_same_key_with_other_content_is_a_revision_and_the_newest_body_is_seen(self, store):
        first = hand(store, "old", key="k")
        second = hand(store, "new", key="k")
        assert (second.id, second.outcome) == (first.id, "revision")
        item = store.views.item(first.id, now=NOW)
        assert (item["body"], [one["body"] for one in item["revisions"]]) == ("new", ["old"])

    def test_a_duplicate_of_an_aborted_item_is_a_new_item_with_a_numbered_key(self, store):
        first = hand(store, key="k")
        store.people.abort(first.id, by="anna", reason="", now=NOW)
        again = hand(store, key="k")
        assert (again.outcome, again.key) == ("new", "k#2")

    def test_the_same_delivery_again_is_the_item_it_made_whatever_became_of_it(self, store):
        first = hand(store, "old", key="k", delivery="token/a.md")
        hand(store, "new", key="k")
        assert hand(store, "old", key="k", delivery="token/a.md") == (first.id, "duplicate", "open", "k")
        assert store.views.item(first.id, now=NOW)["body"] == "new", "no revision back to what it was"
        store.people.abort(first.id, by="anna", reason="", now=NOW)
        assert hand(store, "old", key="k", delivery="token/a.md").state == "aborted"

    def test_force_makes_a_new_item_of_a_duplicate(self, store):
        hand(store, key="k")
        assert [hand(store, key="k", force=True).key for _ in range(2)] == ["k#2", "k#3"]

    def test_a_full_queue_refuses_and_writes_nothing(self, store):
        hand(store, "a", caps={"q": 1})
        with pytest.raises(CapReached) as error:
            hand(store, "b", caps={"q": 1})
        assert error.value.exit_code == 75
        assert len(store.views.items(queue=None, state=None, limit=9, now=NOW)) == 1

    def test_a_revision_of_a_done_item_shows_it_stale_and_reruns_nothing(self, store):
        item = hand(store, "old", key="k")
        store.checkpoints.commit(claim(store), answered(), now=NOW)
        assert hand(store, "new", key="k").state == "done"
        assert "revis" in store.views.item(item.id, now=NOW)["stale"]
        assert store.claims.ready(["q"], now=NOW).now == 0

    def test_a_revision_brings_its_own_time_and_leaves_a_wait_for_another_reason(self, store):
        hand(store, "later", key="k", not_before=NOW + 3600)
        assert store.claims.ready(["q"], now=NOW).now == 0
        hand(store, "now", key="k")
        assert store.claims.ready(["q"], now=NOW).now == 1
        hand(store, "tomorrow", key="k", not_before=NOW + 86400)
        assert store.claims.ready(["q"], now=NOW) == (0, NOW + 86400)

    # claims

    def test_nothing_ready_is_one_read_and_no_commit(self, store):
        before = _commits(store)
        assert store.claims.ready(["q"], now=NOW) == (0, None)
        assert _commits(store) == before

    def test_a_claim_counts_the_attempt_in_its_own_commit(self, store):
        item = hand(store)
        claim(store)
        assert store.views.item(item.id, now=NOW)["attempts"] == 1
        assert state(store, item.id) == "running"

    def test_higher_priority_first_then_older(self, store):
        low, high, later = hand(store, "a"), hand(store, "b", priority=5), hand(store, "c", priority=5)
        assert [claim(store).item_id for _ in range(3)] == [high.id, later.id, low.id]

    def test_not_before_is_honoured_and_says_when_it_is_due(self, store):
        hand(store, not_before=NOW + 60)
        assert store.claims.ready(["q"], now=NOW) == (0, NOW + 60)
        assert claim(store) is None
        assert claim(store, now=NOW + 60) is not None

    def test_a_paused_item_is_not_claimed_until_resumed(self, store):
        item = hand(store)
        assert store.people.pause(item.id, by="anna", now=NOW)
        assert not store.people.pause(item.id, by="anna", now=NOW)
        assert (claim(store), state(store, item.id)) == (None, "paused")
        store.people.resume(item.id, by="anna", now=NOW)
        assert claim(store).item_id == item.id

    def test_a_paused_queue_is_not_claimed_from(self, store):
        hand(store)
        store.people.pause_queue("q", by="anna", now=NOW)
        assert (store.claims.ready(["q"], now=NOW).now, claim(store)) == (0, None)
        store.people.resume_queue("q", by="anna", now=NOW)
        assert claim(store) is not None

    def test_a_graceful_release_counts_nothing(self, store):
        item = hand(store)
        assert store.claims.release(claim(store), now=NOW, why="stopped")
        shown = store.views.item(item.id, now=NOW)
        assert (shown["attempts"], shown["sessions"][0]["outcome"]) == (0, "released")

    def test_three_crashes_in_a_row_become_one_flag_and_the_queue_goes_on(self, store):
        """FIELD 25"""
        poison, good = hand(store, "poison"), hand(store, "good")
        for crash in range(3):
            assert claim(store, now=NOW + 100 * crash).item_id == poison.id
            back = store.claims.reclaim(
                [(store.claims.leases()[0], "worker")], now=NOW + 100 * crash, crash_limit=3
            )
            assert (back[0].crashes, back[0].flag_id is not None) == (crash + 1, crash == 2)
        assert claim(store, now=NOW + 900).item_id == good.id
        assert [flag["item"] for flag in store.views.flags(now=NOW)] == [poison.id]
        assert state(store, poison.id) == "waiting"

    def test_a_finished_session_ends_the_run_of_crashes(self, store):
        hand(store)
        for _ in range(2):
            claim(store, now=NOW + 500)
            store.claims.reclaim([(store.claims.leases()[0], "worker")], now=NOW, crash_limit=3)
        later = Outcome(
            "parked", decision={"decision": "park", "reason": "w"}, reuse_key="p", not_before=NOW + 600
        )
        store.checkpoints.commit(claim(store, now=NOW + 500), later, now=NOW + 500)
        claim(store, now=NOW + 700)
        back = store.claims.reclaim([(store.claims.leases()[0], "worker")], now=NOW, crash_limit=3)
        assert (back[0].crashes, back[0].flag_id) == (1, None)

    def test_reclaiming_the_same_lease_twice_counts_once(self, store):
        """FIELD 26"""
        hand(store)
        claim(store)
        lease = store.claims.leases()[0]
        assert len(store.claims.reclaim([(lease, "worker")], now=NOW, crash_limit=3)) == 1
        assert store.claims.reclaim([(lease, "worker")], now=NOW, crash_limit=3) == []

    def test_a_lost_claim_cannot_be_extended(self, store):
        hand(store)
        held = claim(store)
        store.claims.reclaim([(store.claims.leases()[0], "worker")], now=NOW, crash_limit=3)
        with pytest.raises(CheckpointConflict):
            store.claims.extend(held, now=NOW, until_at=NOW + 999)

    # checkpoints

    def test_an_answer_finishes_the_item_with_its_result(self, store):
        item = hand(store)
        done = store.checkpoints.commit(claim(store), answered(), now=NOW)
        shown = store.views.item(item.id, now=NOW)
        assert (done.item_state, shown["state"], shown["result"]["text"]) == ("done", "done", "42")
        assert shown["sessions"][0]["start_version"] < shown["sessions"][0]["end_version"] == shown["version"]

    def test_a_checkpoint_claims_the_next_node_in_the_same_commit_or_neither_happens(self, store):
        for name in ("one", "two"):
            hand(store, name)
        first = claim(store)
        order = Order(["q"], owner="me", daemon="d", trigger="test", lease_s=60.0, deadline_s=600.0)
        done = store.checkpoints.commit(first, answered(), now=NOW + 1, then=order)
        second = done.following
        assert (second.attempt, second.deadline_at) == (1, NOW + 601)
        assert second.item_id != first.item_id
        assert [lease.token for lease in store.claims.leases()] == [second.token]
        with pytest.raises(CheckpointConflict):
            store.checkpoints.commit(first, answered(), now=NOW + 2, then=order)
        assert [lease.token for lease in store.claims.leases()] == [second.token]
        assert store.checkpoints.commit(second, answered(), now=NOW + 3, then=order).following is None

    def test_of_two_sessions_on_one_checkpoint_the_loser_writes_nothing(self, store, other):
        item = hand(store)
        slow = claim(store)
        store.claims.reclaim([(store.claims.leases()[0], "worker")], now=NOW, crash_limit=3)
        fast = claim(other, owner="other")
        other.checkpoints.commit(fast, answered(), now=NOW)
        before = _dump(store)
        with pytest.raises(CheckpointConflict):
            store.checkpoints.commit(
                slow, answered(result={"text": "other", "citations": []}, notes=[Note("stage", "n")]), now=NOW
            )
        assert _dump(store) == before
        assert store.views.item(item.id, now=NOW)["result"]["text"] == "42"

    def test_a_revision_during_a_session_discards_the_session(self, store):
        item = hand(store, "old", key="k")
        held = claim(store)
        hand(store, "new", key="k")
        with pytest.raises(CheckpointConflict):
            store.checkpoints.commit(held, answered(), now=NOW)
        again = claim(store)
        assert (again.item_id, store.loading.load(again.node_id).body) == (item.id, "new")

    def test_a_decision_that_was_stored_is_found_by_its_inputs(self, store):
        hand(store)
        held = claim(store)
        store.checkpoints.commit(held, answered(), now=NOW)
        assert store.checkpoints.stored_decision(held.item_id, held.node_id, "k")["body"] == ANSWER
        assert store.checkpoints.stored_decision(held.item_id, held.node_id, "other") is None

    def test_a_parked_item_is_shown_parked_and_wakes_at_its_time(self, store):
        item = hand(store)
        later = Outcome(
            "parked",
            decision={"decision": "park", "reason": "w"},
            reuse_key="p",
            not_before=NOW + 60,
            parked=True,
        )
        store.checkpoints.commit(claim(store), later, now=NOW)
        assert state(store, item.id) == "parked"
        assert claim(store, now=NOW + 61).item_id == item.id

    # people

    def test_an_answer_goes_into_the_context_and_the_item_goes_on(self, store):
        item = hand(store)
        flag = flagged(store, claim(store))
        assert state(store, item.id) == "waiting"
        store.people.resolve(flag, Answer("anna", "left", option=1, reason="ok"), now=NOW)
        loaded = store.loading.load(claim(store).node_id)
        assert [(one.option, one.by, one.flag_id) for one in loaded.answers] == [("left", "anna", flag)]

    def test_a_second_answer_is_told_of_the_first(self, store):
        """FIELD 44"""
        hand(store)
        flag = flagged(store, claim(store))
        store.people.resolve(flag, Answer("anna", "left", option=1), now=NOW)
        with pytest.raises(AlreadyResolved, match="anna"):
            store.people.resolve(flag, Answer("ben", "right", option=2), now=NOW)
        assert store.views.flag(flag, now=NOW)["answer"]["text"] == "left"

    def test_a_final_answer_ends_the_item_by_a_person(self, store):
        item = hand(store)
        flag = flagged(store, claim(store))
        store.people.resolve(flag, Answer("anna", "it is 43", final=True), now=NOW)
        shown = store.views.item(item.id, now=NOW)
        assert (shown["state"], shown["result"]["text"], shown["result"]["by"]) == (
            "done",
            "it is 43",
            "anna",
        )

    def test_a_parked_flag_comes_back_and_needs_reconfirmation(self, store):
        """FIELD 43"""
        item = hand(store)
        flag = flagged(store, claim(store))
        store.people.park_flag(flag, until_at=NOW + 60, by="anna", reason="", now=NOW)
        assert (state(store, item.id), store.people.next_flag_due_at()) == ("parked", NOW + 60)
        assert store.people.wake_flags(now=NOW + 59) == 0
        assert store.people.wake_flags(now=NOW + 61) == 1
        assert [one["expired"] for one in store.views.flags(now=NOW + 61)] == [True]
        store.people.resolve(flag, Answer("anna", "left", option=1), now=NOW + 62)

    def test_abort_ends_everything_and_twice_is_once(self, store):
        item = hand(store)
        flag = flagged(store, claim(store))
        assert store.people.abort(item.id, by="anna", reason="no", now=NOW)
        assert not store.people.abort(item.id, by="anna", reason="no", now=NOW)
        assert (state(store, item.id), store.views.flags(now=NOW)) == ("aborted", [])
        with pytest.raises(Conflict):
            store.people.resolve(flag, Answer("anna", "left"), now=NOW)

    def test_stopping_a_session_leaves_the_item_paused_and_its_checkpoint_refused(self, store):
        item = hand(store)
        held = claim(store)
        assert store.people.stop_sessions([item.id], by="anna", now=NOW) == [item.id]
        assert state(store, item.id) == "paused"
        with pytest.raises(CheckpointConflict):
            store.checkpoints.commit(held, answered(), now=NOW)

    def test_resuming_a_queue_lets_go_what_stop_held_and_not_what_a_person_paused(self, store):
        stopped, paused = hand(store), hand(store, "paused")
        claim(store)
        store.people.stop_sessions([stopped.id], by="anna", now=NOW)
        store.people.pause(paused.id, by="anna", now=NOW)
        assert store.people.resume_queue("q", by="anna", now=NOW)
        assert (state(store, stopped.id), state(store, paused.id)) == ("queued", "paused")
        assert claim(store).item_id == stopped.id
        assert not store.people.resume_queue("q", by="anna", now=NOW)

    def test_retry_of_a_done_item_begins_a_new_generation(self, store):
        item = hand(store)
        first = claim(store)
        store.checkpoints.commit(first, answered(), now=NOW)
        store.people.retry(item.id, by="anna", now=NOW)
        second = claim(store)
        assert (second.item_id, second.node_id != first.node_id) == (item.id, True)
        store.checkpoints.commit(second, answered(result={"text": "43", "citations": []}), now=NOW)
        assert store.views.item(item.id, now=NOW)["result"]["text"] == "43"

    def test_retry_answers_a_crash_flag_with_try_again(self, store):
        item = hand(store)
        claim(store)
        store.claims.reclaim([(store.claims.leases()[0], "worker")], now=NOW, crash_limit=1)
        store.people.retry(item.id, by="anna", now=NOW)
        loaded = store.loading.load(claim(store).node_id)
        assert (loaded.item_id, loaded.answers) == (item.id, ())

    def test_what_is_not_there_is_said_so(self, store):
        for call in (
            lambda: store.people.abort("q-9999", by="a", reason="", now=NOW),
            lambda: store.people.resolve("f-9999", Answer("a", "b"), now=NOW),
            lambda: store.views.item("q-9999", now=NOW),
        ):
            with pytest.raises(NotFound):
                call()

    # views

    def test_the_counts_of_a_queue_sum_to_all_its_items(self, store):
        for number in range(6):
            hand(store, f"item {number}")
        hand(store, "later", not_before=NOW + 999)
        store.checkpoints.commit(claim(store), answered(), now=NOW)
        flagged(store, claim(store))
        claim(store)
        store.people.pause(
            store.views.items(queue="q", state="queued", limit=9, now=NOW)[0]["id"], by="a", now=NOW
        )
        store.people.abort(
            store.views.items(queue="q", state="queued", limit=9, now=NOW)[0]["id"],
            by="a",
            reason="",
            now=NOW,
        )
        counts = store.views.status(["q", "empty"], now=NOW)["queues"]
        shown = {
            name: counts["q"][name] for name in ("queued", "running", "waiting", "paused", "done", "aborted")
        }
        assert shown == {"queued": 2, "running": 1, "waiting": 1, "paused": 1, "done": 1, "aborted": 1}
        assert counts["empty"]["queued"] == 0
        listed = [one["state"] for one in store.views.items(queue="q", state=None, limit=99, now=NOW)]
        assert {name: listed.count(name) for name in shown} == shown

    def test_constraints_of_an_item_come_back_byte_for_byte(self, store):
        rules = (Constraint("never  mail\ttwice – ünïcode", "prohibition"),)
        hand(store, constraints=rules)
        assert store.loading.load(claim(store).node_id).constraints == rules


def _commits(store):
    with store.db.read() as conn:
        return conn.execute("SELECT seq FROM commits").fetchone()[0]


def _dump(store):
    with store.db.read() as conn:
        tables = [
            row[0]
            for row in conn.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'search_index%'"
            )
        ]
        return json.dumps(
            {
                table: [tuple(map(repr, row)) for row in conn.execute(f"SELECT * FROM {table}")]
                for table in tables
            }
        )
