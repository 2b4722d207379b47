"""A real daemon whose queue a model's server decides: waits that outlive it, kills in the call, servers that go."""

from __future__ import annotations

import os
import signal
import time

import pytest
from daemon_world import World
from model_desk import ANSWER, KEY, call
from model_server import ModelServer, act, openai_reply

MODEL = """
[deciders.model]
kind = "{kind}"
base_url = "{url}"
model = "m"
api_key_file = "api.key"
timeout = "{timeout}"
"""


def world_of(folder, server, kind="openai", *, timeout="30s", daemon="", queues=("work",)):
    """Queue ``work`` is decided by the server; any other one by the program of ``daemon_world``."""
    (folder / "api.key").write_text(f"{KEY}\n")
    (folder / "api.key").chmod(0o600)
    world = World(folder, daemon=daemon, queues=queues)
    text = world.config.read_text().replace('decider = "script"', 'decider = "model"', 1)
    world.config.write_text(text + MODEL.format(kind=kind, url=server.url, timeout=timeout))
    return world


def busy(seconds):
    return act({"error": {"message": "slow down"}}, 429, headers={"retry-after": str(seconds)})


def test_a_stored_wait_outlives_the_daemon(tmp_path):
    with ModelServer(busy(6), call("openai")) as server:
        world = world_of(tmp_path, server)
        try:
            world.start()
            item = world.add("What is six times seven?")
            world.until(lambda: world.value("SELECT outcome FROM sessions") == "failed")
            wait_until = world.value("SELECT not_before_at FROM nodes WHERE item_id = ?", item)
            world.kill()
            world.start()
            assert "its decider cannot be asked" in world.command("why", item).stdout
            assert world.value("SELECT not_before_at FROM nodes WHERE item_id = ?", item) == wait_until
            world.until(lambda: world.value("SELECT state FROM items") == "done", 60)
            began = world.value("SELECT started_at FROM sessions ORDER BY id DESC")
            assert began >= wait_until
            assert len(server.asked) == 2
            assert world.value("SELECT count(*) FROM sessions") == 2
        finally:
            world.kill()


def test_a_worker_that_is_killed_in_the_call_is_replaced_and_one_decision_is_recorded(tmp_path):
    too_late = act(openai_reply(("answer", {**ANSWER, "text": "too late"})))._replace(silent_s=60)
    with ModelServer(too_late, call("openai")) as server:
        world = world_of(tmp_path, server)
        try:
            world.start()
            item = world.add("What is six times seven?")
            assert server.came.acquire(timeout=30)
            owner = world.value("SELECT owner FROM leases")
            os.kill(int(owner.split(":")[2]), signal.SIGKILL)
            world.until(lambda: world.value("SELECT state FROM items") == "done", 60)
            outcomes = [one for (one,) in world.rows("SELECT outcome FROM sessions ORDER BY id")]
            assert outcomes == ["crashed", "answered"]
            assert world.rows("SELECT count(*) FROM decisions") == [(1,)]
            assert '"42"' in world.command("show", item, "--json").stdout
            assert len(server.asked) == 2
        finally:
            world.kill()


@pytest.mark.parametrize(
    "place", ["decider.call.before@self", "decider.call.after@self", "decider.call.after"]
)
def test_a_kill_beside_the_call_leads_to_one_record(tmp_path, place):
    with ModelServer(call("ollama")) as server:
        world = world_of(tmp_path, server, "ollama")
        try:
            world.start(env={"SHIFTWORK_CRASH_AT": place})
            item = world.add("What is six times seven?")
            if not place.endswith("@self"):
                world.process.wait(30)
                world.process = None
                world.start()
            world.until(lambda: world.value("SELECT state FROM items WHERE id = ?", item) == "done", 60)
            assert world.value("SELECT count(*) FROM decisions") == 1
            outcomes = [one for (one,) in world.rows("SELECT outcome FROM sessions ORDER BY id")]
            assert outcomes == ["crashed", "answered"]
            assert len(server.asked) == (1 if "before" in place else 2)
        finally:
            world.kill()


def test_while_the_server_is_away_its_queue_waits_and_the_others_go_on(tmp_path):
    with ModelServer(act(b"", 503)) as server:
        world = world_of(tmp_path, server, queues=("work", "other"))
        try:
            world.start()
            items = [world.add(f"question {number}") for number in range(3)]
            world.until(lambda: world.value("SELECT count(*) FROM problems") == 1)
            for number in range(3):
                world.add(f"answer {number}", queue="other")
            world.until(lambda: world.value("SELECT count(*) FROM items WHERE state = 'done'") == 3)
            key, detail = world.rows("SELECT key, detail FROM problems")[0]
            assert key == "decider:model"
            assert "answered 503" in detail
            waits = [world.command("why", one).stdout for one in items]
            assert all("its decider cannot be asked" in words for words in waits)
            assert world.value("SELECT count(*) FROM flags") == 0
            assert world.value("SELECT max(failures) FROM nodes") == 0
            server.script = [call("openai")]
            world.until(lambda: world.value("SELECT count(*) FROM items WHERE state = 'done'") == 6, 90)
            world.until(lambda: world.value("SELECT count(*) FROM problems") == 0)
            assert {world.value("SELECT state FROM items WHERE id = ?", one) for one in items} == {"done"}
        finally:
            world.kill()


def test_a_refused_key_asks_once_and_not_for_every_item(tmp_path):
    refused = act({"error": {"message": "invalid x-api-key", "type": "authentication_error"}}, 401)
    with ModelServer(refused) as server:
        world = world_of(tmp_path, server, "anthropic")
        try:
            for number in range(5):
                world.add(f"question {number}")
            world.start()
            world.until(lambda: world.value("SELECT count(*) FROM flags") == 1)
            time.sleep(2)
            assert len(server.asked) == 1
            assert world.value("SELECT count(*) FROM flags") == 1
            flag = world.value("SELECT id FROM flags")
            assert "invalid x-api-key" in world.command("show", flag).stdout
            server.script = [call("anthropic")]
            world.command("resolve", flag, "--option", "1")
            world.until(lambda: world.value("SELECT count(*) FROM items WHERE state = 'done'") == 5, 60)
            for file in world.state.iterdir():
                if file.is_file():
                    assert KEY.encode() not in file.read_bytes(), file
        finally:
            world.kill()


def test_an_item_that_breaks_the_server_each_time_starves_nobody(tmp_path):
    """FIELD 25: the queue goes on."""
    good = call("openai")

    def picky(asked):
        if b"broken" in asked.raw:
            return act({"error": {"message": "cannot render the template", "type": "server_error"}}, 500)
        return good

    with ModelServer(picky) as server:
        world = world_of(tmp_path, server)
        try:
            first = world.add("broken")
            for number in range(3):
                world.add(f"question {number}")
            world.start()
            world.until(lambda: world.value("SELECT count(*) FROM items WHERE state = 'done'") == 3, 90)
            assert world.value("SELECT state FROM items WHERE id = ?", first) == "open"
            assert world.value("SELECT max(failures) FROM nodes") >= 1
        finally:
            world.kill()
