"""The embedded decider: a quotation with its source, or a question for a person; a person's answer decides."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from sessions import ladder
from sessions.config import ExtractiveDecider as Settings
from sessions.deciders.extractive import ASKS, LOOK_AGAIN, NONE_FITS, ExtractiveDecider, decision, label
from sessions.extract import THRESHOLD, Passage, extract

GRACE = {
    "id": "docs/limits.md#2",
    "text": "A session that hangs is killed.\nThe grace of a running session is 20 seconds. It can be set.",
    "source": "docs/limits.md",
    "heading": "Limits",
}
LEASE = {"id": "docs/limits.md#3", "text": "The lease of a claim is one minute.", "source": "docs/limits.md"}
OTHERWISE = {
    "id": "notes.md#1",
    "text": "The grace of a running session is 45 seconds.",
    "source": "notes.md",
}
QUESTION = "How many seconds is the grace of a running session?"


def request(body=QUESTION, passages=(GRACE, LEASE), answers=(), title="a question"):
    return {
        "schema": "shiftwork.request/1",
        "queue": "questions",
        "item": {"id": "q-1", "key": "k", "title": title, "body": body, "attempt": 1},
        "node": {"key": "n", "kind": "decide", "title": ""},
        "passages": list(passages),
        "answers": list(answers),
    }


def decided(asked, threshold=THRESHOLD):
    """The decision after it climbed the same ladder as every decider's reply."""
    decider = ExtractiveDecider(threshold=threshold)
    reply = decider.decide(asked, timeout_s=10)
    ids = {one["id"] for one in asked["passages"]} | {one["flag"] for one in asked["answers"]}
    verdict = ladder.climb(reply.text, shown=ids, allowed=("answer", "flag"), cite=ids, now=0.0)
    assert isinstance(verdict, ladder.Checked), verdict
    assert json.loads(reply.text)["usage"] == {"input_tokens": 0, "output_tokens": 0, "cost": 0.0}
    return verdict.body


def answer(asked, *, option=None, text="", by="anna"):
    flag = decided(asked)
    assert flag["decision"] == "flag"
    return {
        "flag": "f-0192", "question": flag["questions"][0]["question"], "option": option, "text": text or option,
        "by": by, "at": "2026-01-05T13:02:11Z",
    }  # fmt: skip


def test_a_supported_question_is_answered_with_a_quotation_and_its_source():
    body = decided(request())
    assert body["decision"] == "answer"
    assert body["citations"] == ["docs/limits.md#2"]
    quote = "\n".join(line[2:] for line in body["text"].splitlines() if line.startswith("> "))
    assert quote in GRACE["text"]
    assert "20 seconds" in quote
    assert body["text"].splitlines()[-1].startswith("Quoted from docs/limits.md#2, support 0.")
    assert body["alternatives"][0]["option"] == "flag"


def test_below_the_threshold_a_person_chooses_among_the_candidates():
    body = decided(request("Which claims and sessions in Berlin have a lease?"))
    assert body["decision"] == "flag"
    assert body["stuck"].startswith("no passage supports an answer well enough (best 0.")
    options = body["questions"][0]["options"]
    assert [one["label"].split(":")[0] for one in options[:-2]] == ["docs/limits.md#3", "docs/limits.md#2"]
    assert options[0]["cost"].startswith("quotes docs/limits.md; support 0.")
    assert options[-1]["label"] == NONE_FITS


def test_the_threshold_of_the_section_decides():
    support = extract(QUESTION, [Passage(**GRACE), Passage(**LEASE)]).candidates[0].support
    assert decided(request(), threshold=support)["decision"] == "answer"
    assert decided(request(), threshold=min(1.0, support + 0.001))["decision"] == "flag"
    assert decided(request(), threshold=1.0)["decision"] == "flag"


def test_the_default_threshold_is_the_measured_one():
    assert Settings(kind="extractive").threshold == THRESHOLD


def test_passages_that_contradict_each_other_go_to_a_person_without_a_recommendation():
    body = decided(request(passages=(GRACE, OTHERWISE)))
    assert body["decision"] == "flag"
    assert body["stuck"].startswith("passages contradict each other: ")
    assert "20" in body["stuck"]
    assert "45" in body["stuck"]
    assert body["questions"][0]["recommendation"]["option"] is None
    assert {one["label"].split(":")[0] for one in body["questions"][0]["options"][:-2]} == {
        GRACE["id"],
        "notes.md#1",
    }


@pytest.mark.parametrize("passages", [(), (LEASE,)])
def test_without_a_match_it_says_so_and_offers_to_close_the_item(passages):
    body = decided(request("Who won the world cup?", passages))
    assert body["stuck"].startswith("nothing in the sources matches")
    assert [one["label"] for one in body["questions"][0]["options"]] == [LOOK_AGAIN, NONE_FITS]
    assert body["questions"][0]["recommendation"]["option"] is None


def test_several_questions_in_one_item_are_not_answered_with_one_quotation():
    body = decided(request(f"{QUESTION} And how long is the lease of a claim?"))
    assert body["stuck"] == "it asks 2 things, and one quotation answers only one"


def test_a_blank_body_asks_what_its_title_asks():
    assert decided(request(" \n", title=QUESTION))["citations"] == ["docs/limits.md#2"]


def test_a_text_longer_than_one_question_is_flagged():
    body = decided(request(f"{QUESTION} " + "The session ran. " * 200))
    assert body["stuck"].startswith("it is longer than one question")


def test_a_chosen_option_is_quoted_and_cites_the_flag_and_the_passage():
    asked = request(passages=(GRACE, OTHERWISE))
    for number in (0, 1):
        option = decided(asked)["questions"][0]["options"][number]["label"]
        body = decided({**asked, "answers": [answer(asked, option=option)]})
        assert body["decision"] == "answer"
        assert body["citations"] == ["f-0192", option.split(":")[0]]
        assert ("45 seconds" in body["text"]) == (option.split(":")[0] == "notes.md#1")
        assert body["reason"].startswith("anna chose ")


def test_a_persons_own_words_are_quoted_as_theirs():
    asked = request(passages=())
    body = decided({**asked, "answers": [answer(asked, text="Twenty seconds.\nAsk me again.")]})
    assert body["text"] == "Answered by anna:\n\n> Twenty seconds.\n> Ask me again."
    assert body["citations"] == ["f-0192"]


def test_look_again_decides_anew_as_if_nobody_had_answered():
    asked = request(passages=(GRACE, OTHERWISE))
    assert decided({**asked, "answers": [answer(asked, option=LOOK_AGAIN)]}) == decided(asked)


def test_an_answer_about_an_earlier_revision_does_not_end_the_item():
    asked = request(passages=(GRACE, OTHERWISE))
    stale = {**answer(asked, text="blue"), "stale": True}
    assert decided({**asked, "answers": [stale]}) == decided(asked)


def test_none_of_these_closes_the_item_and_says_who_said_so():
    asked = request(passages=())
    body = decided({**asked, "answers": [answer(asked, option=NONE_FITS)]})
    assert body["text"] == "The sources hold no answer to this, says anna."
    assert body["citations"] == ["f-0192"]


def test_a_chosen_quotation_that_left_the_sources_is_asked_about_again():
    asked = request(passages=(GRACE, OTHERWISE))
    option = label(extract(QUESTION, [Passage(**OTHERWISE)]).candidates[0])
    later = {**asked, "answers": [answer(asked, option=option)], "passages": [GRACE]}
    body = decided(later)
    assert body["stuck"] == "the quotation anna chose in f-0192 is no longer in the sources"


def test_an_answer_to_another_question_about_the_item_is_no_answer_to_this_one():
    other = {"flag": "f-1", "question": "50 decisions were made. Go on?", "option": None, "text": "yes", "by": "anna",
             "at": ""}  # fmt: skip
    assert decided(request(answers=[other]))["citations"] == ["docs/limits.md#2"]


def test_the_last_answer_counts():
    asked = request(passages=())
    first, second = answer(asked, text="No."), {**answer(asked, text="Yes."), "flag": "f-0207"}
    assert decided({**asked, "answers": [first, second]})["citations"] == ["f-0207"]


def test_the_same_request_gives_the_same_decision():
    assert decision(request(), threshold=0.8) == decision(request(), threshold=0.8)


def test_a_long_question_is_shortened_in_the_flag_and_stays_one_line():
    body = decided(request("What\nabout\n" + "zebra " * 200, ()))
    question = body["questions"][0]["question"]
    assert question.startswith(f"{ASKS}What about zebra")
    assert len(question) < 400


def test_it_imports_neither_numpy_nor_a_database_nor_the_network():
    code = (
        "import sys, sessions.deciders.extractive as e\n"
        "e.decision({'item': {'body': 'Who resolved it?'}, 'passages': [{'id': 'a', 'text': 'Anna resolved it.',"
        " 'source': 'a'}]}, threshold=0.8)\n"
        "bad = {'numpy', 'rank_bm25', 'httpx', 'urllib.request', 'ssl', 'sqlite3'} & set(sys.modules)\n"
        "sys.exit(f'{bad}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
