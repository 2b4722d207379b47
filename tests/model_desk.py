"""A world whose sessions are decided by a model's server on a socket."""

from __future__ import annotations

from model_server import ModelServer, act, anthropic_reply, ollama_reply, openai_reply
from session_world import World

from sessions.config import DECIDERS
from sessions.deciders import build

KEY = "sk-secret-1234567890"
ANSWER = {"reason": "it says so", "text": "42", "citations": []}
PATHS = {"openai": "/v1", "ollama": "", "anthropic": ""}


def word_in(asked) -> str:
    """The word that the first line of an Ollama prompt asks for."""
    return asked.body["messages"][0]["content"].split()[3].rstrip(".")


def call(kind, name="answer", args=None, **more):
    """A script's step that calls this decision in the way of the protocol."""
    args = ANSWER if args is None else args
    if kind == "openai":
        return act(openai_reply((name, args), **more))
    if kind == "anthropic":
        return act(anthropic_reply((name, args), **more))
    return lambda asked: act(ollama_reply({"word": word_in(asked), "decision": name, **args}, **more))


class Desk(World):
    """Queues ``q`` and ``r`` are decided by ``server`` through the decider of this kind."""

    def __init__(self, folder, server: ModelServer, kind="openai", *, policy=None, **settings):
        super().__init__(folder, policy=policy)
        self.use(server, kind, **settings)

    def use(self, server: ModelServer, kind: str, **settings) -> None:
        self.server, self.kind = server, kind
        key = self.folder / "api.key"
        key.write_text(f"{KEY}\n")
        given = {"kind": kind, "base_url": f"{server.url}{PATHS[kind]}", "model": "m", "timeout": "30s",
                 "api_key_file": str(key), **settings}  # fmt: skip
        self.model = build(DECIDERS[kind].model_validate(given), folder=str(self.folder))
        self.room = self.room._replace(deciders={"scripted": self.model})

    def raws(self, ended):
        return [(raw.kind, raw.text) for raw in self.store.history.of_session(ended.session_id)]

    def row(self, ended):
        with self.store.db.read() as conn:
            found = conn.execute("SELECT * FROM sessions WHERE id = ?", (ended.session_id,)).fetchone()
        return dict(found)

    def not_before(self, item):
        with self.store.db.read() as conn:
            found = conn.execute("SELECT not_before_at FROM nodes WHERE item_id = ?", (item,)).fetchone()
        return found[0]
