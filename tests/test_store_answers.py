"""A flag may ask up to ten questions: each is answered once, and the item goes on when none is open (FIELD 44)."""

from __future__ import annotations

import pytest
from session_world import QUESTION, World, answer, flag

from store.errors import AlreadyResolved
from store.people import Answer

THREE = flag(questions=[{**QUESTION, "question": f"Question {number}?"} for number in (1, 2, 3)])


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path, THREE, answer())
    made.item = made.hand()
    made.session()
    yield made
    made.close()


def say(world, text, **more):
    return world.store.people.resolve("f-0001", Answer("anna", text, **more), now=world.now)


def state(world):
    return world.store.views.item(world.item, now=world.now)["state"]


def test_a_flag_waits_until_its_last_question_is_answered(world):
    assert say(world, "no", question=2).still_open == [1, 3]
    assert (state(world), world.session()) == ("waiting", None)
    say(world, "left", question=1, option=1)
    assert say(world, "yes", question=3).still_open == []
    assert state(world) == "queued"


def test_every_answer_reaches_the_next_session_with_its_own_question(world):
    say(world, "no", question=2)
    say(world, "left", question=1, option=1)
    world.store.people.resolve("f-0001", Answer("ben", "yes", question=3), now=world.now)
    world.session()
    shown = [(one["question"], one["text"], one["by"]) for one in world.decider.requests[-1]["answers"]]
    assert shown == [
        ("Question 2?", "no", "anna"),
        ("Question 1?", "left", "anna"),
        ("Question 3?", "yes", "ben"),
    ]


def test_a_question_is_answered_once_and_the_second_is_told_who_was_first(world):
    say(world, "no", question=2)
    with pytest.raises(AlreadyResolved, match="question 2 of f-0001 was already answered by anna"):
        say(world, "yes", question=2)


def test_one_text_answers_all_that_is_still_open(world):
    say(world, "no", question=2)
    assert say(world, "as you like", question=0).still_open == []
    world.session()
    assert [(one["question"], one["text"]) for one in world.decider.requests[-1]["answers"]] == [
        ("Question 2?", "no"),
        ("Question 1? / Question 3?", "as you like"),
    ]


def test_a_final_answer_ends_the_item_whatever_is_still_open(world):
    say(world, "no", question=2)
    say(world, "it is 7", question=0, final=True)
    assert state(world) == "done"
    assert world.store.views.item(world.item, now=world.now)["result"]["text"] == "it is 7"


def test_the_list_of_flags_asks_the_next_open_question(world):
    say(world, "no", question=1)
    assert world.store.views.flags(now=world.now)[0]["question"] == "Question 2?"
    shown = world.store.views.flag("f-0001", now=world.now)
    assert [(one["question"], one["text"]) for one in shown["answered"]] == [(1, "no")]


def test_an_abort_withdraws_a_half_answered_flag(world):
    say(world, "no", question=1)
    world.store.people.abort(world.item, by="anna", reason="", now=world.now)
    assert world.store.views.flag("f-0001", now=world.now)["state"] == "withdrawn"
