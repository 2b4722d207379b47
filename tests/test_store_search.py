"""The search index: what is added is found at once, what is dropped is gone at once, the counts are always true."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.database import Database
from store.opening import prepare
from store.search import SEARCH_DDL, TAIL_DOCS, Search, SearchView, add_doc, drop_doc, fold, fold_if_due

NOW = 1_700_000_000.0


@pytest.fixture
def conn():
    made = sqlite3.connect(":memory:", isolation_level=None)
    made.executescript(SEARCH_DDL)
    yield made
    made.close()


def add(conn, ref, words, *, queue="q", kind="episode", failed=False):
    return add_doc(conn, queue=queue, kind=kind, ref=ref, tokens=words.split(), at=NOW + ref, failed=failed)


def drop(conn, ref, *, queue="q", kind="episode"):
    return drop_doc(conn, queue=queue, kind=kind, ref=ref)


def refs(view, *terms):
    return sorted(doc.ref for doc in view.candidates(terms, limit=1000))


def assert_true(conn, live):
    """The index, its counts and what searches see are exactly the live documents: {(queue, kind, ref): words}."""
    for queue, kind in {key[:2] for key in live} | {("q", "episode")}:
        view = SearchView(conn, queue, (kind,))
        here = {ref: words.split() for (q, k, ref), words in live.items() if (q, k) == (queue, kind)}
        assert (view.docs, view.length) == (len(here), sum(map(len, here.values())))
        terms = Counter(term for words in here.values() for term in set(words))
        assert view.frequencies([*terms, "absent"]) == terms
        for term in terms:
            assert refs(view, term) == sorted(ref for ref, words in here.items() if term in words)
    conn.execute("INSERT INTO search_index (search_index, rank) VALUES ('integrity-check', 1)")


WORDS = st.lists(st.sampled_from(["aa", "bb", "cc", "dd", "ee_ff", "战国"]), max_size=5).map(" ".join)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"),
            st.sampled_from("pq"),
            st.sampled_from(["episode", "passage"]),
            WORDS,
            st.booleans(),
        ),
        st.tuples(st.just("drop"), st.integers(0, 30)),
        st.tuples(st.just("fold")),
    ),
    max_size=30,
)


@settings(max_examples=80, deadline=None)
@given(STEPS)
def test_whatever_is_added_dropped_and_folded_a_search_sees_exactly_the_live_documents(steps):
    conn = sqlite3.connect(":memory:", isolation_level=None)
    conn.executescript(SEARCH_DDL)
    live = {}
    for ref, step in enumerate(steps):
        match step:
            case ("add", queue, kind, words, failed):
                assert add(conn, ref, words, queue=queue, kind=kind, failed=failed)
                live[queue, kind, ref] = words
            case ("drop", place) if live:
                queue, kind, gone = sorted(live)[place % len(live)]
                assert drop(conn, gone, queue=queue, kind=kind)
                del live[queue, kind, gone]
            case ("fold",):
                fold(conn)
        assert_true(conn, live)
    for queue, kind, ref in list(live):
        drop(conn, ref, queue=queue, kind=kind)
    fold(conn)
    assert conn.execute("SELECT count(*) FROM search_terms").fetchone()[0] == 0
    assert conn.execute("SELECT count(*) FROM search_docs").fetchone()[0] == 0
    conn.close()


def test_a_document_is_found_in_the_transaction_that_adds_it_and_not_when_that_fails(tmp_path):
    prepare(tmp_path)
    db = Database(tmp_path)
    search = Search(db)
    with pytest.raises(RuntimeError), db.write(point="checkpoint") as conn:  # noqa: PT012 - one transaction
        for ref in range(TAIL_DOCS + 5):
            add(conn, ref, "valve pressure")
        fold_if_due(conn)
        with search.view("q", ("episode",)) as view:
            assert view.docs == TAIL_DOCS + 5
        raise RuntimeError
    with search.view("q", ("episode",)) as view:
        assert (view.docs, refs(view, "valve")) == (0, [])
    with db.write(point="checkpoint") as conn:
        add(conn, 1, "valve pressure")
        fold_if_due(conn)
    other = Database(tmp_path)
    with Search(other).view("q", ("episode",)) as view:
        assert refs(view, "valve") == [1]
    other.close()
    db.close()


def test_one_view_is_one_moment_while_others_write(tmp_path):
    prepare(tmp_path)
    db, other = Database(tmp_path), Database(tmp_path)
    with db.write(point="checkpoint") as conn:
        add(conn, 1, "valve")
    with Search(db).view("q", ("episode",)) as view:
        with other.write(point="checkpoint") as conn:
            add(conn, 2, "valve")
            fold(conn)
        assert view.docs == 1
        assert view.frequencies(["valve"]) == {"valve": 1}
        assert refs(view, "valve") == [1]
    db.close()
    other.close()


def test_adding_is_one_row_and_every_sixty_fifth_addition_settles_all(conn):
    add(conn, 0, "first makes the scope")
    folds = []
    for ref in range(1, 200):
        before = conn.total_changes
        add(conn, ref, "some words here")
        assert conn.total_changes - before == 1
        folds.append(fold_if_due(conn))
        assert conn.execute("SELECT count(*) FROM search_docs WHERE pending <> 0").fetchone()[0] <= TAIL_DOCS
    assert [n for n in folds if n] == [TAIL_DOCS + 1] * 3


def test_a_document_is_never_overwritten(conn):
    assert add(conn, 1, "first")
    assert not add(conn, 1, "second")
    fold(conn)
    assert not add(conn, 1, "second")
    assert refs(SearchView(conn, "q", ("episode",)), "second") == []


def test_a_dropped_document_can_come_back_before_the_drop_is_settled(conn):
    add(conn, 1, "old words")
    fold(conn)
    assert drop(conn, 1)
    assert not drop(conn, 1)
    assert add(conn, 1, "new words")
    assert_true(conn, {("q", "episode", 1): "new words"})
    fold(conn)
    assert_true(conn, {("q", "episode", 1): "new words"})


def test_a_queue_and_a_kind_see_only_their_own(conn):
    add(conn, 1, "valve")
    add(conn, 2, "valve", queue="other")
    add(conn, 3, "valve", kind="passage")
    fold(conn)
    assert refs(SearchView(conn, "q", ("episode",)), "valve") == [1]
    assert refs(SearchView(conn, "q", ("episode", "passage")), "valve") == [1, 3]
    assert refs(SearchView(conn, "nowhere", ("episode",)), "valve") == []
    assert refs(SearchView(conn, "q", ()), "valve") == []


def test_a_term_that_looks_like_another_scopes_is_not_taken_for_it(conn):
    add(conn, 1, "1")  # scope 1
    add(conn, 2, "1_1", queue="other")  # scope 2
    fold(conn)
    assert refs(SearchView(conn, "q", ("episode",)), "1_1") == []
    assert refs(SearchView(conn, "other", ("episode",)), "1_1") == [2]


def test_drops_waiting_to_be_settled_take_no_places_from_the_living(conn):
    for ref in range(10):
        add(conn, ref, "valve" if ref < 5 else "valve and more words")
    fold(conn)
    for ref in range(5):  # the five best
        drop(conn, ref)
    found = SearchView(conn, "q", ("episode",)).candidates(["valve"], limit=5)
    assert sorted(doc.ref for doc in found) == [5, 6, 7, 8, 9]


def test_the_newest_alone_are_ranked_where_nearly_all_match(conn):
    for ref in range(20):
        add(conn, ref, "the word")
    fold(conn)
    found = SearchView(conn, "q", ("episode",)).candidates(["the"], limit=3, newest=5)
    assert [doc.ref for doc in found] == [19, 18, 17]


def test_the_hot_queries_use_their_indexes(conn):
    def plan(sql):
        return " ".join(row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {sql}"))

    assert "COVERING INDEX search_docs_pending" in plan("SELECT count(*) FROM search_docs WHERE pending <> 0")
    assert "search_docs_pending" in plan(
        "SELECT tokens FROM search_docs WHERE pending <> 0 AND scope IN (1, 2)"
    )
    assert "PRIMARY KEY (scope=? AND term=?)" in plan(
        "SELECT docs FROM search_terms WHERE scope = 1 AND term IN ('a', 'b')"
    )
    drop_sql = "UPDATE search_docs SET pending = -1 WHERE pending >= 0 AND scope IN (1, 2) AND ref = 1"
    assert "search_docs_by_ref (scope=? AND ref=?)" in plan(drop_sql)


def test_any_connection_that_gives_snapshots_can_be_searched(conn):
    class Plain:
        @contextmanager
        def read(self):
            yield conn

    add(conn, 7, "valve")
    with Search(Plain()).view("q", ("episode",)) as view:
        assert refs(view, "valve") == [7]
