"""The checkpoint: the one transaction that records a session's outcome, guarded by compare-and-swap.

The guard is the lease token, the node's version and the item's plan version. Not exactly one row → CheckpointConflict
and nothing written. The item's own version moves with it.

    answered   node → succeeded with its result; the item is done
    flagged    node → blocked below a human node; a flag waits
    parked     node → pending, not before a time
    failed     the decider failed: node → pending later, or a flag at the limit
    denied     a cap said no: a flag, or later
    void       an input changed: node → pending, decided anew
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from store.asking import Ask, ask_person
from store.claims import Claim, Order, drop_lease, lost, take
from store.database import Database
from store.events import Events
from store.keys import digest
from store.loading import Unreadable
from store.sources import mark_overtaken
from store.text import as_json


class Shown(NamedTuple):
    """A passage that stood in the context, by digest: a premise of the result."""

    source_id: int
    ref: str
    digest: str
    cited: bool = False


class Note(NamedTuple):
    """One line for later sessions. Kinds: conclusion, rejected, question, stage."""

    kind: str
    text: str
    sources: Sequence[str] = ()
    pinned: bool = False


class Lesson(NamedTuple):
    """What would change a later choice: becomes an episode unless it is known already."""

    text: str
    digest: str
    tokens: Sequence[str]
    evidence: Sequence[str] = ()
    failed: bool = False
    source: str = ""
    trust: str = "untrusted"


class Step(NamedTuple):
    """A line of the session's record: which step, decided by whom (code, model, person), what came of it, how long."""

    name: str
    decided_by: str
    what: str
    ms: int


class Outcome(NamedTuple):
    """What a session came to: a value computed without I/O, ready to be committed."""

    kind: str
    reuse_key: str | None = None
    decision: Mapping[str, Any] | None = None
    decided_by: str = "code"
    result: Mapping[str, Any] | None = None
    unverified: bool = True
    ask: Ask | None = None
    not_before: float | None = None
    parked: bool = False
    park_expires_at: float | None = None
    why: str = ""
    failed_call: bool = False
    failures_kept: bool = False
    notes: Sequence[Note] = ()
    lessons: Sequence[Lesson] = ()
    conclusions: Sequence[Mapping[str, Any]] = ()
    shown: Sequence[Shown] = ()
    premises: Mapping[str, Any] | None = None
    context_digest: str | None = None
    context_chars: int | None = None
    steps: Sequence[Step] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    log: Mapping[str, Any] | None = None


class Committed(NamedTuple):
    """What the checkpoint made of it."""

    item_id: str
    version: int
    item_state: str
    flag_id: str | None
    following: Claim | None = None


class Checkpoints:
    """See the module's head. ``remember`` writes notes and episodes in the same transaction."""

    def __init__(self, db: Database, events: Events, remember: Callable[..., None]) -> None:
        self._db = db
        self._events = events
        self._remember = remember

    def commit(
        self,
        claim: Claim,
        outcome: Outcome,
        *,
        now: float,
        compact: Callable[[Sequence[Any]], Sequence[tuple[int, str | None]]] | None = None,
        then: Order | None = None,
    ) -> Committed:
        """Record the outcome once, or raise CheckpointConflict with nothing written.

        ``compact`` is the pure rule that says which live notes leave when this node is finished. ``then`` claims the
        next node in the same commit.
        """
        with self._db.write(point="checkpoint") as conn:
            if not drop_lease(conn, claim.node_id, claim.token):
                raise lost(claim)
            _move_node(conn, claim, outcome, now)
            version, state = _move_item(conn, claim, outcome, now)
            flag = ask_person(conn, outcome.ask, now=now) if outcome.ask is not None else None
            if outcome.decision is not None and outcome.reuse_key is not None:
                _store_decision(conn, claim, outcome, now)
            if outcome.kind == "answered":
                conn.execute(
                    "INSERT OR IGNORE INTO papers (item_id, kind, about, at) "
                    "SELECT id, 'answer', 'g' || generation, ? FROM items WHERE id = ?",
                    (now, claim.item_id),
                )
            _store_shown(conn, claim, outcome)
            self._remember(conn, claim, outcome, now=now, compact=compact)
            if outcome.kind == "answered":
                cited = [(one.source_id, one.ref, one.digest) for one in outcome.shown if one.cited]
                mark_overtaken(conn, claim.item_id, claim.node_id, cited, now=now)
            conn.execute(
                "UPDATE sessions SET outcome = ?, cause = ?, end_version = ?, context_digest = ?, context_chars = ?, "
                "steps = ?, input_tokens = ?, output_tokens = ?, cost = ?, ended_at = ? WHERE id = ?",
                (outcome.kind, outcome.why, version, outcome.context_digest, outcome.context_chars,
                 as_json([list(step) for step in outcome.steps]), outcome.input_tokens, outcome.output_tokens,
                 outcome.cost, now, claim.session_id),
            )  # fmt: skip
            self._events.add(
                conn, now=now, kind="decision" if outcome.decision is not None else outcome.kind,
                queue=claim.queue, item_id=claim.item_id, session_id=claim.session_id,
                data={**_told(outcome.log), "outcome": outcome.kind, "flag": flag},
            )  # fmt: skip
            following = take(conn, then, now=now) if then is not None else None
        return Committed(claim.item_id, version, state, flag, following)

    def stored_decision(self, item_id: str, node_id: str, reuse_key: str) -> dict[str, Any] | None:
        """The decision already recorded for this node and these inputs: it is never asked again. Raises Unreadable."""
        rows = self._db.rows(
            "SELECT body, decided_by FROM decisions WHERE item_id = ? AND node_id = ? AND reuse_key = ?",
            (item_id, node_id, reuse_key),
        )
        if not rows:
            return None
        try:
            return {"body": json.loads(rows[0]["body"]), "decided_by": rows[0]["decided_by"]}
        except ValueError as error:
            raise Unreadable(f"the stored decision cannot be parsed ({error})") from None


def _move_node(conn: sqlite3.Connection, claim: Claim, outcome: Outcome, now: float) -> None:
    guard = "WHERE id = ? AND state = 'running' AND version = ?"
    if outcome.kind == "answered":
        done = conn.execute(
            "UPDATE nodes SET state = 'succeeded', version = version + 1, crashes = 0, failures = 0, result = ?, "
            f"reuse_key = ?, why = '', changed_at = ? {guard}",
            (_reference(outcome), outcome.reuse_key, now,
             claim.node_id, claim.node_version),
        ).rowcount  # fmt: skip
    elif outcome.ask is not None:  # ask_person blocks it
        done = conn.execute(
            f"UPDATE nodes SET crashes = 0, failures = failures + ?, changed_at = ? {guard}",
            (int(outcome.failed_call), now, claim.node_id, claim.node_version),
        ).rowcount
    else:
        done = conn.execute(
            "UPDATE nodes SET state = 'pending', version = version + 1, crashes = 0, "
            "failures = CASE WHEN ? THEN failures + ? ELSE 0 END, not_before_at = ?, parked = ?, "
            "park_expires_at = ?, why = ?, "
            f"held = (SELECT paused FROM items WHERE items.id = nodes.item_id), changed_at = ? {guard}",
            (int(outcome.failed_call or outcome.failures_kept), int(outcome.failed_call),
             outcome.not_before, int(outcome.parked),
             outcome.park_expires_at, outcome.why, now,
             claim.node_id, claim.node_version),
        ).rowcount  # fmt: skip
    if done != 1:
        raise lost(claim)


def _move_item(conn: sqlite3.Connection, claim: Claim, outcome: Outcome, now: float) -> tuple[int, str]:
    decided = int(outcome.decision is not None)
    if outcome.kind == "answered":
        row = conn.execute(
            "UPDATE items SET state = 'done', version = version + 1, decisions = decisions + ?, result = ?, "
            "unverified = ?, stale = NULL, finished_at = ?, changed_at = ? "
            "WHERE id = ? AND state = 'open' AND plan_version = ? RETURNING version, state",
            (
                decided,
                as_json(outcome.result),
                int(outcome.unverified),
                now,
                now,
                claim.item_id,
                claim.plan_version,
            ),
        ).fetchone()
    else:
        row = conn.execute(
            "UPDATE items SET version = version + 1, decisions = decisions + ?, changed_at = ? "
            "WHERE id = ? AND state = 'open' AND plan_version = ? RETURNING version, state",
            (decided, now, claim.item_id, claim.plan_version),
        ).fetchone()
    if row is None:
        raise lost(claim)
    return row["version"], row["state"]


def _store_decision(conn: sqlite3.Connection, claim: Claim, outcome: Outcome, now: float) -> None:
    conn.execute(
        "INSERT OR IGNORE INTO decisions "
        "(node_id, item_id, session_id, reuse_key, kind, decided_by, body, premises, at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (claim.node_id, claim.item_id, claim.session_id, outcome.reuse_key, (outcome.decision or {})["decision"],
         outcome.decided_by, as_json(outcome.decision), as_json(outcome.premises or {}), now),
    )  # fmt: skip


def _store_shown(conn: sqlite3.Connection, claim: Claim, outcome: Outcome) -> None:
    if outcome.kind != "answered" or not outcome.shown:
        return
    conn.executemany(
        "INSERT INTO shown (node_id, item_id, source_id, ref, digest, cited) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO UPDATE SET digest = excluded.digest, cited = excluded.cited",
        [(claim.node_id, claim.item_id, *one) for one in outcome.shown],
    )


def _reference(outcome: Outcome) -> str:
    """A node's result is in its frozen decision; the node itself stays narrow."""
    return as_json({"decision": outcome.reuse_key, "digest": digest(outcome.result)})


def _told(log: Mapping[str, Any] | None) -> dict[str, Any]:
    """What an event says: only what there is to say."""
    return {key: value for key, value in (log or {}).items() if value not in (None, [], {}, "", 0)}
