"""``alerts``, ``ack`` and ``notify test`` as a person calls them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from notify_receivers import web
from notify_world import World

from daemon.cli.main import main
from notify.policy import Channel, Policy
from notify.sender import Outcome
from notify.services import look_at


@pytest.fixture
def receiver():
    with web() as one:
        yield one


@pytest.fixture
def config(tmp_path, receiver, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "pager").write_text(f"json://127.0.0.1:{receiver.port}/topsecret", encoding="utf-8")
    path = tmp_path / "shiftwork.toml"
    path.write_text('[notify]\nservices = [{ url_file = "pager", tags = ["page"] }]\n', encoding="utf-8")
    return path


@pytest.fixture
def world(tmp_path, config):
    """A flag that waited for two hours, and was told once."""
    world = World(tmp_path / "state", Policy((Channel(str(tmp_path / "pager"), ("page",)),)))
    world.ask(at=time.time() - 7200)
    world.pager.turn()
    return world


def run(config, *words):
    return main(["--config", str(config), *words])


def test_before_the_first_run_there_are_no_alerts_and_nothing_is_created(config, capsys):
    assert run(config, "alerts") == 0
    assert capsys.readouterr().out == "0 firing\n"
    assert run(config, "alerts", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"firing": 0, "alerts": [], "without_store": []}
    assert run(config, "ack", "flag_age:questions") == 3
    assert not (config.parent / "state").exists()


def test_alerts_says_what_fires_whom_it_told_and_what_to_type(config, world, capsys):
    assert run(config, "alerts") == 0
    out = capsys.readouterr().out
    assert "1 firing" in out
    assert "1 flag waits in queue questions, the oldest for 2h" in out
    assert "as E-0001" in out
    assert f"--config {config} ack flag_age:questions" in out
    assert run(config, "alerts", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["firing"] == 1
    (alert,) = data["alerts"]
    assert alert["alert"] == "flag_age:questions"
    assert alert["told"][0]["id"] == "E-0001"
    assert alert["acked_by"] is None


def test_an_ack_is_recorded_with_its_name_and_end(config, world, capsys):
    assert run(config, "ack", "e-1", "--for", "4h", "--by", "an\x1bna") == 0
    assert "\x1b" not in capsys.readouterr().out
    assert run(config, "ack", "flag_age:questions", "--for", "30m", "--by", "anna") == 0
    assert "quiet until" in capsys.readouterr().out
    assert run(config, "alerts", "--json") == 0
    (alert,) = json.loads(capsys.readouterr().out)["alerts"]
    assert alert["acked_by"] == "anna"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["flag_age:other"], 3),
        (["E-99"], 3),
        (["flag_age:questions", "--for", "25h"], 2),
        (["flag_age:questions", "--for", "soon"], 2),
        (["flag_age:questions", "--for", "0s"], 2),
        ([], 2),
    ],
)
def test_an_ack_that_cannot_be_has_its_own_exit_code(config, world, words, code):
    assert run(config, "ack", *words) == code


def test_an_alert_that_does_not_fire_cannot_be_acked(config, world, capsys):
    world.ask("other")
    world.pager.turn()
    assert run(config, "ack", "flag_age:other") == 5
    assert "is not firing" in capsys.readouterr().err


def test_what_is_not_delivered_is_shown_with_its_reason(config, world, capsys):
    world.pager._deliver = lambda channel, message: Outcome(delivered=False, words="the service refused it")
    world.store.alerts.raise_problem(
        "store:full", queue=None, kind="full", detail="disk full", now=time.time()
    )
    world.pager.turn()
    assert run(config, "alerts") == 0
    assert "after 1 try: the service refused it" in capsys.readouterr().out


def test_without_a_service_that_is_paged_it_says_so(config, world, capsys):
    config.write_text("[notify]\n", encoding="utf-8")
    assert run(config, "alerts") == 0
    assert "nobody is paged" in capsys.readouterr().err
    assert run(config, "notify", "test") == 1
    assert "nobody is told" in capsys.readouterr().err


def test_notify_test_reaches_each_service_and_says_which_did_not_take_it(config, receiver, capsys):
    assert run(config, "notify", "test") == 0
    assert receiver.ids == ["E-test"]
    assert "delivered" in capsys.readouterr().out
    config.write_text(
        '[notify]\nservices = [{ url_file = "pager", tags = ["page"] }, { url_file = "nowhere", tags = ["ticket"] }]\n',
        encoding="utf-8",
    )
    assert run(config, "notify", "test") == 1
    out = capsys.readouterr().out
    assert "No such file or directory" in out
    assert "topsecret" not in out
    assert run(config, "notify", "test", "--tag", "page", "--json") == 0
    assert [one["delivered"] for one in json.loads(capsys.readouterr().out)] == [True]


def test_reading_verbs_import_nothing_heavy(config, world):
    program = f"""
import sys
from daemon.cli.main import main
main(["--config", {str(config)!r}, "alerts"])
heavy = ("pydantic", "dataclasses", "sqlite_utils", "asyncio", "httpx", "apprise", "numpy", "logging")
print([name for name in heavy if name in sys.modules])
"""
    argv = [sys.executable, "-c", program]
    out = subprocess.run(argv, capture_output=True, check=True, cwd=Path(__file__).parent.parent).stdout
    assert out.splitlines()[-1] == b"[]"


def test_services_count_as_apprise_really_loads_them(tmp_path, config):
    (tmp_path / "broken").write_text("nosuch://x", encoding="utf-8")
    names = ("pager", "broken", "nowhere")
    states = look_at(Policy(tuple(Channel(str(tmp_path / name), ("page",)) for name in names)))
    assert [one.loads for one in states] == [True, False, False]
