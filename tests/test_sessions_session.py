"""One session: claim, verify, context, admit, decide, apply, checkpoint."""

from __future__ import annotations

import json
import time

import pytest
from session_world import NOW, QUESTION, Scripted, World, answer, failure, flag, park

from sessions.config import DaemonLimits
from sessions.plan import Plan
from sessions.session import run_session
from sessions.worker import drain
from store.claims import Order
from store.people import Answer


@pytest.fixture
def world(tmp_path):
    made = []

    def make(*script, **more):
        made.append(World(tmp_path, *script, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_an_answer_ends_the_item_and_the_record_says_every_step(world):
    w = world(answer("it is 42"))
    item = w.hand()
    assert [one.outcome for one in w.drain()] == ["answered"]
    shown = w.item(item)
    assert (shown["state"], shown["result"]["text"]) == ("done", "it is 42")
    session = shown["sessions"][0]
    steps = [step["name"] for step in session["steps"]]
    assert steps == ["claim", "verify", "context", "admit", "decide", "apply"]
    assert [step["decided_by"] for step in session["steps"] if step["name"] == "decide"] == ["model"]
    assert session["context_digest"]


def test_a_plain_session_is_two_commits_whatever_it_decides(world):
    for script in (answer(), flag(), park()):
        w = world(script)
        w.hand(str(script))
        before = w.commits()
        w.session()
        assert w.commits() - before == 2


def test_nothing_queued_is_no_commit_and_no_call(world):
    w = world()
    before = w.commits()
    assert w.session() is None
    assert (w.decider.calls, w.commits()) == (0, before)


def test_a_flag_waits_and_the_answer_stands_in_the_next_context(world):
    w = world(flag(), answer("left it is", citations=["f-0001"]))
    item = w.hand()
    w.drain()
    assert (w.state_of(item), w.flags()[0]["question"]) == ("waiting", "Which?")
    w.store.people.resolve("f-0001", Answer("anna", "left", option=1), now=w.now)
    w.drain()
    given = w.decider.requests[1]["answers"][0]
    assert (given["flag"], given["option"], given["by"]) == ("f-0001", "left", "anna")
    assert w.item(item)["result"]["citations"] == ["f-0001"]


def test_a_park_is_kept_until_its_time_and_then_decided_anew(world):
    w = world(park("2027-01-16T00:00:00Z"), answer())
    item = w.hand()
    w.drain()
    assert (w.state_of(item), w.decider.calls) == ("parked", 1)
    w.now += 2 * 86400
    w.drain()
    assert (w.state_of(item), w.decider.calls) == ("done", 2)


def test_a_park_whose_time_comes_while_the_decider_still_answers_is_a_good_one(world):
    def slow(request):
        w.now += 120
        return park("2027-01-15T08:01:00Z")

    w = world(slow, answer())
    item = w.hand()
    w.drain()
    assert (w.state_of(item), w.decider.calls) == ("done", 2)


def test_a_park_whose_time_ran_out_unseen_is_asked_about_not_decided(world):
    w = world(park("2027-01-16T00:00:00Z", expires="2027-01-17T00:00:00Z"), answer())
    item = w.hand()
    w.drain()
    w.now += 30 * 86400
    w.drain()
    assert (w.state_of(item), w.decider.calls, w.flags()[0]["cause"]) == ("waiting", 1, "expired")
    w.store.people.resolve(w.flags()[0]["id"], Answer("anna", "try again", option=1, does="retry"), now=w.now)
    w.drain()
    assert w.state_of(item) == "done"


def test_a_session_that_crashed_is_told_of_by_the_next_one_as_a_failed_attempt(world):
    w = world(answer())
    w.hand("count the sheep")
    w.claim()
    w.store.claims.reclaim([(w.store.claims.leases()[0], "worker")], now=w.now, crash_limit=3)
    w.drain()
    with w.store.db.read() as conn:
        told = conn.execute("SELECT text, failed FROM episodes").fetchall()
    assert [row["failed"] for row in told] == [1]
    assert "crashed on it, after crash 1 (worker)" in told[0]["text"]


def test_bad_output_gets_one_repair_call_with_the_validator_s_words(world):
    w = world({"decision": "answer", "reason": "r"}, answer())
    item = w.hand()
    w.drain()
    assert w.state_of(item) == "done"
    assert "text" in w.decider.requests[1]["repair"]["fault"]
    assert w.decider.calls == 2


def test_plain_text_is_never_an_answer(world):
    w = world("The answer is 42.")
    item = w.hand()
    assert [one.outcome for one in w.drain()] == ["failed"]
    assert w.state_of(item) == "queued"
    assert w.item(item)["result"] is None


def test_decider_failures_wait_longer_each_time_and_the_fifth_asks_a_person(world):
    """FIELD 25: they have their own limit and are not crashes."""
    w = world(failure("quota is gone", raw="429"))
    item = w.hand()
    waits = []
    for _ in range(4):
        w.drain()
        due = w.store.claims.ready(["q"], now=w.now).next_due_at
        waits.append(due - w.now)
        w.now = due
    for wait, base in zip(waits, (2, 10, 60, 300), strict=True):
        assert base <= wait < base * 1.2
    w.drain()
    assert (w.state_of(item), w.flags()[0]["cause"], w.decider.calls) == ("waiting", "failures", 5)
    assert w.flags()[0]["evidence"] == ["429"]
    assert w.store.views.status(["q"], now=w.now)["queues"]["q"]["forced_retries_in_a_row"] == 0


def test_a_good_session_ends_the_run_of_failures(world):
    w = world(failure(), park("2027-01-17T00:00:00Z"), failure(), answer())
    w.hand()
    for _ in range(4):
        w.drain()
        w.now += 86400
    with w.store.db.read() as conn:
        assert conn.execute("SELECT failures FROM nodes").fetchone()[0] == 0


def test_what_the_other_side_asks_for_is_waited_for(world):
    w = world(failure(retry_after_s=500))
    w.hand()
    w.drain()
    assert w.store.claims.ready(["q"], now=w.now).next_due_at == NOW + 500


def test_a_runaway_becomes_a_question_at_max_decisions(world):
    w = world(flag(), policy={"max_decisions": 3})
    item = w.hand()
    for _ in range(3):
        w.drain()
        w.store.people.resolve(w.flags()[0]["id"], Answer("anna", "left", option=1), now=w.now)
    w.drain()
    assert (w.flags()[0]["cause"], w.decider.calls) == ("max_decisions", 3)
    w.store.people.resolve(w.flags()[0]["id"], Answer("anna", "try again", option=1, does="retry"), now=w.now)
    w.drain()
    assert (w.state_of(item), w.decider.calls) == ("waiting", 4)


def test_an_item_too_large_for_its_context_is_asked_about_and_nothing_is_spent(world):
    w = world(policy={"context_chars": 2000})
    w.hand("x" * 50_000)
    w.drain()
    assert (w.flags()[0]["cause"], w.decider.calls) == ("context", 0)


def test_an_unreadable_row_is_flagged_and_the_rest_goes_on(world):
    w = world()
    bad, good = w.hand("bad"), w.hand("good")
    with w.store.db.write(point="intake") as conn:
        conn.execute("UPDATE items SET constraints = '[{' WHERE id = ?", (bad,))
    w.drain()
    assert (w.state_of(good), w.flags()[0]["item"], w.flags()[0]["cause"]) == ("done", bad, "unreadable")


def test_a_row_changed_by_hand_is_not_believed(world):
    w = world()
    item = w.hand("pay 10")
    with w.store.db.write(point="intake") as conn:
        conn.execute("UPDATE items SET body = 'pay 1000' WHERE id = ?", (item,))
    w.drain()
    assert (w.flags()[0]["cause"], w.decider.calls) == ("unreadable", 0)


def test_a_session_whose_claim_was_taken_writes_nothing_and_says_so(world):
    w = world()
    item = w.hand()
    claim = w.claim()
    w.store.claims.reclaim([(w.store.claims.leases()[0], "worker")], now=w.now, crash_limit=3)
    before = w.commits()
    assert run_session(w.room, claim).outcome == "conflict"
    assert (w.commits(), w.item(item)["result"]) == (before, None)


def test_the_next_claim_rides_on_the_checkpoint_of_a_quick_session_and_not_of_a_slow_one(world):
    for seconds, rides in ((0.5, True), (2.0, False)):
        w = world()
        w.hand(f"one {seconds}")
        w.hand(f"two {seconds}")
        order = Order(["q"], owner="me", daemon="d", trigger="test", lease_s=60, deadline_s=60)
        clock = iter([w.now, *[w.now + seconds] * 50])
        claim = w.claim()
        before = w.commits()
        ended = run_session(w.room._replace(clock=lambda: next(clock)), claim, following=lambda: order)  # noqa: B023
        assert (ended.outcome, ended.following is not None) == ("answered", rides)
        assert w.commits() - before == 1


class SlowOutbox:
    """The papers of a store whose outbox lies on a slow disk."""

    def __init__(self, papers):
        self._papers = papers

    def __getattr__(self, name):
        return getattr(self._papers, name)

    def due(self, **which):
        time.sleep(3)
        return self._papers.due(**which)


def test_the_time_of_a_session_whose_claim_rode_begins_when_its_turn_comes(world):
    """However long the files of the one before took."""
    w = world()
    w.now = time.time()
    w.hand("one")
    w.hand("two")
    w.store.papers = SlowOutbox(w.store.papers)
    allowed = []

    class Asked(Scripted):
        def decide(self, request, *, timeout_s):
            allowed.append((timeout_s, w.store.claims.leases()[0].deadline_at - time.time()))
            return super().decide(request, timeout_s=timeout_s)

    orders = Plan(
        state_dir=w.state,
        folder=w.folder,
        limits=DaemonLimits(session_timeout="30s"),
        queues={"q": w.policies["q"]},
        deciders={},
    )
    assert drain(orders, w.store, w.link, deciders={"scripted": Asked()}) == 2
    assert all(seconds > 27 and left > 27 for seconds, left in allowed), allowed


def test_a_session_that_failed_claims_nothing_with_its_end(world):
    w = world()
    w.hand("one")
    w.hand("two")
    w.decider.script = [failure()]
    order = Order(["q"], owner="me", daemon="d", trigger="test", lease_s=60, deadline_s=60)
    assert run_session(w.room, w.claim(), following=lambda: order).following is None


def test_a_stop_before_the_decision_gives_the_claim_back_uncounted(world):
    """FIELD 31"""
    w = world()
    item = w.hand()
    claim = w.claim()
    w.link.ask_stop()
    assert run_session(w.room, claim).outcome == "released"
    assert (w.decider.calls, w.item(item)["attempts"]) == (0, 0)


def test_a_stored_decision_of_the_same_inputs_is_never_asked_again(world):
    w = world(answer("first"))
    item = w.hand()
    w.drain()
    with w.store.db.write(point="intake") as conn:  # as if the node had been lost, and its decision not
        conn.execute("UPDATE nodes SET state = 'pending', result = NULL WHERE item_id = ?", (item,))
        conn.execute(
            "UPDATE items SET state = 'open', result = NULL, finished_at = NULL WHERE id = ?", (item,)
        )
    w.decider.script = [answer("second")]
    w.drain()
    assert (w.item(item)["result"]["text"], w.decider.calls) == ("first", 1)


def test_a_cited_passage_must_have_been_shown(world):
    w = world(answer(citations=["docs/tea.md#1"]))
    w.doc("tea.md", "# Tea\n\nTea is made with water that has just boiled.\n")
    item = w.hand("How is tea made with water?")
    w.drain()
    assert w.item(item)["result"]["citations"] == ["docs/tea.md#1"]
    other = w.hand("Something else entirely: zebras")
    w.drain(most=1)
    assert w.state_of(other) == "queued", "the same citation where the passage was not shown is a failure"


def test_usage_over_a_session_is_summed_and_a_missing_number_is_unknown_not_zero(world):
    w = world(
        {"decision": "answer", "usage": {"input_tokens": 5}}, answer(usage={"input_tokens": 7, "cost": 0.25})
    )
    item = w.hand()
    w.drain()
    session = w.item(item)["sessions"][0]
    assert (session["input_tokens"], session["output_tokens"], session["cost"]) == (12, None, None)


def test_raw_requests_and_replies_are_in_the_history_and_recovery_never_reads_it(world):
    w = world(answer())
    w.hand()
    w.drain()
    kinds = [raw.kind for raw in w.store.history.of_session(1)]
    assert kinds == ["request", "reply"]
    w.store.history.close()
    for path in w.state.glob("history.db*"):
        path.unlink()
    again = w.hand("another")
    w.drain()
    assert w.state_of(again) == "done"


def test_a_decider_that_wants_the_context_as_text_gets_it_and_what_it_got_is_kept(world):
    w = world(failure("nobody there", away=True), answer())
    w.decider.wants_text = True
    w.hand("what is it?")
    for _ in range(2):
        w.session()
        w.now += 100
    kinds = [[raw.kind for raw in w.store.history.of_session(number)] for number in (1, 2)]
    assert kinds == [["request", "error"], ["request", "reply"]]
    asked = json.loads(w.store.history.of_session(2)[0].text)
    assert asked == w.decider.requests[1]
    assert [block["name"] for block in asked["blocks"]] == ["rules", "item", "budget"]
    assert [block["stable"] for block in asked["blocks"]] == [True, False, False]
    assert (asked["must_cite"], asked["decisions"]) == (False, ["answer", "flag", "park"])


def test_a_question_for_people_keeps_its_options_as_given(world):
    w = world(flag())
    w.hand()
    w.drain()
    assert w.flags()[0]["questions"] == [QUESTION]
