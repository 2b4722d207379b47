"""What a configuration says about plug-ins, and what is said about it."""

from __future__ import annotations

import os

import pytest
from plugin_world import Importable, install

from daemon import config, plugins
from daemon.cli.check_config import toml_lines
from sessions import plan
from sessions.config import PluginDecider

TABLES = """\
[queues.work]
decider = "ora"
[deciders.ora]
kind = "oracle"
word = "42"
"""
ORACLE = """
from datetime import datetime
from pydantic import model_validator
from sessions.plugin import RelativePath
class Keys(Settings):
    word: str
    wait: Duration = 1.0
    log: RelativePath | None = None
    since: datetime | None = None
    @model_validator(mode="after")
    def no_shouting(self):
        if self.word.isupper():
            raise ValueError("word: not so loud")
        return self
class Plug(Decider[Keys]):
    settings_model = Keys
    def decide(self, request, *, timeout_s):
        return ""
"""
TRIGGER = """
class Keys(Settings):
    every: Duration = 1.0
class Plug(Trigger[Keys]):
    settings_model = Keys
    async def run(self, wake, hand_in):
        pass
"""


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "site"
    install(folder, "an_oracle", ORACLE, deciders=[("oracle", "Plug")], version="2.1")
    install(folder, "a_poller", TRIGGER, triggers=[("poller", "Plug")])
    with Importable(folder):
        yield folder


def read(tmp_path, text):
    file = tmp_path / "shiftwork.toml"
    file.write_text(text)
    return config.read(file)


def said(problems):
    return [f"{one.line} {one.key}{f' = {one.value}' if one.value else ''} | {one.rule}" for one in problems]


def test_a_good_one_is_read_and_named_with_its_distribution_and_version(site, tmp_path):
    reading = read(tmp_path, TABLES)
    assert said(reading.problems) == []
    assert reading.plugins == [plugins.Use("deciders", "ora", "oracle", "an-oracle", "2.1", "")]
    assert reading.config.deciders["ora"].options == {"word": "42"}


def test_wrong_and_unknown_keys_of_its_own_are_told_like_ours(site, tmp_path):
    text = TABLES.replace('word = "42"', 'wrd = "42"\nwait = "5"\n[triggers.a]\nkind = "poller"\nevery = 3')
    assert said(read(tmp_path, text + "\nqueue = []\n").problems) == [
        '5 deciders.ora.wrd = "42" | unknown key; did you mean "word"?',
        '6 deciders.ora.wait = "5" | must be a duration such as 90s, 5m, 2h or 3d; "5s" means seconds',
        "7 triggers.a.queues | missing",
        '9 triggers.a.every = 3 | must be a duration in quotes, such as "90s", "5m", "2h" or "3d"',
        '11 triggers.a.queue = [] | unknown key; did you mean "queues"?',
    ]


def test_what_a_validator_of_theirs_says_is_told(site, tmp_path):
    text = TABLES.replace('"42"', '"HEY"')
    assert said(read(tmp_path, text).problems) == ["3 deciders.ora | word: not so loud"]


def test_a_queue_that_is_not_there_is_told_for_their_triggers_too(site, tmp_path):
    text = TABLES + '[triggers.a]\nkind = "poller"\nqueues = ["wrk"]\n'
    assert said(read(tmp_path, text).problems) == [
        '8 triggers.a.queues[0] = "wrk" | there is no [queues.wrk]; did you mean "work"?'
    ]


def test_a_kind_that_two_distributions_bring_is_refused(site, tmp_path):
    install(site, "another", ORACLE, deciders=[("oracle", "Plug")])
    assert said(read(tmp_path, TABLES).problems) == [
        '4 deciders.ora.kind = "oracle" | is offered by an-oracle and another; uninstall all but one'
    ]


def test_a_misspelt_kind_of_theirs_finds_its_nearest(site, tmp_path):
    (problem,) = read(tmp_path, TABLES.replace('"oracle"', '"orakle"')).problems
    assert problem.rule.endswith('; did you mean "oracle"?')


def test_a_kind_of_ours_cannot_be_replaced(site, tmp_path):
    install(site, "sly", TRIGGER, triggers=[("timer", "Plug")])
    reading = read(tmp_path, TABLES + '[triggers.t]\nkind = "timer"\nqueues = ["work"]\nevery = "1m"\n')
    assert reading.config.triggers["t"].every == 60
    assert [use.name for use in reading.plugins] == ["ora"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise RuntimeError('not today')", "cannot be imported: RuntimeError: not today (an_oracle.py:"),
        ("import sys; sys.exit(3)", "cannot be imported: SystemExit: 3"),
        ("Plug = None", "an_oracle:Plug is of type NoneType, not a class to call"),
        (
            ORACLE.replace('raise ValueError("word: not so loud")', "1 / 0").replace("isupper", "isdigit"),
            "cannot read its settings: ZeroDivisionError",
        ),
    ],
)
def test_a_broken_one_is_a_warning_and_the_configuration_counts(site, tmp_path, source, words):
    install(site, "an_oracle", source, deciders=[("oracle", "Plug")], version="2.1")
    reading = read(tmp_path, TABLES)
    assert reading.config is not None
    (warning,) = reading.warnings
    assert (warning.line, warning.key) == (3, "deciders.ora")
    assert warning.rule.startswith("disabled: oracle from an-oracle 2.1")
    assert words in warning.rule
    assert reading.plugins[0].broken == warning.rule


def test_an_import_without_end_is_not_waited_for(site, tmp_path, monkeypatch):
    monkeypatch.setattr(plugins, "IMPORT_S", 0.3)
    install(site, "a_sleeper", "import time; time.sleep(20)", deciders=[("sleeper", "Plug")])
    (warning,) = read(tmp_path, TABLES.replace('"oracle"', '"sleeper"')).warnings
    assert warning.rule == "disabled: sleeper from a-sleeper 1.0 took over 0.3 s to be imported"


def test_a_worker_reads_the_same_keys_as_the_daemon(site, tmp_path):
    """Out of TOML and out of JSON: times, paths and durations come to the same."""
    text = TABLES + 'log = "x/y"\nwait = "2m"\nsince = 2026-03-29T08:00:00Z\n'
    loaded = read(tmp_path, text).config
    orders = plan.Plan(
        state_dir=loaded.state_dir,
        folder=loaded.folder,
        limits=loaded.daemon,
        queues={name: plan.policy_of(queue) for name, queue in loaded.queues.items()},
        deciders=loaded.deciders,
    )
    there = plan.plan_of(plan.job(orders)).deciders["ora"]
    assert isinstance(there, PluginDecider)
    from store.plugins import load, settings_of

    found = [
        settings_of(load("deciders", "oracle"), one.options, tmp_path)
        for one in (loaded.deciders["ora"], there)
    ]
    assert found[0] == found[1]
    assert os.fspath(found[0].log) == f"{tmp_path}/x/y"
    assert (found[0].wait, found[0].since.year) == (120.0, 2026)


def test_every_value_in_force_is_shown_where_it_stands(site, tmp_path):
    loaded = read(tmp_path, TABLES).config
    lines = list(toml_lines(loaded.model_dump(mode="json")))
    place = lines.index("[deciders.ora]")
    assert lines[place + 1 : place + 3] == ['kind = "oracle"', 'word = "42"']
