"""What people see: 80 columns, short ages, local times with the zone once, escaped words, what to do next."""

from __future__ import annotations

import json
import re
import time

import pytest
from cli_world import SEND, Desk
from session_world import QUESTION, answer, failure, flag, park

from daemon.cli import cells, screen
from store.people import Answer


@pytest.fixture
def desk(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(screen, "program", lambda: "shiftwork")
    monkeypatch.setattr(screen, "_found_anyway", lambda config: True)
    desk = Desk(tmp_path, capsys)
    yield desk
    desk.close()
    monkeypatch.undo()
    time.tzset()


def fits(text):
    return all(cells.width(line) <= 80 for line in text.splitlines())


# --- cells -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "width"), [("abc", 3), ("表示", 4), ("e\u0301", 1), ("ｱ", 1), ("\uff21", 2), ("😀", 2), ("", 0)]
)
def test_text_is_as_wide_as_a_terminal_shows_it(text, width):
    assert cells.width(text) == width


def test_what_is_cut_never_exceeds_its_room():
    assert cells.cut("abcdef", 4) == "abc…"
    assert cells.cut("表示の幅", 5) == "表示…"
    assert cells.cut("表示の幅", 4) == "表…"
    assert cells.cut("ab", 0) == ""


def test_a_table_gives_way_in_one_column_only():
    lines = cells.table(("A", "TITLE", "B"), [("1", "長い題名" * 20, "x"), ("22", "short", "yy")], give=1)
    assert all(cells.width(line) <= 80 for line in lines)
    assert re.search("… {2,3}x$", lines[1])
    assert lines[2] == "22  short" + " " * 69 + "yy"


def test_paragraphs_break_at_words_and_long_words_break_anywhere():
    lines = cells.wrap("one two " + "x" * 100, first="- ", limit=40)
    assert all(cells.width(line) <= 40 for line in lines)
    assert "".join(lines).replace(" ", "") == "-onetwo" + "x" * 100
    assert cells.labelled("A", "b\nc") == ["A         b", "          c"]


# --- list --------------------------------------------------------------------------------------------------------


def test_list_shows_every_state_newest_first(desk):
    world = desk.world(answer(), flag(), park(), failure("boom"), ago_s=2 * 86400 + 4 * 3600)
    items = [world.hand(body) for body in ("done", "waits", "parked", "fails")]
    for _ in items:
        world.session()
    items += [world.hand("wide 表示の幅を測る必要がある日本語のとても長い題名ですから切られます" + "長" * 9)]
    held = world.hand("held", queue="r")
    world.store.people.pause(held, by="x", now=world.now)
    gone = world.hand("gone")
    world.store.people.abort(gone, by="x", reason="", now=world.now)
    lines = desk.lines("list")
    assert fits(desk.out)
    assert lines[0].split() == ["ITEM", "AGE", "STATE", "TRIES", "QUEUE", "TITLE"]
    states = {line.split()[0]: line[15:23].split()[0] for line in lines[1:]}
    assert list(states) == [gone, held, *reversed(items)]
    assert list(states.values()) == ["aborted", "paused", "queued", "queued", "parked", "waiting", "done"]
    assert lines[1][8:14] == "2d 4h "
    assert lines[3].endswith("…")
    found = desk.json("list")
    keys = {"id", "queue", "title", "state", "age_s", "attempts", "version"}
    assert all(keys <= set(one) for one in found)
    assert [one["attempts"] for one in found] == [0, 0, 0, 1, 1, 1, 1]
    for state in ("done", "aborted", "queued", "parked", "waiting", "paused"):
        assert [one["state"] for one in desk.json("list", "--state", state)] == [state] * (
            1 + (state == "queued")
        )
    assert desk.json("list", "--state", "running") == []
    assert [one["id"] for one in desk.json("list", "--queue", "r")] == [held]
    assert [one["id"] for one in desk.json("list", "--queue", "q", "--state", "done")] == [items[0]]
    assert [one["id"] for one in desk.json("list", "--limit", "2")] == [gone, held]


def test_list_says_when_there_is_more_and_when_there_is_nothing(desk):
    assert desk.run("list") == 0
    assert desk.out == ""
    assert desk.err == "No item. Hand one in:  shiftwork add FILE\n"
    assert not (desk.folder / "state").exists()
    world = desk.world()
    for number in range(3):
        world.hand(f"{number}")
    assert desk.run("list", "--limit", "2") == 0
    assert len(desk.out.splitlines()) == 3
    assert "newest 2; more with --limit 20" in desk.err


def test_a_queue_or_state_that_does_not_exist_is_refused(desk):
    assert desk.run("list", "--queue", "nope") == 3
    assert desk.err == 'there is no queue "nope"; there is: q, r\n'
    assert desk.run("list", "--state", "happy") == 2
    assert desk.run("list", "--limit", "0") == 2
    assert desk.run("flags", "--queue", "nope") == 3


def test_items_of_a_queue_that_left_the_configuration_can_still_be_listed(desk):
    world = desk.world()
    world.hand("old", queue="r")
    desk.config.write_text(desk.config.read_text().replace("[queues.r]", "[queues.new]"))
    assert [one["queue"] for one in desk.json("list", "--queue", "r")] == ["r"]


# --- flags and show ----------------------------------------------------------------------------------------------


def test_flags_has_count_and_oldest_age_on_top_and_the_oldest_first(desk):
    """FIELD 43."""
    world = desk.world(flag(questions=[SEND]), flag(), failure("boom"), ago_s=2 * 86400 + 4 * 3600)
    world.hand("Send refund mail to 14 customers")
    world.session()
    world.now = time.time() - 1200
    world.hand("Which?")
    world.session()
    lines = desk.lines("flags")
    assert fits(desk.out)
    assert lines[0] == "2 waiting · oldest 2d 4h"
    assert lines[1].split() == ["FLAG", "AGE", "KIND", "QUESTION", "RECOMMENDED"]
    assert re.fullmatch(r"f-0001  2d 4h  confirm    May I send them now\?  2 send 12", lines[2])
    assert re.fullmatch(r"f-0002  20m    direction  Which\? +1 left", lines[3])
    assert lines[4] == "Answer:  shiftwork resolve f-0001 --option 2"
    assert lines[5] == "More:    shiftwork show f-0001"


def test_flags_of_programs_have_every_promised_key(desk):
    assert desk.json("flags") == {"count": 0, "waiting": 0, "parked": 0, "oldest_age_s": None, "flags": []}
    item, asked = desk.flagged(flag(questions=[SEND]), ago_s=300)
    found = desk.json("flags")
    assert found["count"] == 1
    assert 300 <= found["oldest_age_s"] < 310
    (one,) = found["flags"]
    promised = [
        "id",
        "item",
        "queue",
        "stuck",
        "question",
        "kind",
        "options",
        "recommendation",
        "age_s",
        "expired",
    ]
    assert {key: one[key] for key in promised if key != "age_s"} == {
        "id": asked,
        "item": item,
        "queue": "q",
        "stuck": "two ways",
        "question": SEND["question"],
        "kind": "confirm",
        "options": SEND["options"],
        "recommendation": SEND["recommendation"],
        "expired": False,
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", one["asked_at"])
    assert desk.json("flags", "--queue", "r")["count"] == 0


def test_what_crashed_or_failed_says_so_instead_of_try_again(desk):
    world = desk.world(failure("exit 3: no such model"))
    world.hand("fails")
    for _ in range(5):
        world.session()
        world.now += 3600
    assert "the decider failed 5 times in a row" in desk.lines("flags")[2]
    told = " ".join(" ".join(desk.lines("log", "q-0001")).split())
    assert (
        "· asked f-0001 · the decider failed 5 times in a row: exit 3: no such model · tokens unknown" in told
    )


def test_a_flag_is_shown_with_all_that_is_needed_to_answer_it(desk):
    world = desk.world(flag(stuck="may I send them now?", questions=[SEND]))
    world.store.memory.sync_constraints("q", [("never mail twice a week", "prohibition")], now=world.now)
    world.hand("Send refund mail", name="mail")
    world.session()
    lines = desk.lines("show", "f-0001")
    assert fits(desk.out)
    assert lines[0].startswith("f-0001 · confirm · q-0001 · q · waiting · ")
    text = desk.out
    assert "STUCK     may I send them now?" in text
    assert "TRIED     session 1 flagged" in text
    assert "OPTIONS   1 send 14  cannot be undone\n" in text
    assert "          2 send 12  2 stay parked   ← recommended\n" in text
    assert "WHY 2     the two bounces would count against the sender" in text
    assert 'RULES     "never mail twice a week" (prohibition)' in text
    assert "Answer:   shiftwork resolve f-0001 --option 2" in text
    assert "          shiftwork resolve f-0001 --approve" in text
    assert desk.run("resolve", "f-0001", "--option", "2", "--reason", "ok", "--by", "anna") == 0
    desk.lines("show", "f-0001")
    assert 'ANSWER    "2 send 12" (ok), by anna, ' in desk.out
    assert "Answer:" not in desk.out


def test_long_labels_and_many_questions_stay_readable(desk):
    long = {**QUESTION, "options": [{"label": "take " + "very " * 30 + "long", "cost": "much"}]}
    desk.flagged(flag(questions=[long, QUESTION, SEND]))
    lines = desk.lines("show", "f-0001")
    assert fits("\n".join(line for line in lines if "shiftwork" not in line))
    assert "ASKS 1/3  Which?" in desk.out
    assert "            much" in desk.out
    assert "resolve f-0001 --question 3 --approve" in desk.out


def test_an_item_is_shown_whole_and_for_programs_with_every_promised_key(desk):
    world = desk.world(
        flag(questions=[SEND]),
        answer("It costs 3 €.\nAs always.", conclusions=[{"subject": "SKU 88", "value": "3 €"}]),
    )
    world.store.memory.sync_constraints("q", [("be brief", "scope")], now=world.now)
    item = world.hand("What does it cost?\n" + "\n".join(f"line {n}" for n in range(30)))
    world.session()
    world.store.people.resolve("f-0001", Answer(by="anna", text="send 12", option=2), now=world.now)
    world.session()
    lines = desk.lines("show", item)
    assert fits("\n".join(line for line in lines if "/" not in line))  # a path is never cut
    assert lines[0] == f"{item} · q · done · 1m old · 2 attempts"
    assert "BODY      What does it cost?" in desk.out
    assert "          … 16 more lines (--json has them all)" in desk.out
    assert "RULES     be brief (scope)" in desk.out
    assert "ANSWER    It costs 3 €.\n          As always." in desk.out
    assert "FOUND     SKU 88: 3 €" in desk.out
    assert 'FLAGS     f-0001 resolved · May I send them now? → "2 send 12", anna, ' in desk.out
    assert "NEXT      shiftwork log " in desk.out
    found = desk.json("show", item)
    promised = {
        "id",
        "queue",
        "title",
        "state",
        "age_s",
        "attempts",
        "version",
        "body",
        "constraints",
        "result",
    }
    promised |= {"flags", "notes", "conclusions", "sessions", "events"}
    assert promised <= set(found)
    assert found["result"]["text"] == "It costs 3 €.\nAs always."
    assert found["result"]["citations"] == []
    assert found["constraints"][0]["text"] == "be brief"
    assert [one["outcome"] for one in found["sessions"]] == ["flagged", "answered"]
    assert [one["kind"] for one in found["events"]] == ["intake", "decision", "resolve", "decision"]
    assert found["conclusions"][0]["evidence"] == []
    assert found["sessions"][0]["steps"][0]["name"] == "claim"


def test_what_does_not_exist_is_three_before_and_after_the_first_run(desk):
    for words in (
        ("show", "q-0001"),
        ("show", "f-0001"),
        ("why", "q-0001"),
        ("why", "f-0001"),
        ("log", "q-0001"),
    ):
        assert desk.run(*words) == 3
        assert desk.out == ""
    assert not (desk.folder / "state").exists()
    desk.world()
    for words in (
        ("show", "q-0001"),
        ("show", "f-0001"),
        ("why", "q-0001"),
        ("why", "f-0001"),
        ("log", "q-0001"),
    ):
        assert desk.run(*words) == 3
    assert desk.run("show", "\udc80") == 2


def test_hostile_words_reach_no_terminal_raw(desk):
    """FIELD 11, 46: text from outside is escaped on every screen."""
    evil = "\x1b[31mred\x07 \u202edesrever\u2066 \x9b5m"
    asks = {"question": evil, "kind": "direction", "options": [{"label": evil, "cost": evil}]}
    asks["recommendation"] = {"option": 1, "reason": evil}
    more = {"reason": evil, "alternatives": [{"option": evil, "why_not": evil}]}
    world = desk.world(flag(stuck=evil, questions=[asks], **more), answer(evil, **more))
    item = world.hand(evil, name=evil, origin=evil)
    world.session()
    screens = [
        ("list",),
        ("flags",),
        ("show", "f-0001"),
        ("show", item),
        ("log",),
        ("log", item),
        ("why", item),
    ]
    screens += [("abort", item, "--dry-run"), ("status",), ("doctor",)]
    screens += [(*words, "--json") for words in screens]
    for words in screens:
        assert desk.run(*words) == 0
        for char in "\x1b\x07\u202e\u2066\x9b":
            assert char not in desk.out + desk.err, words
    assert desk.json("show", item)["title"] == evil[:60]


# --- log and why -------------------------------------------------------------------------------------------------


def test_the_log_tells_a_stranger_what_was_decided_why_and_at_what_cost(desk):
    world = desk.world(
        flag(questions=[SEND]),
        answer(
            "yes",
            alternatives=[{"option": "flag", "why_not": "support .93 ≥ .80"}],
            usage={"input_tokens": 10, "output_tokens": 5, "cost": 0.25},
        ),
    )
    item = world.hand("Send?", origin="hello.md")
    world.session()
    desk.run("resolve", "f-0001", "--option", "2", "--by", "anna", "--reason", "ok")
    world.session()
    desk.lines("log", item)
    assert fits(desk.out)
    told = " ".join(line[8:].strip() for line in desk.out.splitlines())
    assert "handed in: cli hello.md (v1)" in told
    assert "session 1: claimed at v1, attempt 1, woken by test, context " in told
    assert "decided by the model: flag" in told
    assert "because unsure" in told
    assert "checkpoint v1 → v2 · flagged · asked f-0001" in told
    assert 'f-0001 answered by anna: "2 send 12": ok' in told
    assert "dropped: flag (support .93 ≥ .80)" in told
    assert "· answered · 15 tokens, $0.25" in told
    assert desk.err == "times in UTC\n"
    data = desk.json("log", item)
    assert [one["kind"] for one in data] == ["intake", "decision", "resolve", "decision"]
    assert data[3]["session"]["cost"] == 0.25
    assert data[3]["decision"]["decided_by"] == "model"


def test_the_log_of_all_names_the_items_and_keeps_to_its_limit(desk):
    assert desk.run("log") == 0
    assert "Nothing happened yet" in desk.err
    world = desk.world(answer(), ago_s=86400)
    items = [world.hand(str(number)) for number in range(5)]
    lines = desk.lines("log")
    assert [item for line in lines for item in items if item in line] == items
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  q-0001  handed in: cli \(v1\)", lines[0])
    assert len(desk.lines("log", "--limit", "2")) == 2


def test_a_session_that_runs_or_lost_is_told_too(desk):
    world = desk.world()
    item = world.hand("slow")
    world.claim()
    assert "it runs now" in "\n".join(desk.lines("log", item))
    world.store.people.stop_sessions([item], by="anna", now=world.now)
    desk.lines("log", item)
    assert "conflict: stopped by anna; nothing of it was recorded" in " ".join(desk.out.split())
    assert "its session stopped, then paused by anna" in desk.out


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (answer(), r"done at \d\d:\d\d UTC; it waits for nothing"),
        (flag(), r"waits for a person \(f-0001, asked 1m ago\); answering it ends the wait"),
        (park(until="2027-02-01T09:00:00Z"), r"parked \(not yet\); on 2027-02-01 09:00 UTC the wait ends"),
        (
            failure("boom"),
            r"ready \(decider failure 1 of 5: boom\); waits for the daemon, which is not running",
        ),
    ],
)
def test_why_says_in_one_line_what_ends_the_wait(desk, script, words):
    """FIELD 28."""
    world = desk.world(script)
    item = world.hand("x")
    world.session()
    (line,) = desk.lines("why", item)
    assert re.fullmatch(words, line), line
    assert desk.json("why", item)["words"] == line


def test_why_knows_every_other_wait(desk):
    world = desk.world(flag(), ago_s=60)
    first, second, third = (world.hand(f"x{number}") for number in range(3))
    other = world.hand("y", queue="r")
    world.session("q")

    def said(item):
        (line,) = desk.lines("why", item)
        return line

    world.store.people.pause(second, by="anna", now=world.now)
    assert re.fullmatch(
        r"waits for a person: paused by anna at .* UTC; resuming it ends the wait", said(second)
    )
    assert "shiftwork resume q-0002" in desk.err
    world.store.people.pause_queue("r", by="bob", now=world.now)
    assert "waits for its queue: paused by bob at" in said(other)
    assert said("f-0001") == said(first)
    assert desk.run("resolve", "f-0001", "--park", "2h") == 0
    assert "you are asked again; an answer ends it now" in said(first)
    claim = world.claim("q")
    assert claim.item_id == third
    assert "session 2 works on it, attempt 1; it ends" in said(third)
    world.store.people.abort(second, by="x", reason="", now=world.now)
    assert said(second).startswith("aborted at")
    desk.config.write_text(desk.config.read_text().replace("[queues.r]", "[queues.new]"))
    assert 'waits for its queue: "r" is not in the configuration' in said(other)


def test_why_says_when_a_session_died_holding_the_item(desk):
    world = desk.world()
    item = world.hand("x")
    claim = world.claim()
    with world.store.db.write(point="extend") as conn:
        conn.execute("UPDATE leases SET owner = 'an-earlier-boot:1:1:1:'")
    (line,) = desk.lines("why", item)
    assert line == f"session {claim.session_id} died holding it; the next start takes it back"


# --- the frame of all --------------------------------------------------------------------------------------------


def test_json_is_valid_whatever_is_in_it(desk):
    world = desk.world(answer())
    item = world.hand("日本 \x9b €")
    with world.store.db.write(point="extend") as conn:
        conn.execute("UPDATE items SET title = CAST(x'ff41' AS TEXT)")
    assert desk.run("show", item, "--json") == 0
    assert json.loads(desk.out)["body"] == "日本 \x9b €"
    assert desk.run("list") == 0
    assert "\\xffA" in desk.out


@pytest.mark.parametrize("junk", ["'{'", "'[1, {}, null]'", "'{\"a\": 1}'", "'7'", "''", "x'00ff'"])
def test_one_hand_edited_row_keeps_no_other_from_being_shown(desk, junk):
    world = desk.world(flag(), answer())
    broken = world.hand("first")
    world.session()
    other = world.hand("second")
    world.session()
    with world.store.db.write(point="extend") as conn:
        conn.execute(f"UPDATE items SET title = {junk}, body = {junk}, constraints = {junk}")
        conn.execute(f"UPDATE items SET result = {junk} WHERE state = 'done'")
        conn.execute(f"UPDATE flags SET questions = {junk}, evidence = {junk}")
        conn.execute(f"UPDATE events SET data = {junk}")
        conn.execute(f"UPDATE sessions SET steps = {junk}")
        conn.execute(f"UPDATE decisions SET body = {junk}")
    screens = [
        ("list",),
        ("flags",),
        ("status",),
        ("log",),
        ("show", "f-0001"),
        ("abort", broken, "--dry-run"),
    ]
    screens += [(verb, item) for verb in ("show", "log", "why") for item in (broken, other)]
    for words in screens:
        assert desk.run(*words) == 0, desk.err
        assert desk.run(*words, "--json") == 0
        json.loads(desk.out)
    assert broken in "".join(desk.lines("list"))
