"""A store for memory tests: prepared once per run and copied, with the few moves that a session makes."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from pathlib import Path

from memory import context, notes
from memory.config import MemoryLimits
from store.checkpoints import Outcome
from store.claims import Order
from store.intake import Handed
from store.opening import prepare
from store.sqlite import open_store

NOW = 1_800_000_000.0
BUDGET = {"decisions_left": 49}
LIMITS = MemoryLimits()


@functools.cache
def _template() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="shiftwork-template-"))
    prepare(folder)
    return folder


def new_store(folder):
    """An empty store in ``folder/state``."""
    shutil.copytree(_template(), folder / "state")
    return open_store(folder / "state")


def hand(store, body="How do I resolve a flag?", *, queue="q", door="file", now=NOW, **more):
    handed = Handed(queue, body, door, **{"title": body[:60], "origin": "hello.md", **more})
    return store.intake.hand_in([handed], now=now, caps={queue: 10**6})[0].id


def claim(store, queue="q", now=NOW):
    return store.claims.claim(
        Order([queue], owner=f"t:{os.getpid()}", daemon="", trigger="t", lease_s=60, deadline_s=600), now=now
    )


def loaded(store, held):
    return store.loading.load(held.node_id)


def finish(store, held, *, notes_=(), lessons=(), kind="answered", limits=LIMITS, now=NOW, **more):
    """The checkpoint of a session that answered (or parked) with these notes and lessons."""
    outcome = Outcome(
        kind,
        reuse_key="r",
        decision={"decision": "answer"},
        result={"text": "x", "citations": []} if kind == "answered" else None,
        notes=notes_,
        lessons=lessons,
        **more,
    )
    compact = functools.partial(notes.compact, notes_max=limits.notes_max, notes_chars=limits.notes_chars)
    return store.checkpoints.commit(held, outcome, now=now, compact=compact)


def build(store, held, *, limits=LIMITS, now=NOW, **more):
    return context.build(store, loaded(store, held), limits, now=now, budget=BUDGET, **more)


def limits(**more):
    return MemoryLimits(**more)


def block(built, name):
    """The text of one block, or None."""
    return next((one.text for one in built.blocks if one.name == name), None)
