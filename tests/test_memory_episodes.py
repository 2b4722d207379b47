"""Not everything deserves to be remembered, and nothing is remembered unasked (FIELD 37, 40)."""

from __future__ import annotations

import pytest
from memory_world import NOW, build, claim, finish, hand, loaded, new_store

from memory.episodes import lesson_of, of_notes, same_words, sift
from store.checkpoints import Note


@pytest.fixture
def store(tmp_path):
    one = new_store(tmp_path)
    yield one
    one.close()


@pytest.fixture
def sifted(store):
    """Judges lessons in the context of a fresh item whose queue remembers `known`."""

    def judge(*lessons, known=(), body="How are refunds booked?", door="file"):
        if known:
            hand(store, f"earlier {body}")
            finish(store, claim(store), lessons=[lesson_of(text, evidence=["k-1"]) for text in known])
        hand(store, body, door=door)
        held = claim(store)
        return sift(lessons, loaded=loaded(store, held), context=build(store, held))

    return judge


def lesson(text, *evidence, failed=False):
    return {"text": text, "evidence": list(evidence), "failed": failed}


def test_a_lesson_with_evidence_is_kept_with_where_it_comes_from(sifted):
    kept = sifted(lesson("Refunds over 100 need\n a second  signature", "docs/a.md#1")).kept
    assert [(one.text, one.evidence, one.source) for one in kept] == [
        ("Refunds over 100 need a second signature", ("docs/a.md#1",), "file hello.md, q-0001")
    ]
    assert "refund" in kept[0].tokens


def test_a_lesson_without_evidence_is_refused_unless_something_failed(sifted):
    found = sifted(lesson("Refunds are slow"), lesson("The nightly export cannot be opened", failed=True))
    assert [one.text for one in found.kept] == ["The nightly export cannot be opened"]
    assert [one.why for one in found.refused] == ["it has no evidence"]


@pytest.mark.parametrize(
    "text",
    [
        "Looked through the archive and found nothing",
        "Read the file and it was empty",
        "No results for the customer's name",
        "The term was not found in the handbook",
        "在档案里没有找到",
    ],
)
def test_looked_and_found_nothing_is_refused_unless_it_is_a_failed_attempt(sifted, text):
    found = sifted(lesson(text, "docs/a.md#1"))
    assert [one.why for one in found.refused] == ["it says that nothing was found"]
    assert len(sifted(lesson(text, failed=True), body="another").kept) == 1


def test_an_empty_search_that_says_what_to_do_instead_is_a_lesson(sifted):
    assert sifted(
        lesson("The key retries was not found in version 3: use attempts instead", "docs/a.md#1")
    ).kept


def test_the_same_lesson_twice_is_one(sifted, store):
    found = sifted(lesson("Refunds need a signature", "k-1"), lesson("refunds need a  signature.", "k-1"))
    assert (len(found.kept), [one.why for one in found.refused]) == (1, ["the same lesson twice"])
    held = store.claims.leases()
    assert len(held) == 1


def test_a_lesson_known_from_an_earlier_session_is_stored_once(store):
    for number in range(3):
        hand(store, f"question {number}")
        finish(store, claim(store), lessons=[lesson_of("Refunds need a signature" + "!" * number)])
    with store.db.read() as conn:
        assert conn.execute("SELECT count(*) FROM episodes").fetchone()[0] == 1


@pytest.mark.parametrize(
    "text",
    [
        "Refunds over 100 euro need a second signature by the head of sales",
        "refunds over 100 euro need the signature by a second head of sales",
        "Refunds over 100 euro need a second signature",
    ],
)
def test_what_was_recalled_is_not_written_back(sifted, text):
    known = "Refunds over 100 euro need a second signature by the head of sales"
    found = sifted(lesson(text, "docs/a.md#1"), known=[known])
    assert [one.why for one in found.refused] == ["it says what was recalled"]


@pytest.mark.parametrize(
    "text",
    [
        "Refunds over 200 euro need a second signature by the head of sales",
        "Refunds over 100 euro do not need a second signature by the head of sales",
        "Refunds over 100 euro need a second signature by the head of sales since March",
    ],
)
def test_news_about_something_recalled_is_kept(sifted, text):
    known = "Refunds over 100 euro need a second signature by the head of sales"
    assert len(sifted(lesson(text, "docs/a.md#1"), known=[known]).kept) == 1


def test_what_rests_on_recalled_memory_alone_is_refused(sifted):
    found = sifted(lesson("So everything is slower in winter", "e-1", "m-2"))
    assert [one.why for one in found.refused] == ["it rests on recalled memory alone"]
    assert sifted(lesson("So everything is slower in winter", "e-1", "docs/a.md#1"), body="another").kept


@pytest.mark.parametrize(
    ("door", "trust"),
    [("file", "untrusted"), ("webhook", "untrusted"), ("timer", "operator"), ("cli", "person")],
)
def test_trust_is_that_of_the_door(sifted, door, trust):
    assert sifted(lesson("Refunds need a signature", "k-1"), door=door).kept[0].trust == trust


def test_trust_is_the_lowest_in_the_lineage(sifted):
    """FIELD 40: an untrusted episode that stood in the context taints what was learned there."""
    known = ["Refunds are booked by the shop's own script"]
    found = sifted(lesson("Refunds need a signature", "k-1"), known=known, door="timer")
    assert [one.trust for one in found.kept] == ["untrusted"]


def test_a_digest_knows_words_and_numbers_not_spelling():
    assert same_words("Der  Zug, 9:30!", failed=False) == same_words("der zug 9:30", failed=False)
    assert same_words("at 9:30", failed=False) != same_words("at 9:31", failed=False)
    assert same_words("-5 is it", failed=False) != same_words("5 is it", failed=False)
    assert same_words("it is", failed=False) != same_words("it is", failed=True)


def test_what_may_leave_the_notes_with_evidence_is_an_episode_and_is_not_shown_twice(store):
    hand(store, "How are refunds booked?")
    held = claim(store)
    notes = [
        Note("conclusion", "q-0001: refunds are booked by hand", ("docs/a.md#1",)),
        Note("conclusion", "q-0001: said without evidence"),
        Note("rejected", "q-0001: asking the script for refunds"),
        Note("stage", "q-0001: half way", ("docs/a.md#1",)),
    ]
    lessons = of_notes(notes, loaded=loaded(store, held), context=build(store, held))
    assert [(one.text, one.failed) for one in lessons] == [
        ("refunds are booked by hand", False),
        ("asking the script for refunds", True),
    ]
    finish(store, held, notes_=notes, lessons=lessons)
    hand(store, "Who books refunds by hand?")
    held = claim(store)
    assert build(store, held).request["episodes"] == []
    with store.db.write(point="checkpoint") as conn:
        conn.execute("UPDATE notes SET dropped_at = ?", (NOW,))
    shown = build(store, held).request["episodes"]
    assert {one["text"] for one in shown} == {"refunds are booked by hand", "asking the script for refunds"}
