"""``resolve``: a person's answer is recorded once, in every form that fits, with who, when and what (FIELD 43, 44)."""

from __future__ import annotations

import time

import pytest
from cli_world import SEND, Desk
from session_world import QUESTION, answer, failure, flag

from store.people import Answer


@pytest.fixture
def desk(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    desk = Desk(tmp_path, capsys)
    yield desk
    desk.close()
    monkeypatch.undo()
    time.tzset()


def test_an_option_is_recorded_with_who_when_and_why_and_the_item_goes_on(desk):
    item, asked = desk.flagged(flag(stuck="may I?", questions=[SEND]), answer("sent"))
    assert desk.run("resolve", asked, "--option", "2", "--reason", "ok", "--by", "anna") == 0
    assert desk.out.startswith(f"resolved {asked}: 2 send 12, by anna, ")
    assert desk.out.endswith(" UTC · the item goes on at the next session\n")
    shown = desk.json("show", asked)
    assert shown["state"] == "resolved"
    assert shown["resolved_by"] == "anna"
    assert shown["answer"]["option"] == 2
    assert shown["answer"]["reason"] == "ok"
    world = desk.worlds[0]
    assert world.session().outcome == "answered"
    given = world.decider.requests[-1]["answers"][0]
    assert (given["option"], given["by"]) == ("send 12", "anna")
    assert desk.json("show", item)["state"] == "done"


def test_a_second_answer_hears_who_was_first_and_with_what(desk):
    """FIELD 44."""
    _, asked = desk.flagged(flag(questions=[SEND]))
    assert desk.run("resolve", asked, "--option", "2", "--by", "anna") == 0
    at = time.strftime("%H:%M", time.gmtime())
    assert desk.run("resolve", asked, "--option", "1") == 5
    assert desk.out == ""
    assert desk.err.strip() == f'already resolved by anna at {at} as "2 send 12"'


def test_an_answer_of_another_day_is_told_with_its_day(desk):
    _, asked = desk.flagged(flag(), ago_s=3 * 86400)
    world = desk.worlds[0]
    world.store.people.resolve(asked, Answer(by="bob", text="go \x1b[31mleft"), now=world.now)
    day = time.strftime("%A %H:%M", time.gmtime(world.now))
    assert desk.run("resolve", asked, "--answer", "x") == 5
    assert desk.err.strip() == f'already resolved by bob on {day} as "go \\x1b[31mleft"'


def test_who_was_quicker_between_look_and_write_wins_and_is_named(desk, monkeypatch):
    _, asked = desk.flagged(flag())
    world = desk.worlds[0]
    from daemon.cli import resolve

    plain = resolve._answer

    def slow(*args):
        world.store.people.resolve(asked, Answer(by="bob", text="mine"), now=time.time())
        return plain(*args)

    monkeypatch.setattr(resolve, "_answer", slow)
    assert desk.run("resolve", asked, "--answer", "x") == 5
    assert "already resolved by bob at" in desk.err
    assert desk.err.strip().endswith('as "mine"')


def test_a_final_answer_ends_the_item_and_its_file_is_written_with_the_daemon_down(desk):
    item, asked = desk.flagged(flag())
    waiting = desk.folder / "out" / "way.waiting.md"
    assert desk.run("retry", item) == 5  # a question of its own waits
    from sessions import papers

    world = desk.worlds[0]
    papers.settle_and_mark(world.store, {"q": desk.folder / "out"}, now=world.now)
    assert f"resolve {asked} --option 1" in waiting.read_text()
    assert desk.run("resolve", asked, "--answer", "It is left.", "--final", "--by", "anna") == 0
    assert "the item is done with this answer" in desk.out
    assert not waiting.exists()
    written = (desk.folder / "out" / "way.answer.md").read_text()
    assert "It is left." in written
    assert "Answered by anna." in written
    shown = desk.json("show", item)
    assert (shown["state"], shown["result"]["text"]) == ("done", "It is left.")
    assert shown["result"]["citations"] == [asked]


def test_any_answer_removes_the_waiting_file_but_never_one_that_was_edited(desk):
    from sessions import papers

    _, asked = desk.flagged(flag())
    world = desk.worlds[0]
    papers.settle_and_mark(world.store, {"q": desk.folder / "out"}, now=world.now)
    waiting = desk.folder / "out" / "way.waiting.md"
    waiting.write_text("my own notes")
    assert desk.run("resolve", asked, "--option", "1") == 0
    assert waiting.read_text() == "my own notes"


@pytest.mark.parametrize(("verdict", "text"), [("--approve", "approved"), ("--reject", "rejected")])
def test_a_confirmation_is_approved_or_rejected(desk, verdict, text):
    _, asked = desk.flagged(flag(questions=[SEND]))
    assert desk.run("resolve", asked, verdict) == 0
    assert f"resolved {asked}: {text}, by " in desk.out
    assert desk.json("show", asked)["answer"]["verdict"] == verdict[2:]


def test_approving_what_is_no_confirmation_names_the_forms_that_fit(desk):
    _, asked = desk.flagged(flag())
    assert desk.run("resolve", asked, "--approve") == 2
    assert f"{asked} is of kind direction. These fit:" in desk.err
    assert f"resolve {asked} --option 1" in desk.err
    assert f'resolve {asked} --answer "…"' in desk.err
    assert "--reject\n" not in desk.err
    assert desk.json("show", asked)["state"] == "waiting"


def test_the_kind_of_the_question_meant_decides_not_that_of_the_flag(desk):
    _, asked = desk.flagged(flag(questions=[QUESTION, SEND]))
    assert desk.run("resolve", asked, "--question", "1", "--approve") == 2
    assert desk.run("resolve", asked, "--question", "2", "--approve") == 0


def test_with_several_questions_an_option_needs_to_say_which(desk):
    _, asked = desk.flagged(flag(questions=[QUESTION, SEND]))
    assert desk.run("resolve", asked, "--option", "2") == 2
    assert f"{asked} asks 2 questions; say which with --question N" in desk.err
    assert desk.run("resolve", asked, "--option", "1", "--question", "3") == 2
    assert desk.run("resolve", asked, "--option", "2", "--question", "2") == 0
    assert ": 2 send 12, by" in desk.out


def test_one_text_may_answer_all_the_questions(desk):
    _, asked = desk.flagged(flag(questions=[QUESTION, SEND]), answer())
    assert desk.run("resolve", asked, "--answer", "left, and do not send") == 0
    world = desk.worlds[0]
    world.session()
    given = world.decider.requests[-1]["answers"][0]
    assert given["question"] == "Which? / May I send them now?"
    assert given["text"] == "left, and do not send"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give exactly one of --answer, --option, --approve, --reject, --park (none was given)"),
        (["--option", "1", "--answer", "x"], "--answer and --option were given"),
        (["--option", "9"], "has 2 options, not 9"),
        (["--option", "0"], "must be a whole number from 1 on"),
        (["--option", "1", "--final"], "--final goes with --answer"),
        (["--answer", "  "], "must not be blank"),
        (["--answer", "\udcff"], "is not UTF-8"),
        (["--park", "yesterday"], '--park "yesterday" must be a time'),
        (["--park", "2020-01-01"], "is over already"),
        (["--answer", "x", "--by", " "], "must not be blank"),
    ],
)
def test_words_that_do_not_fit_are_two_and_change_nothing(desk, words, said):
    _, asked = desk.flagged(flag())
    assert desk.run("resolve", asked, *words) == 2
    assert said in desk.err
    assert desk.out == ""
    assert desk.json("show", asked)["state"] == "waiting"


def test_a_flag_without_options_says_what_fits(desk):
    bare = {"question": "Why?", "kind": "direction", "recommendation": {"option": None, "reason": "unknown"}}
    _, asked = desk.flagged(flag(questions=[bare]))
    assert desk.run("resolve", asked, "--option", "1") == 2
    assert "has no options, not 1" in desk.err


def test_a_flag_that_does_not_exist_is_three(desk):
    desk.world()
    assert desk.run("resolve", "f-0099", "--answer", "x") == 3
    assert desk.run("resolve", "\udcff", "--answer", "x") == 2


def test_before_the_first_run_there_is_no_flag_and_nothing_is_created(desk):
    assert desk.run("resolve", "f-0001", "--answer", "x") == 3
    assert not (desk.folder / "state").exists()


def test_parking_asks_again_at_its_time_and_then_needs_reconfirmation(desk):
    """FIELD 43."""
    item, asked = desk.flagged(flag(), ago_s=7200)
    assert desk.run("resolve", asked, "--park", "2h", "--by", "anna", "--reason", "later") == 0
    assert desk.out.startswith(f"parked {asked} until ")
    found = desk.json("flags")
    assert (found["count"], found["waiting"], found["parked"], found["oldest_age_s"]) == (1, 0, 1, None)
    assert found["flags"][0]["expired"] is False
    assert desk.json("show", item)["state"] == "parked"
    assert desk.lines("flags")[0].startswith("0 waiting · 1 parked")
    world = desk.worlds[0]
    world.store.people.park_flag(asked, until_at=time.time() - 1, by="anna", reason="", now=time.time())
    found = desk.json("flags")
    assert (found["waiting"], found["flags"][0]["expired"], found["flags"][0]["state"]) == (
        1,
        True,
        "waiting",
    )
    assert desk.json("show", item)["state"] == "waiting"
    assert "1 needs re-confirmation" in desk.lines("flags")[0]
    assert desk.run("resolve", asked, "--option", "1") == 0


def test_try_again_and_give_up_do_what_they_say(desk):
    world = desk.world(failure("boom"))
    item = world.hand("fails")
    for _ in range(5):
        world.session()
        world.now += 3600
    flagged = desk.json("show", item)["flags"][0]
    assert flagged["cause"] == "failures"
    assert desk.run("resolve", flagged["id"], "--option", "2") == 0
    assert "2 give it up" in desk.out
    assert "the item is aborted" in desk.out
    assert desk.json("show", item)["state"] == "aborted"
    assert desk.run("resolve", flagged["id"], "--option", "1") == 5
    assert "already resolved by" in desk.err


def test_a_withdrawn_flag_is_a_conflict_with_its_reason(desk):
    item, asked = desk.flagged(flag())
    assert desk.run("abort", item, "--yes") == 0
    assert desk.run("resolve", asked, "--option", "1") == 5
    assert f"{asked} was withdrawn: its item {item} ended" in desk.err


def test_what_was_recorded_can_be_read_by_programs(desk):
    item, asked = desk.flagged(flag())
    found = desk.json("resolve", asked, "--option", "1", "--by", "anna")
    assert found["flag"] == asked
    assert found["item"] == item
    assert found["answer"]["text"] == "left"
    assert found["by"] == "anna"
    assert found["at"].endswith("Z")


def test_without_a_daemon_it_says_how_to_start_one(desk):
    _, asked = desk.flagged(flag())
    assert desk.run("resolve", asked, "--option", "1") == 0
    assert "No daemon is running. Start it:" in desk.err


def test_the_name_given_is_shown_escaped_everywhere(desk):
    _, asked = desk.flagged(flag())
    assert desk.run("resolve", asked, "--answer", "\u202eevil\nline", "--by", "an\x1bna") == 0
    assert "\x1b" not in desk.out
    assert "\\u202eevil\\nline, by an\\x1bna" in desk.out
