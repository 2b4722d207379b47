"""Files for people: each once, in any number, whatever one folder, one row or one quotation is like."""

from __future__ import annotations

import sqlite3

import pytest
from session_world import QUESTION, World, answer, flag

from sessions import papers


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    made.outboxes = {"q": tmp_path / "out", "r": tmp_path / "other"}
    yield made
    made.close()


def settle(world):
    return papers.settle_and_mark(world.store, world.outboxes, now=world.now)


def names(world, queue="q"):
    return sorted(path.name for path in world.outboxes[queue].iterdir())


def damage(world, sql):
    conn = sqlite3.connect(world.state / "shiftwork.db")
    conn.execute(sql)
    conn.commit()
    conn.close()


def test_hundreds_of_files_that_waited_for_their_folder_are_all_written(world):
    for number in range(250):
        world.hand(f"question {number}")
    world.drain()
    assert settle(world) == 250
    assert len(names(world)) == 250
    assert settle(world) == 0


def test_files_of_a_queue_that_is_no_longer_configured_hold_up_no_others(world):
    for number in range(250):
        world.hand(f"old {number}", queue="r")
    world.drain()
    world.hand("new", queue="q")
    world.drain()
    del world.outboxes["r"]
    assert settle(world) == 1


def test_one_broken_outbox_holds_up_no_other(world):
    world.outboxes["q"].write_text("a file stands where the folder should be")
    for queue in ("q", "r"):
        world.hand(queue=queue)
    world.drain()
    with pytest.raises(OSError, match="out"):
        settle(world)
    assert names(world, "r") == ["q-0002.answer.md"]
    world.outboxes["q"].unlink()
    assert settle(world) == 1
    assert names(world) == ["q-0001.answer.md"]


def test_an_answer_that_quotes_the_mark_of_another_item_is_not_taken_for_its_file(world):
    world.decider.script = [answer("<!-- shiftwork q-0002 g1 -->"), answer()]
    world.hand("one", name="same")
    world.hand("two", name="same")
    world.drain()
    settle(world)
    assert names(world) == ["same.answer.md", "same.q-0002.answer.md"]


def test_a_file_whose_mark_a_crash_ate_is_known_again_however_long_it_is(world):
    world.decider.script = [answer("a" + "\u202e" * 199_999)]
    world.hand("one", name="long")
    world.drain()
    papers.settle(world.store, world.outboxes)  # and the marks are lost
    assert settle(world) == 1
    assert names(world) == ["long.answer.md"]


def test_a_flag_whose_questions_cannot_be_read_still_gets_its_file(world):
    world.decider.script = [flag()]
    world.hand("one")
    world.drain()
    damage(world, "UPDATE flags SET questions = '{['")
    settle(world)
    assert "shiftwork resolve f-0001 --answer" in (world.outboxes["q"] / "q-0001.waiting.md").read_text()


def test_a_result_that_cannot_be_read_is_said_to_be_so(world):
    world.hand("one")
    world.drain()
    damage(world, "UPDATE items SET result = '{['")
    settle(world)
    assert "cannot be read" in (world.outboxes["q"] / "q-0001.answer.md").read_text()


@pytest.mark.parametrize(
    ("kind", "forms"),
    [
        ("direction", ["--option 2", "--answer"]),
        ("confirm", ["--option 2", "--approve", "--reject", "--answer"]),
    ],
)
def test_a_waiting_file_gives_the_forms_that_fit_and_the_recommended_option(world, kind, forms):
    options = [{"label": "left", "cost": "one day"}, {"label": "right", "cost": "none"}]
    question = {**QUESTION, "kind": kind, "options": options, "recommendation": {"option": 2, "reason": "x"}}
    world.decider.script = [flag(questions=[question])]
    world.hand()
    world.drain()
    settle(world)
    text = (world.outboxes["q"] / "q-0001.waiting.md").read_text()
    said = [line.partition("resolve f-0001 ")[2] for line in text.splitlines() if "resolve f-0001" in line]
    assert [words.startswith(form) for words, form in zip(said, forms, strict=True)] == [True] * len(forms)
