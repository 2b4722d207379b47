"""The store on SQLite passes the conformance suite, and what is particular to it holds too."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from store_conformance import CAPS, NOW, StoreConformance, answered, claim, flagged, hand
from stores import new_state

from store.errors import CapReached
from store.intake import Handed
from store.sqlite import open_store
from store.states import FLAG_STATES, ITEM_STATES, NODE_MOVES, NODE_STATES


@pytest.fixture
def folder(tmp_path):
    return new_state(tmp_path)


@pytest.fixture
def store(folder):
    opened = open_store(folder)
    only_known_moves(opened)
    yield opened
    opened.close()


@pytest.fixture
def other(folder):
    opened = open_store(folder)
    only_known_moves(opened)
    yield opened
    opened.close()


def only_known_moves(store):
    """Let no node of this connection make a move that the table of moves does not have."""
    known = ", ".join(f"'{before}>{after}'" for before, after in NODE_MOVES)
    store.db.connection().execute(
        "CREATE TEMP TRIGGER known_moves BEFORE UPDATE OF state ON main.nodes WHEN OLD.state <> NEW.state "
        f"AND OLD.state || '>' || NEW.state NOT IN ({known}) "
        "BEGIN SELECT RAISE(ABORT, 'a move that is not in NODE_MOVES'); END"
    )


class TestSqliteStore(StoreConformance):
    """Every sentence of the suite."""


@pytest.mark.parametrize(
    ("table", "states"), [("items", ITEM_STATES), ("nodes", NODE_STATES), ("flags", FLAG_STATES)]
)
def test_the_schema_repeats_the_states_of_each_machine(store, table, states):
    sql = (
        store.db.connection().execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()[0]
    )
    assert f"(state IN ({', '.join(map(repr, states))}))" in sql


def test_every_move_is_between_states_that_there_are():
    assert {state for move in NODE_MOVES for state in move} <= set(NODE_STATES)


def test_a_plain_session_is_two_commits(store):
    hand(store)
    before = commits(store)
    store.checkpoints.commit(claim(store), answered(), now=NOW)
    assert commits(store) - before == 2


def test_hot_reads_use_their_index(store):
    plans = {
        "SELECT seq FROM nodes WHERE queue = 'q' AND state = 'pending' AND not_before_at IS NULL AND held = 0 "
        "AND kind <> 'human' ORDER BY priority DESC, seq LIMIT 1": "nodes_ready",
        "SELECT 1 FROM nodes WHERE state = 'pending' AND not_before_at IS NOT NULL AND held = 0 AND kind <> 'human' "
        "AND not_before_at <= 5": "nodes_asleep",
        "SELECT item_id FROM nodes WHERE state IN ('running', 'blocked', 'failed')": "nodes_live",
        "SELECT min(waiting_since_at) FROM flags WHERE state IN ('waiting', 'parked') AND queue = 'q'": "flags_waiting",
    }
    with store.db.read() as conn:
        for query, index in plans.items():
            plan = " ".join(row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {query}"))
            assert index in plan, (query, plan)
            assert "TEMP B-TREE" not in plan


def test_no_statement_of_a_session_walks_through_what_only_grows(store):
    """Handing in, both commits, a flag and its answer: they cost the same with 100,000 items behind them."""
    said = []
    conn = store.db.connection()
    conn.set_trace_callback(said.append)
    delivered = Handed("q", "delivered", "webhook", key="k", delivery="d", source="webhook:shop")
    store.intake.hand_in_waiting(lambda: [delivered] * 2, now=NOW, caps=CAPS, wait_s=5)
    store.checkpoints.commit(claim(store), answered(), now=NOW)
    hand(store, "ask")
    flagged(store, claim(store))
    conn.set_trace_callback(None)
    assert len(said) > 30
    scans = {
        (row["detail"], sql)
        for sql in said
        if sql.startswith(("SELECT", "UPDATE", "INSERT", "DELETE", "WITH"))
        for row in conn.execute(f"EXPLAIN QUERY PLAN {sql}")
        if re.match(
            r"SCAN (items|nodes|sessions|flags|events|decisions|notes|episodes|deliveries|papers)\b",
            row["detail"],
        )
    }
    assert not scans


def test_a_hundred_resolves_from_another_process_beside_a_busy_writer_never_fail(store, folder):
    """FIELD 19: read, then write, in one immediate transaction behind one gate."""
    script = (
        "import sys; from pathlib import Path; from store.sqlite import open_store; from store.intake import Handed\n"
        "store = open_store(Path(sys.argv[1]))\n"
        "for n in range(100): store.intake.hand_in([Handed('r', f'other {n}', 'cli')], now=1.0, caps={'r': 1000})\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(folder)])
    for number in range(100):
        hand(store, f"mine {number}", caps={"q": 1000})
    assert child.wait(60) == 0
    assert store.views.status(["q", "r"], now=NOW)["queues"]["r"]["queued"] == 100


def test_two_processes_that_claim_at_once_never_hold_the_same_node(store, folder):
    """FIELD 26"""
    for number in range(60):
        hand(store, f"item {number}")
    script = (
        "import sys; from pathlib import Path; from store.claims import Order; from store.sqlite import open_store\n"
        "store = open_store(Path(sys.argv[1]))\n"
        "while True:\n"
        "    got = store.claims.claim(Order(['q'], owner=sys.argv[2], daemon='', trigger='', lease_s=60,\n"
        "        deadline_s=60), now=2e9)\n"
        "    if got is None: break\n"
        "    print(got.node_id)\n"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", script, str(folder), name], stdout=subprocess.PIPE, text=True)
        for name in "ab"
    ]
    held = [line for child in children for line in child.communicate(timeout=60)[0].split()]
    assert len(held) == len(set(held)) == 60


def test_marks_ride_on_the_next_commit_and_cost_none_of_their_own(store):
    seen = []
    store.db.ride_along(lambda conn: seen.append(conn.in_transaction))
    before = commits(store)
    hand(store)
    assert (seen, commits(store) - before, store.db.riders) == ([True], 1, 0)


def test_a_rider_waits_on_when_the_commit_it_rode_on_failed(store):
    store.db.ride_along(lambda conn: None)
    with pytest.raises(RuntimeError), store.db.write(point="intake"):
        raise RuntimeError
    assert store.db.riders == 1


def test_a_row_that_is_not_utf8_hides_nothing_else(store):
    bad, good = hand(store, "bad"), hand(store, "good")
    with store.db.write(point="intake") as conn:
        conn.execute("UPDATE items SET body = CAST(X'ff41' AS TEXT) WHERE id = ?", (bad.id,))
    assert [one["id"] for one in store.views.items(queue=None, state=None, limit=9, now=NOW)] == [
        good.id,
        bad.id,
    ]
    assert CAPS


def commits(store):
    with store.db.read() as conn:
        return conn.execute("SELECT seq FROM commits").fetchone()[0]


def counts(store, batches, *, caps):
    """How often the open items were counted while so many batches of one were handed in."""
    said = []
    store.db.connection().set_trace_callback(said.append)
    for number in batches:
        hand(store, f"one more {number}", caps=caps)
    store.db.connection().set_trace_callback(None)
    return sum("count(*) FROM items" in sql for sql in said)


def test_far_from_its_cap_a_queue_is_counted_once_in_a_while(store):
    """So that a batch costs the same whatever waits already."""
    assert counts(store, range(40), caps={"q": 2000}) == 1
    assert 1 <= counts(store, range(40, 120), caps={"q": 2000}) <= 2


def test_near_its_cap_a_queue_is_counted_each_time_so_that_others_count_too(store, other):
    assert counts(store, range(5), caps={"q": 1002}) == 4, "the first, and from a thousand below the cap on"
    for number in range(5):
        hand(other, f"by another process {number}", caps={"q": 1002})
    with pytest.raises(CapReached):
        hand(store, "too many", caps={"q": 10})
    claimed = claim(store)
    store.checkpoints.commit(claimed, answered(), now=NOW)
    assert hand(store, "there is room again", caps={"q": 10}).outcome == "new"


def test_what_was_rolled_back_is_room_again_at_the_next_count(store):
    with pytest.raises(ZeroDivisionError):
        store.intake.hand_in_waiting(lambda: 1 // 0, now=NOW, caps={"q": 1}, wait_s=5)
    assert hand(store, "fits", caps={"q": 1}).outcome == "new"


def test_nothing_deletes_an_item_since_their_number_is_that_of_the_newest():
    """``counting`` rests on it; who prunes items has to count them otherwise."""
    statements = " ".join(file.read_text() for file in (Path(__file__).parent.parent / "store").glob("*.py"))
    assert "INSERT INTO items (seq" in statements
    assert not re.search(r"(DELETE FROM|REPLACE INTO|OR REPLACE INTO) items\b", statements)
