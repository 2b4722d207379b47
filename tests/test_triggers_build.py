"""Configuration → triggers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import ValidationError
from triggers_world import make_world

from triggers import build, config
from triggers.files import FilesTrigger, Tuning
from triggers.timer import TimerTrigger

FOLDER = {"folder": Path("/srv/drop")}


def queue(**keys) -> config.InboxSettings:
    return config.InboxSettings.model_validate(keys, context=FOLDER)


def test_an_inbox_implies_its_trigger_and_a_table_tunes_it():
    queues = {
        "a": queue(inbox="in", stable_for="5s", max_bytes="2KiB", ignore=["*.bak"]),
        "b": queue(),
        "c": queue(inbox="c"),
    }
    specs = build.inbox_specs(queues, {"a": 3, "b": 4, "c": 5})
    assert [(spec.queue, spec.folder, spec.cap, spec.stable_for_s, spec.max_bytes) for spec in specs] == [
        ("a", Path("/srv/drop/in"), 3, 5.0, 2048),
        ("c", Path("/srv/drop/c"), 5, 2.0, 1 << 20),
    ]
    table = config.FilesTrigger.model_validate(
        {"kind": "files", "queues": ["a"], "watch": "poll", "poll_every": "9s"}
    )
    assert build.tunings({"tune": table}) == {"a": Tuning(watch="poll", poll_every_s=9.0)}


def test_tables_become_one_files_trigger_and_one_timer_trigger(tmp_path):
    world = make_world(tmp_path)
    table = {"kind": "timer", "queues": ["a"], "cron": "0 2 * * mon-fri", "item": {"body": "What changed?"}}
    tables = {"nightly": config.TimerTrigger.model_validate(table)}
    with ThreadPoolExecutor(1) as executor:
        found = build.triggers(
            {"a": queue(inbox="in")}, tables, caps={"a": 3}, store=world, executor=executor, said=print
        )
        assert [type(one) for one in found] == [FilesTrigger, TimerTrigger]
        assert (
            build.triggers({"b": queue()}, {}, caps={"b": 3}, store=world, executor=executor, said=print)
            == []
        )
    assert build.timer_specs(tables)[0].body == "What changed?"


@pytest.mark.parametrize(
    ("line", "words"), [("0 2 * *", "4 fields, cron needs 5"), ("0 2 * * fri-mon", "runs backwards")]
)
def test_a_bad_cron_line_is_refused_with_the_configuration(line, words):
    with pytest.raises(ValidationError, match=words):
        config.TimerTrigger.model_validate({"kind": "timer", "queues": ["a"], "cron": line})
