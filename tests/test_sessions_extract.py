"""Quotations: verbatim, at most three sentences, best supported first, and contradictions between them seen."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.contradiction import contradiction
from sessions.extract import CANDIDATES_MAX, WEIGHTS, Candidate, Passage, extract
from sessions.sentences import UNIT_CHARS, units

RESOLVE = Passage(
    "resolve.md#3",
    "A flag waits for a person. Anna resolved the flag f-0192 in 1998 with the second option. "
    "The item went on at once. Nothing was lost. A flag that expired needs re-confirmation.",
    "docs/resolve.md",
)
OTHER = Passage(
    "store.md#1", "The store is one SQLite file. It is copied with the backup command.", "docs/store.md"
)


def best(question: str, *passages: Passage) -> Candidate:
    found = extract(question, passages).best
    assert found is not None
    return found


def sentences(text: str) -> list[str]:
    return [text[unit.start : unit.end] for unit in units(text)]


# --- sentences ---


def test_abbreviations_initials_and_decimals_end_no_sentence():
    text = "Dr. J. R. Smith vs. Mr. Jones paid 3.5 million, e.g. in the U.S. alone. It was enough."
    assert sentences(text) == [text[: text.index(" It was")], "It was enough."]


def test_headings_are_never_quoted_and_name_what_stands_below_them():
    text = "# Resolving\n\nRun the command. Then wait.\n\n## Later\nNothing."
    assert sentences(text) == ["Run the command.", "Then wait.", "Nothing."]
    assert [unit.heading for unit in units(text)] == ["Resolving", "Resolving", "Later"]


def test_list_items_table_rows_and_code_are_units_of_their_own():
    text = "Do this:\n- first item\n- second item\n\n| a | b |\n| 1 | 2 |\n\n```\ncode. More code.\n\nend\n```\nAfter."
    assert sentences(text) == [
        "Do this:", "- first item", "- second item", "| a | b |", "| 1 | 2 |",
        "```\ncode. More code.\n\nend\n```", "After.",
    ]  # fmt: skip


def test_chinese_sentences_are_cut_at_their_own_full_stop():
    assert sentences("守护进程启动。它读取队列。") == ["守护进程启动。", "它读取队列。"]


def test_text_without_an_end_is_cut_to_bounded_units():
    text = "word " * 2_000
    assert all(len(one) <= UNIT_CHARS for one in sentences(text))
    assert "".join(sentences(text)).replace(" ", "") == text.replace(" ", "")


@given(st.text(max_size=400))
@settings(max_examples=300, deadline=None)
def test_units_of_any_text_are_in_order_apart_and_without_blank_ends(text):
    at = 0
    for unit in units(text):
        piece = text[unit.start : unit.end]
        assert at <= unit.start < unit.end
        assert piece == piece.strip()
        at = unit.end


# --- quotations ---


def test_the_quotation_is_a_verbatim_part_of_its_passage_of_at_most_three_sentences():
    found = best("Who resolved the flag f-0192 in 1998?", OTHER, RESOLVE)
    assert found.passage is RESOLVE
    assert found.quote in RESOLVE.text
    assert len(sentences(found.quote)) <= 3
    assert found.sentence == "Anna resolved the flag f-0192 in 1998 with the second option."
    assert found.support > 0.8


def test_candidates_come_from_distinct_passages_and_their_support_never_rises():
    passages = [
        Passage(f"p{n}", f"The flag number {n} waits for Anna. {'It is old. ' * n}", "") for n in range(9)
    ]
    found = extract("Which flag waits for Anna?", passages).candidates
    assert len(found) == CANDIDATES_MAX
    assert len({one.passage.id for one in found}) == CANDIDATES_MAX
    supports = [one.support for one in found]
    assert supports == sorted(supports, reverse=True)
    assert all(0 <= one <= 1 for one in supports)


def test_the_same_question_and_passages_give_the_same_extraction():
    assert extract("Who resolved the flag?", [OTHER, RESOLVE]) == extract(
        "Who resolved the flag?", [OTHER, RESOLVE]
    )


@pytest.mark.parametrize("question", ["", "   ", "???", "the of and", "\x00", "What is it?"])
def test_a_question_with_nothing_to_look_for_has_no_candidates(question):
    assert extract(question, [RESOLVE, OTHER]).candidates == ()


def test_passages_that_share_no_word_are_no_candidates():
    assert extract("Who won the world cup?", [RESOLVE, OTHER]).candidates == ()
    assert extract("Who resolved the flag?", []).best is None


def test_no_quotation_runs_across_a_heading():
    passage = Passage(
        "p", "The lease is 60 seconds.\n\n## Grace\n\nThe grace is 20 seconds. It is short.", ""
    )
    assert best("How long is the grace?", passage).quote == "The grace is 20 seconds. It is short."


def test_the_heading_and_the_source_name_the_subject_of_sentences_that_do_not():
    bare = Passage("p", "It lasts 20 seconds. Then the daemon ends.", "a.md")
    headed = bare._replace(heading="Limits / The grace period")
    named = bare._replace(source="docs/grace_period.md")
    question = "How many seconds does the grace period last?"
    assert best(question, headed).support > best(question, bare).support
    assert best(question, named).support > best(question, bare).support


def test_a_name_a_number_or_a_denial_that_the_passage_lacks_costs_support():
    sound = best("Who resolved the flag f-0192 in 1998?", RESOLVE, OTHER).support
    for question in (
        "Who resolved the flag f-0192 in 2007?",
        "Did Wilhelm resolve the flag f-0192 in 1998?",
        "Who did not resolve the flag f-0192 in 1998?",
    ):
        assert best(question, RESOLVE, OTHER).support < min(0.8, sound)


def test_a_question_with_one_word_that_weighs_is_never_well_supported():
    assert (
        best(
            "How do I make a backup?", Passage("p", "Make a backup now. You restore a backup by hand.", "")
        ).support
        <= 0.5
    )


def test_a_passage_that_repeats_the_question_does_not_answer_it():
    question = "How do I resolve a flagged item?"
    for text in (
        question,
        f'Drop a file:\n\n    echo "{question}" > inbox/hello.md\n\nThen wait.',
        f"Ask “{question}”",
    ):
        assert best(question, Passage("p", text, "")).support < 0.5
    answer = "You resolve a flagged item with the resolve command."
    found = extract(question, [Passage("echo", f'echo "{question}"', ""), Passage("real", answer, "")])
    assert found.candidates[0].quote == answer
    assert found.candidates[0].support > 0.8


def test_a_heading_that_asks_names_what_its_section_answers():
    passage = Passage("p", "## How long is the grace period?\n\nIt is 20 seconds.", "")
    assert best("How long is the grace period?", passage).quote == "It is 20 seconds."


def test_the_same_document_twice_is_no_rival_of_itself():
    twice = [RESOLVE, RESOLVE._replace(id="copy.md#3")]
    question = "Who resolved the flag f-0192 in 1998?"
    assert (
        extract(question, twice).candidates[0].support == extract(question, [RESOLVE]).candidates[0].support
    )


def test_every_weighed_sign_is_one_that_is_computed():
    assert set(WEIGHTS) <= set(best("Who resolved the flag?", RESOLVE).signs)


def test_chinese_questions_find_their_passage():
    passages = [
        Passage("a", "守护进程在启动时读取配置文件。", ""),
        Passage("b", "队列里没有工作时什么都不发生。", ""),
    ]
    assert best("守护进程读取什么配置文件?", *passages).passage.id == "a"


@given(st.text(max_size=200), st.lists(st.text(max_size=300), max_size=4))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_without_an_exception_and_quoted_verbatim(question, texts):
    passages = [Passage(str(n), text, text[:20]) for n, text in enumerate(texts)]
    found = extract(question, passages)
    contradiction(found)
    for one in found.candidates:
        assert one.quote
        assert one.quote in one.passage.text
        assert one.start <= one.evidence[0] < one.evidence[1] <= one.end


# --- contradictions ---


def pair(left: str, right: str) -> list[Passage]:
    return [Passage("a.md#1", left, "a.md"), Passage("b.md#1", right, "b.md")]


@pytest.mark.parametrize(
    ("question", "left", "right", "words"),
    [
        (
            "How long is the lease of a session?",
            "The lease of a session is 60 seconds.",
            "A session has a lease of 90 seconds.",
            "a.md#1 says 60, b.md#1 says 90",
        ),
        (
            "When was the store of the daemon migrated?",
            "The store of the daemon was migrated in 2019.",
            "The daemon had its store migrated in 2021.",
            "a.md#1 says 2019, b.md#1 says 2021",
        ),
        (
            "How many options does a flag of the daemon have?",
            "A flag of the daemon has five options.",
            "A flag of the daemon has 6 options.",
            "a.md#1 says 5, b.md#1 says 6",
        ),
        (
            "Does the daemon keep old sessions?",
            "The daemon keeps old sessions for audits.",
            "The daemon does not keep old sessions for audits.",
            "b.md#1 denies what a.md#1 says",
        ),
    ],
)
def test_passages_that_say_different_things_about_what_was_asked_contradict(question, left, right, words):
    found = contradiction(extract(question, pair(left, right)))
    assert found is not None
    assert found.words == words


def test_passages_that_agree_or_speak_of_something_else_do_not_contradict():
    question = "How long is the lease of a session?"
    same = "The lease of a session is 60 seconds."
    for other in (
        same,
        "A lease of one session is sixty, or 60, seconds long.",
        "A lease is 60 seconds long, for a session too.",
        "The grace is 20 seconds.",
    ):
        assert contradiction(extract(question, pair(same, other))) is None
    assert contradiction(extract(question, [])) is None
