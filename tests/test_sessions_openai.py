"""The decider ``openai``: real sessions, a real socket, and every way a server of that protocol can go wrong."""

from __future__ import annotations

import json

import pytest
from model_server import ModelServer, act, openai_reply
from session_world import World

from sessions.deciders import build
from sessions.models import OpenaiDecider as Settings

ANSWER = {"reason": "it says so", "text": "42", "citations": []}
FLAG = {
    "reason": "unsure",
    "stuck": "two ways",
    "questions": [
        {
            "question": "Which?",
            "kind": "direction",
            "options": [{"label": "left", "cost": "none"}],
            "recommendation": {"option": 1, "reason": "cheap"},
        }
    ],
}
KEY = "sk-secret-1234567890"


def answered(**more):
    return act(openai_reply(("answer", {**ANSWER, **more})))


class Desk(World):
    """A world whose sessions are decided by a server on a socket."""

    def __init__(self, folder, server, *, policy=None, **settings):
        super().__init__(folder, policy=policy)
        self.server = server
        key = folder / "api.key"
        key.write_text(f"{KEY}\n")
        given = {"kind": "openai", "base_url": f"{server.url}/v1", "model": "m", "timeout": "30s",
                 "api_key_file": str(key), **settings}  # fmt: skip
        self.model = build(Settings.model_validate(given), folder=str(folder))
        self.room = self.room._replace(deciders={"scripted": self.model})

    def raws(self, ended):
        return [(raw.kind, raw.text) for raw in self.store.history.of_session(ended.session_id)]

    def row(self, ended):
        with self.store.db.read() as conn:
            found = conn.execute("SELECT * FROM sessions WHERE id = ?", (ended.session_id,)).fetchone()
        return dict(found)


@pytest.fixture
def desk(tmp_path):
    open_ones = []

    def make(*script, **settings):
        server = ModelServer(*script)
        server.__enter__()
        open_ones.append(server)
        world = Desk(tmp_path, server, **settings)
        open_ones.append(world)
        return world

    yield make
    for one in reversed(open_ones):
        one.close() if isinstance(one, World) else one.__exit__()


def test_one_call_of_one_tool_is_the_decision(desk):
    world = desk(answered(), price_in=2.0, price_out=10.0)
    item = world.hand("What is six times seven?")
    ended = world.session()
    assert (ended.outcome, world.state_of(item)) == ("answered", "done")
    assert world.item(item)["result"]["text"] == "42"
    row = world.row(ended)
    assert (row["input_tokens"], row["output_tokens"]) == (120, 40)
    assert row["cost"] == pytest.approx((120 * 2.0 + 40 * 10.0) / 1e6)
    asked = world.server.asked[0]
    assert asked.line == "POST /v1/chat/completions HTTP/1.1"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in asked.body["tools"]] == ["answer", "flag", "park"]
    assert [message["role"] for message in asked.body["messages"]] == ["system", "user"]


def test_the_key_stands_nowhere_in_what_is_kept(desk):
    world = desk(act({"error": {"message": f"wrong key {KEY}", "type": "invalid_request_error"}}, status=401))
    world.hand()
    ended = world.session()
    kept = json.dumps(world.raws(ended)) + json.dumps(world.flags()) + json.dumps(world.row(ended))
    assert KEY not in kept
    assert "authorization: ***" in world.raws(ended)[0][1]
