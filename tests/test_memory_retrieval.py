"""Retrieval finds what bears on a question, ranked like exact BM25, for any query text and any size."""

from __future__ import annotations

import re
import statistics
import time
from pathlib import Path

import pytest

from benchmarks.retrieval import DATA, Exact, Memory, entries, hostile, ndcg, questions, read_set
from memory import ranking
from memory.retrieval import QUERY_CHARS, RECENCY_SHARE, Hit, keep_one_failed, retrieve
from memory.tokens import tokens
from store.search import add_doc, drop_doc, fold

NOW = 1_700_000_000.0
DAY_S = 86_400.0
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no labelled data at {DATA} (SHIFTWORK_DATA)")


@pytest.fixture
def memory():
    made = Memory()
    yield made
    made.conn.close()


def add(memory, ref, text, *, queue="q", kind="episode", at=NOW, failed=False):
    add_doc(memory.conn, queue=queue, kind=kind, ref=ref, tokens=tokens(text), at=at, failed=failed)


def ask(memory, query, *, queue="q", kinds=("episode",), limit=10, now=NOW):
    return retrieve(memory.search, query, queue=queue, kinds=kinds, limit=limit, now=now)


def refs(hits):
    return [hit.ref for hit in hits]


def test_an_empty_store_finds_nothing(memory):
    assert ask(memory, "anything at all") == []


@pytest.mark.parametrize("folded", [False, True])
def test_one_document_is_found_with_a_score_above_zero(memory, folded):
    """FIELD 39: rank-bm25 alone scores a single document below zero."""
    add(memory, 1, "The valve leaks at 3 bar")
    if folded:
        fold(memory.conn)
    (hit,) = ask(memory, "leaking valves")
    assert (hit.kind, hit.ref, hit.failed, hit.observed_at) == ("episode", 1, False, NOW)
    assert hit.score > 0
    assert ask(memory, "pump") == []


def test_a_word_that_every_document_holds_still_finds_them_all(memory):
    """FIELD 39: no score is cut at zero."""
    for ref in range(6):
        add(memory, ref, "valve", at=NOW + ref)
    assert refs(ask(memory, "valve")) == [5, 4, 3, 2, 1, 0]


def test_a_question_without_words_or_without_places_finds_nothing(memory):
    add(memory, 1, "valve")
    assert ask(memory, " ?! ") == ask(memory, []) == ask(memory, "valve", limit=0) == []


def test_text_and_its_tokens_ask_the_same(memory):
    add(memory, 1, "ERR-1042 in the valve")
    assert ask(memory, "err_1042") == ask(memory, tokens("ERR-1042")) != []


def test_the_same_words_are_found_the_same_way_before_and_after_folding(memory):
    for ref in range(60):
        add(memory, ref, f"valve {'leak ' * (ref % 5)} part{ref % 7} {'filler ' * (ref % 11)}", at=NOW - ref)
    before = ask(memory, "leak of part3 valve")
    fold(memory.conn)
    assert ask(memory, "leak of part3 valve") == before


def test_other_queues_change_nothing_about_a_search(memory):
    for ref in range(40):
        add(memory, ref, f"valve {'leak ' * (ref % 5)} part{ref % 7}", at=NOW - ref)
    fold(memory.conn)
    alone = ask(memory, "leak part3")
    for ref in range(200):
        add(memory, ref, "leak leak part3", queue="other")
        add(memory, ref, "leak leak part3", kind="passage")
    fold(memory.conn)
    assert ask(memory, "leak part3") == alone


def test_a_superseded_entry_drops_out_at_once(memory):
    for ref in range(3):
        add(memory, ref, "valve leaks", at=NOW + ref)
    fold(memory.conn)
    drop_doc(memory.conn, queue="q", kind="episode", ref=2)
    assert refs(ask(memory, "valve")) == [1, 0]


def test_a_repeated_word_of_the_question_weighs_each_time(memory):
    add(memory, 1, "valve gasket washer")
    add(memory, 2, "pump gasket washer")
    assert refs(ask(memory, "valve pump pump"))[0] == 2
    assert refs(ask(memory, "valve valve pump"))[0] == 1


def test_ties_go_to_the_newest(memory):
    for ref, at in ((1, NOW - 2), (2, NOW), (3, NOW - 1)):
        add(memory, ref, "same words", kind="passage", at=at)
    assert refs(ask(memory, "words", kinds=("passage",))) == [2, 3, 1]


def test_recency_counts_at_most_a_tenth_and_only_for_episodes(memory):
    for kind in ("episode", "passage"):
        add(memory, 1, "valve", kind=kind, at=NOW)
        add(memory, 2, "valve", kind=kind, at=NOW - 100 * 365 * DAY_S)
    new, old = ask(memory, "valve")
    assert (new.ref, old.ref) == (1, 2)
    assert new.score / old.score == pytest.approx(1 + RECENCY_SHARE)
    first, second = ask(memory, "valve", kinds=("passage",))
    assert first.score == second.score
    ahead = ask(memory, "valve", now=NOW - 10 * DAY_S)[0]  # a clock set back
    assert ahead.score == pytest.approx(new.score)


def test_a_better_old_episode_stays_before_a_new_one_that_says_little(memory):
    add(memory, 1, "valve leak at the gasket", at=NOW - 1000 * DAY_S)
    add(memory, 2, "valve and eight other words that say nothing here", at=NOW)
    assert refs(ask(memory, "valve leak")) == [1, 2]


@pytest.mark.parametrize("folded", [False, True])
def test_one_place_is_kept_for_the_best_failed_attempt(memory, folded):
    for ref in range(900):  # more than are ranked
        add(memory, ref, "valve leak fixed")
    add(memory, 1001, "valve replaced, no change, and a good many other words", failed=True)
    add(memory, 1002, "valve leak persists, and a good many other words beside", failed=True)
    while folded and fold(memory.conn):
        pass
    hits = ask(memory, "valve leak", limit=5)
    assert [hit.failed for hit in hits] == [False, False, False, False, True]
    assert hits[-1].ref == 1002
    assert [hit.failed for hit in ask(memory, "valve leak", limit=1)] == [False]


def test_a_failed_attempt_among_the_best_takes_no_second_place():
    hits = [Hit("episode", n, 10.0 - n, n in (1, 4), NOW) for n in range(6)]
    assert refs(keep_one_failed(hits, 3)) == [0, 1, 2]
    assert refs(keep_one_failed(hits[:1] + hits[2:], 3)) == [0, 2, 4]
    assert keep_one_failed([], 3) == []


def test_several_kinds_are_ranked_together(memory):
    add(memory, 1, "valve", kind="episode")
    add(memory, 1, "valve leak", kind="passage")
    found = ask(memory, "valve leak", kinds=("episode", "passage"))
    assert {(hit.kind, hit.ref) for hit in found} == {("episode", 1), ("passage", 1)}


def test_the_rarest_terms_are_looked_up_within_the_budget_and_always_one():
    assert ranking.rarest({"the": 90, "valve": 5, "leak": 5}, postings=20) == ["leak", "valve"]
    assert ranking.rarest({"the": 90}, postings=20) == ["the"]
    assert ranking.rarest({}, postings=20) == []
    assert len(ranking.rarest({f"t{n}": 1 for n in range(1000)})) == ranking.TERMS_MAX


def test_hardly_more_candidates_are_ranked_the_more_documents_there_are():
    depths = [ranking.depth(10**n) for n in range(8)]
    assert depths == sorted(depths)
    assert (depths[0], depths[-1]) == (100, 197)


def test_a_word_over_the_budget_is_ranked_among_the_newest(memory, monkeypatch):
    monkeypatch.setattr(ranking, "POSTINGS", 10)
    for ref in range(50):
        add(memory, ref, "valve", at=NOW + ref)
    fold(memory.conn)
    assert refs(ask(memory, "valve", limit=3)) == [49, 48, 47]


def test_a_question_as_long_as_a_file_is_known_by_its_beginning(memory):
    for ref in range(200):
        add(memory, ref, f"valve part{ref}")
    fold(memory.conn)
    text = " ".join(f"part{n} valve{n}" for n in range(200_000))
    began = time.process_time()
    assert ask(memory, text) == ask(memory, text[:QUERY_CHARS]) != []
    assert time.process_time() - began < 2


def test_no_query_text_is_search_syntax_and_none_raises(memory):
    for ref, text in enumerate(
        ["terms AND valve", "NEAR OR NOT", "战国无双", "foo_bar ERR-1042", "a " * 300] * 20
    ):
        add(memory, ref, text)
    fold(memory.conn)
    for text in hostile(5_000):
        for hit in ask(memory, text, limit=3):
            assert hit.score > 0
    assert ask(memory, '"valve" OR terms: * NEAR(a b)')


def test_only_one_file_knows_the_ranking_library():
    root = Path(__file__).parent.parent
    rooms = ("daemon", "triggers", "sessions", "memory", "notify", "store")
    users = [
        str(path.relative_to(root))
        for room in rooms
        for path in (root / room).rglob("*.py")
        if re.search(r"^\s*(from|import) rank_bm25", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert users == ["memory/ranking.py"]


@needs_data
@pytest.mark.data
@pytest.mark.parametrize(("name", "every", "bound"), [("cranfield", 1, 0.51), ("cmrc2018_zh", 12, 0.96)])
def test_labelled_questions_find_their_documents(memory, name, every, bound):
    docs, queries, relevant = read_set(name)
    memory.fill([tokens(doc["text"]) for doc in docs])
    gains = [
        ndcg([docs[hit.ref]["id"] for hit in memory.ask(query["text"])], relevant[query["id"]])
        for query in queries[::every]
        if query["id"] in relevant
    ]
    assert statistics.fmean(gains) >= bound


@needs_data
@pytest.mark.data
def test_the_ten_best_of_five_thousand_are_those_of_exact_bm25(memory):
    """The same at 100,000 entries, with the cost, is in benchmarks/retrieval.py."""
    documents = [tokens(text) for text in entries(5_000)]
    memory.fill(documents)
    exact = Exact(documents)
    shared = []
    for text in questions(60):
        best = exact.best(tokens(text))
        shared.append(len(set(best) & set(refs(memory.ask(text)))) / max(1, len(best)))
    assert statistics.fmean(shared) >= 0.98
