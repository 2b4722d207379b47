"""A room for sessions: a real store, a scripted decider, a clock that stands until it is moved."""

from __future__ import annotations

import json
import os
from pathlib import Path

from stores import new_state

from memory.sources import SourceWatch
from sessions.config import DaemonLimits, QueuePolicy
from sessions.decider import DeciderFailure, Reply
from sessions.link import Link
from sessions.session import Room, run_session
from store.claims import Order
from store.intake import Handed
from store.sqlite import open_store

NOW = 1_800_000_000.0
QUESTION = {
    "question": "Which?",
    "kind": "direction",
    "options": [{"label": "left", "cost": "none"}, {"label": "right", "cost": "much"}],
    "recommendation": {"option": 1, "reason": "cheap"},
}


def answer(text="42", **more):
    return {"decision": "answer", "reason": "it says so", "text": text, **more}


def flag(**more):
    return {"decision": "flag", "reason": "unsure", "stuck": "two ways", "questions": [QUESTION], **more}


def park(until="2027-02-01T00:00:00Z", **more):
    return {"decision": "park", "reason": "not yet", "until": until, **more}


class Scripted:
    """Gives the replies of its script one by one (the last for ever); keeps every request."""

    kind = "scripted"
    decided_by = "model"
    must_cite = False

    def __init__(self, *script):
        self.script = list(script) or [answer()]
        self.requests = []

    @property
    def calls(self):
        return len(self.requests)

    def decide(self, request, *, timeout_s):
        self.requests.append(json.loads(json.dumps(request)))
        reply = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if callable(reply):
            reply = reply(request)
        if isinstance(reply, Exception):
            raise reply
        return (
            reply
            if isinstance(reply, Reply)
            else Reply(reply if isinstance(reply, str) else json.dumps(reply))
        )


class World:
    """One store with queues ``q`` and ``r``, both decided by the script."""

    def __init__(self, folder: Path, *script, policy=None):
        self.state = folder / "state" if (folder / "state").exists() else new_state(folder)
        self.store = open_store(self.state)
        self.now = NOW
        self.decider = Scripted(*script)
        self.link, self._daemon_end = Link.pair()
        settings = {"decider": "scripted", **(policy or {})}
        self.policies = {
            name: QueuePolicy.model_validate(settings, context={"folder": folder}) for name in ("q", "r")
        }
        self.room = Room(
            store=self.store,
            policies=self.policies,
            deciders={"scripted": self.decider},
            limits=DaemonLimits(),
            sources={},
            link=self.link,
            clock=lambda: self.now,
        )
        self.folder = folder

    def doc(self, name, text):
        self.room.sources["q"] = SourceWatch("q", (str(self.folder / "docs/**/*.md"),), self.folder)
        path = self.folder / "docs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def hand(self, body="what is it?", *, queue="q", **more):
        handed = Handed(queue, body, "cli", title=body[:60], **more)
        return self.store.intake.hand_in([handed], now=self.now, caps={"q": 10**6, "r": 10**6})[0].id

    def claim(self, *queues):
        return self.store.claims.claim(
            Order(
                list(queues) or ["q", "r"],
                owner=f"test:{os.getpid()}",
                daemon="d",
                trigger="test",
                lease_s=660,
                deadline_s=600,
            ),
            now=self.now,
        )

    def session(self, *queues):
        """One session as a worker runs it: None when nothing is ready."""
        if not self.store.claims.ready(list(queues) or ["q", "r"], now=self.now).now:
            return None
        claim = self.claim(*queues)
        return run_session(self.room, claim) if claim else None

    def drain(self, most=1000):
        ended = []
        while len(ended) < most and (one := self.session()):
            ended.append(one)
        return ended

    def item(self, item_id):
        return self.store.views.item(item_id, now=self.now)

    def state_of(self, item_id):
        return self.item(item_id)["state"]

    def flags(self):
        return self.store.views.flags(now=self.now)

    def commits(self):
        with self.store.db.read() as conn:
            return conn.execute("SELECT seq FROM commits").fetchone()[0]

    def close(self):
        self.store.close()
        self.link.close()
        self._daemon_end.close()


def failure(words="no answer", **more):
    return DeciderFailure(words, **more)
