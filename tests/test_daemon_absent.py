"""Deciders that cannot be asked: whose queues are left alone, for how long, and who hears of it."""

from __future__ import annotations

import pytest
from stores import new_state

from daemon import config
from daemon.absent import FIRST_PERMANENT_S, FIRST_S, LONGEST_PERMANENT_S, LONGEST_S, Absent
from daemon.books import Books, Orders
from notify.conditions import causes
from notify.messages import headline
from notify.policy import policy_from
from store.intake import Handed
from store.sqlite import open_store

QUEUES = {"q": "model", "r": "model", "s": "local"}


def ended(outcome="failed", *, away=True, asked_s=0.0, permanent=False):
    found = {"asked_s": asked_s, "permanent": permanent} if away else None
    return {"outcome": outcome, "why": "no connection", "away": found}


def waits(absent, times, **more):
    """How long each of so many sessions in a row has its queues left alone."""
    now, found = 0.0, []
    for _ in range(times):
        absent.heard("model", ended(**more), now=now)
        until = absent.until(["model"], now=now)
        found.append(until - now)
        now = until
    return found


def test_all_queues_of_the_decider_are_left_alone_and_no_other():
    absent = Absent()
    absent.heard("model", ended(), now=100.0)
    assert absent.queues(QUEUES, now=100.0 + FIRST_S - 1) == {"q", "r"}
    assert absent.queues(QUEUES, now=100.0 + FIRST_S) == set()
    assert absent.until(["local"], now=100.0) is None


def test_it_is_tried_more_and_more_rarely_up_to_a_limit():
    assert waits(Absent(), 9) == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, LONGEST_S, LONGEST_S, LONGEST_S]
    assert waits(Absent(), 9, permanent=True)[0] == FIRST_PERMANENT_S
    assert waits(Absent(), 99, permanent=True)[-1] == LONGEST_PERMANENT_S


def test_a_wait_that_the_server_asked_for_is_kept_to():
    assert waits(Absent(), 3, asked_s=1800.0) == [1800.0] * 3


def test_sessions_that_asked_at_the_same_time_count_once():
    absent = Absent()
    for _ in range(5):
        absent.heard("model", ended(), now=0.0)
    assert absent.until(["model"], now=0.0) == FIRST_S


def test_a_command_ends_the_wait_but_not_the_memory_of_it():
    absent = Absent()
    waits(absent, 3)
    absent.try_now()
    assert absent.queues(QUEUES, now=0.0) == set()
    absent.heard("model", ended(), now=0.0)
    assert absent.until(["model"], now=0.0) == FIRST_S * 2**3


def test_a_session_that_was_answered_ends_it_and_each_change_is_told_once():
    absent = Absent()
    absent.heard("model", ended("answered", away=False), now=0.0)
    absent.heard("model", ended("answered", away=False), now=0.0)
    assert absent.news() == [("model", "")], "an alert of before the start may stand"
    absent.heard("model", ended(), now=0.0)
    assert absent.news() == [("model", "no connection")]
    absent.heard("model", ended("denied", away=False), now=9.0)
    assert absent.news() == [], "nobody was asked"
    absent.heard("model", ended("failed", away=False), now=9.0)
    assert absent.news() == [("model", "")], "it said something bad, so it was there"
    assert absent.news() == []
    assert waits(absent, 1) == [FIRST_S]


def test_news_that_could_not_be_written_is_news_still():
    absent = Absent()
    absent.heard("model", ended(), now=0.0)
    absent.unsaid(absent.news())
    assert absent.news() == [("model", "no connection")]


# ---------------------------------------------------------------- what a look makes of it

CONFIG = """
[queues.q]
decider = "model"
[queues.s]
decider = "local"
[deciders.model]
kind = "ollama"
model = "m"
[deciders.local]
kind = "command"
argv = ["/bin/cat"]
"""


@pytest.fixture
def books(tmp_path):
    (tmp_path / "shiftwork.toml").write_text(CONFIG)
    store = open_store(new_state(tmp_path))
    store.intake.hand_in([Handed("q", "a question", "cli")], now=1000.0, caps={"q": 9})
    yield Books(store, config.load(tmp_path / "shiftwork.toml"), print, print), store
    store.close()


def look(books, now, *, left_alone=(), deciders=()):
    return books.look(Orders([], [], [], True, "", now, [], left_alone, deciders))


def test_what_nobody_can_decide_is_not_ready(books):
    one, _ = books
    assert look(one, 1000.0).ready == 1
    assert look(one, 1001.0, left_alone={"q"}).ready == 0
    assert look(one, 1002.0, left_alone={"s"}).ready == 1


def test_problems_of_what_the_configuration_no_longer_has_are_over_and_no_others(books):
    one, store = books
    keys = {
        "decider:model": None, "decider:gone": None, "trigger:gone": None, "inbox:gone missing": "gone",
        "inbox:q missing": "q", "sources:q": "q", "sources:gone": "gone", "rejected:gone": "gone", "store:outbox": None,
    }  # fmt: skip
    for key, queue in keys.items():
        store.alerts.raise_problem(key, queue=queue, kind="k", detail="d", now=999.0)

    def left():
        return {problem.key for problem in store.alerts.facts(now=1000.0, flag_age_s=60.0).problems}

    look(one, 1000.0)  # neither queue has an inbox
    assert left() == {"decider:model", "sources:q", "rejected:gone"}
    store.alerts.raise_problem("decider:model", queue=None, kind="k", detail="d", now=1000.0)
    local = {name: queue.model_copy(update={"decider": "local"}) for name, queue in one.config.queues.items()}
    one.config = one.config.model_copy(update={"queues": local, "digest": "another"})
    look(one, 1001.0)
    assert left() == {"sources:q", "rejected:gone"}


def test_it_is_a_problem_until_the_decider_is_back_and_a_page_when_it_lasts(books):
    one, store = books
    look(one, 1000.0, deciders=[("model", "its decider cannot be asked: http://h answered 503")])
    (problem,) = store.alerts.facts(now=1000.0, flag_age_s=60.0).problems
    assert (problem.key, problem.detail) == ("decider:model", "model: http://h answered 503")
    policy = policy_from(one.config.notify)
    facts = store.alerts.facts(now=1300.0, flag_age_s=60.0)
    (cause,) = causes(facts, policy, now=1300.0).values()
    assert (cause.condition.key, cause.condition.severity, cause.condition.for_s) == (
        "decider",
        "page",
        600.0,
    )
    assert headline("decider") == "a decider that cannot be asked"
    look(one, 1400.0, deciders=[("model", "")])
    assert not store.alerts.facts(now=1400.0, flag_age_s=60.0).problems
