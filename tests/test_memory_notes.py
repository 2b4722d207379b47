"""Compaction is code: it drops or keeps, word for word, and never touches a constraint."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from memory_world import NOW, build, claim, finish, hand, limits, new_store

from memory.notes import compact, counted_line, newest_stages, stays
from store.checkpoints import Note
from store.memory import NoteRow


def note(number, kind="conclusion", *, item="q-0001", live=False, pinned=False, text=None, merged=1):
    words = text if text is not None else f"{item} came to {number}"
    return NoteRow(number, item, f"n-{item}", kind, words, (), pinned, live, None, merged, NOW + number)


def apply(notes, leaving):
    """What the store makes of it."""
    rows = {one.id: one for one in notes}
    for number, text in leaving:
        if text is None:
            del rows[number]
        else:
            rows[number] = rows[number]._replace(text=text, merged=rows[number].merged + 1)
    return list(rows.values())


def after(notes, *, most=20, chars=4000, per_item=None):
    leaving = compact(notes, notes_max=most, notes_chars=chars, per_item_max=per_item)
    return apply(notes, leaving)


def test_under_the_caps_nothing_happens():
    assert compact([note(n) for n in range(1, 21)], notes_max=20, notes_chars=4000) == []


def test_over_the_cap_the_oldest_conclusions_of_finished_items_leave():
    kept = after([note(n) for n in range(1, 26)])
    assert [one.id for one in kept] == list(range(6, 26))


def test_the_cap_in_characters_counts_too():
    kept = after([note(n, text="x" * 100) for n in range(1, 11)], chars=450)
    assert [one.id for one in kept] == [7, 8, 9, 10]


def test_an_unfinished_items_conclusions_stage_and_questions_stay_whatever_their_age():
    old = [
        note(1, live=True, item="q-0007"),
        note(2, "stage", live=True, item="q-0007"),
        note(3, "question", live=True, item="q-0007"),
        note(4, pinned=True),
    ]
    kept = after([*old, *[note(n) for n in range(5, 60)]], most=5)
    assert [one for one in kept if one.id <= 4] == old
    assert [one.id for one in kept if one.id > 4] == [55, 56, 57, 58, 59]


def test_an_overtaken_stage_leaves_before_anything_else():
    notes = [note(1), note(2, "stage", item="q-0007", live=True), note(3, "stage", item="q-0007", live=True)]
    assert compact(notes, notes_max=1, notes_chars=4000) == [(2, None)]


def test_stages_and_questions_of_a_finished_item_leave_with_it():
    notes = [note(1, "stage"), note(2, "question"), note(3), note(4, "question", pinned=True)]
    assert compact(notes, notes_max=20, notes_chars=4000) == [(1, None), (2, None)]


def test_rejected_paths_become_one_counted_line_oldest_first():
    kept = after([note(n, "rejected") for n in range(1, 8)], most=3)
    assert [(one.id, one.merged) for one in kept] == [(1, 5), (6, 1), (7, 1)]
    assert kept[0].text == counted_line(5)
    again = after([*kept, note(8, "rejected")], most=3)
    assert [(one.id, one.merged, one.text) for one in again[:1]] == [(1, 6, counted_line(6))]
    assert [one.id for one in again] == [1, 7, 8]


def test_rejected_paths_outlast_what_finished_items_came_to():
    kept = after([note(1, "rejected"), note(2), note(3), note(4, "rejected")], most=2)
    assert [one.id for one in kept] == [1, 4]


def test_one_item_cannot_hold_more_than_its_share():
    own = [note(n, "rejected", item="q-0007", live=True) for n in range(1, 10)]
    kept = after(own, per_item=4)
    assert len(kept) == 4
    assert kept[0].text == counted_line(6)


def test_items_that_wait_for_a_person_do_not_push_out_what_the_queue_learned():
    waiting = [note(n, "question", item=f"q-{n:04d}", live=True) for n in range(1, 101)]
    learned = [note(n) for n in range(101, 121)]
    assert after([*waiting, *learned]) == [*waiting, *learned]


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["conclusion", "rejected", "question", "stage"]),
        st.integers(1, 5),
        st.booleans(),
        st.integers(1, 300),
    ),
    max_size=60,
)


@example(
    [
        ("conclusion", 1, False, 112),
        ("conclusion", 2, False, 1),
        ("rejected", 2, False, 1),
        ("rejected", 2, False, 1),
    ],
    2,
    200,
)
@given(ROWS, st.integers(1, 20), st.integers(200, 2000))
@settings(max_examples=200, deadline=None)
def test_what_is_left_is_verbatim_within_the_caps_and_settled(rows, most, chars):
    live = {f"q-{n}": n % 2 == 0 for n in range(1, 6)}
    notes = [
        note(
            number,
            kind,
            item=f"q-{item}",
            live=live[f"q-{item}"],
            pinned=pinned and size % 7 == 0,
            text="x" * size,
        )
        for number, (kind, item, pinned, size) in enumerate(rows, 1)
    ]
    kept = after(notes, most=most, chars=chars)
    stages = newest_stages(kept)
    before = {one.id: one.text for one in notes}
    assert all(one.text == before[one.id] or one.text == counted_line(one.merged) for one in kept)
    assert [one for one in notes if stays(one, newest_stages(notes))] == [
        one for one in kept if stays(one, stages)
    ]
    free = [one for one in kept if not stays(one, stages)]
    assert len(free) <= most or all(one.kind == "rejected" for one in free)
    assert sum(one.kind == "rejected" for one in notes) == sum(
        one.merged for one in kept if one.kind == "rejected"
    )
    assert compact(kept, notes_max=most, notes_chars=chars) == []


def plan_of(store, sql, *values):
    with store.db.read() as conn:
        return " ".join(row["detail"] for row in conn.execute(f"EXPLAIN QUERY PLAN {sql}", values))


@pytest.fixture
def store(tmp_path):
    one = new_store(tmp_path)
    yield one
    one.close()


def test_constraints_are_byte_equal_after_a_hundred_compactions(store):
    """FIELD 38."""
    rules = [
        ("Only change  test files;\n\tnever “production”.", "scope"),
        ("不要猜测", "prohibition"),
        (" x\u00a0y ", "acceptance"),
    ]
    store.memory.sync_constraints("q", rules, now=NOW)
    first = None
    for number in range(100):
        hand(store, f"question {number}")
        held = claim(store)
        built = build(store, held, limits=limits(notes_max=1, notes_chars=200))
        constraints = next(one for one in built.blocks if one.name == "constraints")
        first = first or constraints
        assert constraints == first
        assert [(one["text"], one["kind"]) for one in built.request["constraints"]] == rules
        assert all(text in constraints.text for text, _ in rules)
        finish(
            store, held, limits=limits(notes_max=1, notes_chars=200),
            notes_=[Note("conclusion", f"came to {number}"), Note("rejected", f"tried {number}")],
        )  # fmt: skip
    assert len(store.memory.notes("q")) <= 2


def test_what_leaves_the_notes_is_still_found_by_hand(store):
    from memory.lookup import lookup

    for number in range(30):
        hand(store, f"question {number}")
        finish(
            store,
            claim(store),
            notes_=[Note("conclusion", f"the answer about walrus {number} is {number * 7}")],
        )
    assert len(store.memory.notes("q")) == 20
    found = lookup(store, "walrus 3", queues=["q"], limit=50, now=NOW)
    assert found[0].text == "the answer about walrus 3 is 21"
    assert len(found) == 30


def test_thousands_of_items_that_wait_cost_a_session_no_reading(store):
    hand(store, "mine")
    mine = claim(store)
    finish(store, mine, kind="parked", not_before=NOW, parked=True, notes_=[Note("question", "which?")])
    asked = []
    with store.db.write(point="checkpoint") as conn:
        conn.executemany(
            "INSERT INTO notes (queue, item_id, node_id, kind, text, at) VALUES ('q', ?, 'n', 'question', 'which?', 1)",
            [(f"q-{n}",) for n in range(3000)],
        )
    with store.db.read() as conn:
        conn.set_trace_callback(asked.append)
        found = store.memory.notes("q", mine.item_id)
        conn.set_trace_callback(None)
    assert [one.text for one in found] == ["which?"]
    plan = plan_of(store, next(one for one in asked if "FROM notes" in one))
    assert "INDEX notes_shared" in plan
    assert "INDEX notes_of_item" in plan
    assert "SCAN" not in plan.replace("SCAN CONSTANT ROW", "")
