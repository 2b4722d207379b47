"""Every reply climbs the same ladder; what falls off says which rung and what to mend (FIELD 32)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.ladder import Checked, Fault, climb

NOW = 1_800_000_000.0
ALL = ("answer", "flag", "park")
SHOWN = {"docs/a.md#1", "f-0001", "k-1"}
QUESTION = {
    "question": "Which?",
    "kind": "direction",
    "options": [{"label": "left", "cost": "none"}],
    "recommendation": {"option": 1, "reason": "cheap"},
}
ANSWER = {"decision": "answer", "reason": "it says so", "text": "42", "citations": ["docs/a.md#1"]}
FLAG = {"decision": "flag", "reason": "unsure", "stuck": "two ways", "questions": [QUESTION]}
PARK = {"decision": "park", "reason": "not yet", "until": "2027-02-01T00:00:00Z"}


def up(reply, *, allowed=ALL, cite=None, quotable=None):
    text = reply if isinstance(reply, str) else json.dumps(reply)
    return climb(text, shown=SHOWN, allowed=allowed, cite=cite, quotable=quotable, now=NOW)


@pytest.mark.parametrize(
    "reply",
    [
        ANSWER,
        FLAG,
        PARK,
        {**ANSWER, "citations": []},
        {**PARK, "expires": None, "note": None, "units": None, "usage": None},
    ],
)
def test_a_good_reply_reaches_the_top(reply):
    assert isinstance(up(reply), Checked)


def test_everything_a_decision_may_carry_is_taken():
    full = {
        **ANSWER,
        "alternatives": [{"option": "flag", "why_not": "it is clear"}],
        "evidence": ["docs/a.md#1", "k-1"],
        "premises": {"price": 3, "shop": "open"},
        "conclusions": [{"subject": "answer", "value": "42", "evidence": ["f-0001"]}],
        "units": {"done": 1, "total": 2},
        "note": "a line",
        "lessons": [{"text": "look in a.md", "evidence": ["docs/a.md#1"], "failed": False}],
        "usage": {"input_tokens": 1, "output_tokens": 2, "cost": 0.5},
    }
    checked = up(full)
    assert isinstance(checked, Checked)
    assert "usage" not in checked.body, "what a call cost is no part of the decision"


@pytest.mark.parametrize(
    ("reply", "rung", "words"),
    [
        ("", "json", "empty"),
        ("The answer is 42.", "json", "exactly one JSON object"),
        ("[]", "json", "must be a JSON object"),
        (json.dumps(ANSWER) * 2, "json", "exactly one JSON object"),
        ('{"decision": "answer", "decision": "flag"}', "json", "twice"),
        ('{"decision": "answer", "premises": {"x": NaN}}', "json", "NaN"),
        ({"reason": "x"}, "name", "must be one of"),
        ({**ANSWER, "decision": "delete"}, "name", '"delete"'),
        ({**ANSWER, "decision": ["answer"]}, "name", "must be one of"),
        ({**ANSWER, "decision": "act"}, "name", "later version"),
        ({**ANSWER, "decision": "plan"}, "name", "later version"),
        ({**ANSWER, "decision": "rewind"}, "name", "later version"),
        ({**ANSWER, "confidence": 1}, "schema", "confidence"),
        ({**ANSWER, "text": "  \n"}, "schema", "blank"),
        ({**ANSWER, "text": "\u200b\u2060 \x00"}, "schema", "blank"),
        ({**ANSWER, "reason": ""}, "schema", "reason"),
        ({**ANSWER, "text": 42}, "schema", "text"),
        ({**FLAG, "questions": []}, "schema", "questions"),
        ({**FLAG, "questions": [QUESTION] * 11}, "schema", "questions"),
        ({**FLAG, "stuck": " "}, "schema", "stuck"),
        (
            {**FLAG, "questions": [{**QUESTION, "recommendation": {"option": 2, "reason": "x"}}]},
            "schema",
            "option 2 of 1",
        ),
        (
            {**FLAG, "questions": [{k: v for k, v in QUESTION.items() if k != "recommendation"}]},
            "schema",
            "recommendation",
        ),
        ({**PARK, "until": "2020-01-01T00:00:00Z"}, "schema", "future"),
        ({**PARK, "until": "2027-02-01"}, "schema", "until"),
        ({**PARK, "expires": "2027-01-31T00:00:00Z"}, "schema", "before until"),
        ({**ANSWER, "citations": ["docs/b.md#9"]}, "citations", "docs/b.md#9"),
        ({**ANSWER, "evidence": ["nowhere"]}, "citations", "nowhere"),
        ({**ANSWER, "conclusions": [{"subject": "a", "value": "b", "evidence": ["no"]}]}, "citations", "no"),
    ],
)
def test_a_bad_reply_falls_off_its_rung_with_words_that_help(reply, rung, words):
    fault = up(reply)
    assert isinstance(fault, Fault)
    assert fault.rung == rung
    assert words in fault.words


def test_a_decision_the_queue_does_not_allow_falls_off_last():
    fault = up(PARK, allowed=("answer", "flag"))
    assert (fault.rung, '"park"' in fault.words) == ("allowed", True)


def test_a_decider_that_quotes_must_cite():
    assert up({**ANSWER, "citations": []}, cite=SHOWN).rung == "citations"


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_no_json_value_is_an_accident(value):
    assert isinstance(up(json.dumps(value)), Fault)


@given(st.text())
def test_no_text_is_an_accident(text):
    assert isinstance(up(text), Fault)
