"""The state machines, as tables. The schema repeats the states as CHECKs; the store's tests let no move pass that is
not in ``NODE_MOVES``.

    item:  open → done | aborted;  done, aborted → open (``retry``: a new generation)
    node:  see NODE_MOVES
    flag:  waiting ⇄ parked → resolved | withdrawn

An item also has a *shown* state, computed from its nodes, never stored: queued, running, waiting, parked,
stalled, stuck, paused while it is open; done or aborted after.
"""

from __future__ import annotations

ITEM_STATES = ("open", "done", "aborted")
SHOWN_STATES = ("queued", "running", "waiting", "parked", "stalled", "stuck", "paused", "done", "aborted")
NODE_STATES = ("pending", "running", "blocked", "succeeded", "failed", "void", "abandoned")

# (from, to) → what makes the move
NODE_MOVES: dict[tuple[str, str], str] = {
    ("pending", "running"): "claim",
    ("running", "succeeded"): "checkpoint",
    ("running", "failed"): "checkpoint",
    ("running", "pending"): "reclaim, release, park or retry later",
    ("running", "void"): "what it rests on changed",
    ("running", "blocked"): "it asked a person",
    ("pending", "blocked"): "what it waits for is not to be had now",
    ("blocked", "pending"): "the wait is over",
    ("blocked", "succeeded"): "a person answered finally",
    ("pending", "succeeded"): "a person answered",
    ("failed", "pending"): "retry",
    ("succeeded", "void"): "a new generation begins",
    ("void", "pending"): "decided anew",
    ("pending", "abandoned"): "abort",
    ("running", "abandoned"): "abort",
    ("blocked", "abandoned"): "abort",
    ("failed", "abandoned"): "abort",
    ("void", "abandoned"): "abort",
}

FLAG_STATES = ("waiting", "parked", "resolved", "withdrawn")
