"""One session: the one place to read the mission.

    claim → verify → context → admit → decide → apply → checkpoint

Each is a named step. A session decides at most once, writes in two commits (the claim and the checkpoint), and may die
between any two lines: what is not checkpointed did not happen, and what is, happened once.

    claim       commit 1: lease, attempt + 1, session row
    verify      are the inputs what they were recorded as; are the sources on disk the ones indexed
    context     a pure function of store, sources and now
    admit       caps say yes before anything is spent
    decide      a stored decision of the same inputs, or one call (and one repair call)
    apply       the decision becomes its edit, a value; no I/O
    checkpoint  commit 2: everything, or CheckpointConflict and nothing
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from memory import context as contexts
from memory import notes as compaction
from memory.sources import SourceWatch
from sessions import apply as edits
from sessions.config import DaemonLimits, QueuePolicy
from sessions.decider import Decider, DeciderFailure
from sessions.ladder import Checked, Fault, climb
from sessions.link import Link
from store.asking import Ask
from store.checkpoints import Committed, Outcome
from store.claims import Claim
from store.errors import CheckpointConflict
from store.history import Raw
from store.keys import digest
from store.loading import Loaded, Unreadable
from store.points import outside
from store.sqlite import SqliteStore

CALL_MARGIN_S = 1.0
FAILURE_LIMIT = 5

Clock = Callable[[], float]


class Room(NamedTuple):
    """What a session works with. ``clock`` gives UTC seconds; it is read once per step."""

    store: SqliteStore
    policies: Mapping[str, QueuePolicy]
    deciders: Mapping[str, Decider]
    limits: DaemonLimits
    sources: Mapping[str, SourceWatch]
    link: Link
    clock: Clock


class Ended(NamedTuple):
    """How a session ended, for the daemon's terminal. ``outcome`` as in the session's row."""

    session_id: int
    item_id: str
    queue: str
    outcome: str
    flag_id: str | None
    why: str
    seconds: float
    cited: int


class Asked(NamedTuple):
    """What the decide step brought: a decision, or why there is none."""

    checked: Checked | None
    decided_by: str
    reused: bool
    fault: str
    raw: str
    retry_after_s: float | None
    usage: Mapping[str, Any]
    calls: int


class Step(NamedTuple):
    """A line of the session's record: which step, decided by whom, what came of it."""

    name: str
    decided_by: str
    what: str
    ms: int


class _Record:
    """The steps as they happen."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock()
        self.steps: list[dict[str, Any]] = []

    def add(self, name: str, what: str, *, decided_by: str = "code") -> None:
        now = self._clock()
        ms = max(0, round((now - self._since) * 1000))
        self._since = now
        self.steps.append(Step(name, decided_by, what, ms)._asdict())


def run_session(room: Room, claim: Claim) -> Ended:
    """Everything after the claim. Raises nothing for a lost claim: its work is discarded and said so."""
    started = room.clock()
    record = _Record(room.clock)
    record.add("claim", f"attempt {claim.attempt}")
    try:
        outcome, loaded = _outcome(room, claim, record)
        if outcome is None:
            room.store.claims.release(claim, now=room.clock(), why="stopped")
            return _ended(claim, "released", None, "stopped", room.clock() - started)
        committed = checkpoint(room, claim, outcome, record, loaded)
    except CheckpointConflict as conflict:
        return _ended(claim, "conflict", None, str(conflict), room.clock() - started)
    cited = len((outcome.result or {}).get("citations", []))
    return _ended(claim, outcome.kind, committed.flag_id, outcome.why, room.clock() - started, cited)


def _outcome(room: Room, claim: Claim, record: _Record) -> tuple[Outcome | None, Loaded | None]:
    """Steps verify to apply. No outcome: a stop was asked for before anything was decided."""
    policy = room.policies[claim.queue]
    try:
        loaded = verify(room, claim, record)
    except Unreadable as error:
        return edits.unreadable(claim, str(error)), None
    context = build_context(room, loaded, policy, record)
    denied = admit(loaded, context, policy, claim, record)
    if denied is not None:
        return denied, loaded
    if room.link.stop_asked():
        return None, loaded
    asked = decide(room, claim, loaded, context, policy, record)
    return apply(room, claim, loaded, context, asked, record), loaded


def verify(room: Room, claim: Claim, record: _Record) -> Loaded:
    """The item's rows are what their digest says; changed source files are indexed anew. Raises Unreadable."""
    loaded = room.store.loading.load(claim.node_id)
    if not loaded.intact:
        raise Unreadable("its content does not match its digest: the row was changed by hand")
    watch = room.sources.get(claim.queue)
    counts = watch.refresh(room.store, now=room.clock()) if watch is not None else None
    record.add("verify", "inputs match" if not counts else f"{counts} sources indexed anew")
    return loaded


def build_context(room: Room, loaded: Loaded, policy: QueuePolicy, record: _Record) -> contexts.Context:
    """What the decider is shown: rebuilt from the store, never a transcript."""
    context = contexts.build(room.store, loaded, policy, now=room.clock(), budget=_budget(loaded, policy))
    record.add("context", f"{context.chars} characters, {len(context.ids)} ids shown")
    return context


def admit(
    loaded: Loaded, context: contexts.Context, policy: QueuePolicy, claim: Claim, record: _Record
) -> Outcome | None:
    """Caps before anything is spent: an outcome that asks a person, or None to go on."""
    if loaded.decisions >= policy.max_decisions:
        record.add("admit", "denied: max_decisions")
        return edits.too_many_decisions(claim, loaded.decisions)
    if not context.fits:
        record.add("admit", "denied: context_chars")
        return edits.too_large(claim, context.chars, policy.context_chars)
    record.add("admit", "yes")
    return None


def decide(
    room: Room, claim: Claim, loaded: Loaded, context: contexts.Context, policy: QueuePolicy, record: _Record
) -> Asked:
    """The stored decision for these inputs, or one decider call with at most one repair."""
    decider = room.deciders[policy.decider]
    stored = room.store.checkpoints.stored_decision(claim.node_id, reuse_key(loaded, context))
    if stored is not None:
        verdict = climb(
            json.dumps(stored["body"]), shown=context.ids, allowed=policy.decisions, must_cite=False, now=float("-inf")
        )
        if isinstance(verdict, Checked):
            record.add("decide", "reused the stored decision", decided_by=stored["decided_by"])
            return Asked(verdict, stored["decided_by"], True, "", "", None, {}, 0)
    asked = _ask(room, claim, context, policy, decider)
    what = asked.checked.decision.decision if asked.checked else f"failed: {asked.fault}"
    record.add("decide", what, decided_by=asked.decided_by)
    return asked


def apply(
    room: Room, claim: Claim, loaded: Loaded, context: contexts.Context, asked: Asked, record: _Record
) -> Outcome:
    """The decision as its edit: a value. A decider that failed is tried later, or a person is asked."""
    now = room.clock()
    if asked.checked is None:
        outcome = edits.failed(
            claim, loaded, asked.fault, asked.raw, retry_after_s=asked.retry_after_s, limit=FAILURE_LIMIT, now=now
        )
    else:
        outcome = edits.edit(claim, loaded, context, asked.checked, decided_by=asked.decided_by, now=now)
    record.add("apply", outcome.kind)
    return outcome._replace(
        reuse_key=reuse_key(loaded, context) if asked.checked else None,
        context_digest=context.digest,
        context_chars=context.chars,
        input_tokens=asked.usage.get("input_tokens"),
        output_tokens=asked.usage.get("output_tokens"),
        cost=asked.usage.get("cost"),
    )


def checkpoint(room: Room, claim: Claim, outcome: Outcome, record: _Record, loaded: Loaded | None) -> Committed:
    """Commit 2. Raises CheckpointConflict, and then nothing of this session was written."""
    policy = room.policies[claim.queue]

    def compact(notes: Sequence[Any]) -> Sequence[tuple[int, str | None]]:
        return compaction.compact(notes, notes_max=policy.notes_max, notes_chars=policy.notes_chars)

    del loaded
    return room.store.checkpoints.commit(
        claim, outcome._replace(steps=record.steps), now=room.clock(), compact=compact
    )


def reuse_key(loaded: Loaded, context: contexts.Context) -> str:
    """Digest of everything a decision rests on that would make it another decision."""
    answers = [list(one) for one in loaded.answers]
    rules = [list(one) for one in loaded.constraints]
    return digest("decide", loaded.digest, answers, rules, context.constraints_digest, loaded.parks)


def _ask(
    room: Room, claim: Claim, context: contexts.Context, policy: QueuePolicy, decider: Decider
) -> Asked:
    """One call, and one repair call with the validator's words."""
    request: dict[str, Any] = dict(context.request)
    usage: dict[str, Any] = {}
    raws: list[Raw] = []
    fault = Fault("", "")
    text = ""
    try:
        for call in (1, 2):
            try:
                text = _call(room, claim, decider, request, raws)
            except DeciderFailure as failure:
                raws.append(Raw(claim.session_id, claim.item_id, "error", str(failure), room.clock()))
                return Asked(None, decider.decided_by, False, str(failure), failure.raw, failure.retry_after_s, usage, call)
            usage = _added(usage, text)
            verdict = climb(
                text, shown=context.ids, allowed=policy.decisions, must_cite=decider.must_cite, now=room.clock()
            )
            if isinstance(verdict, Checked):
                return Asked(verdict, decider.decided_by, False, "", text, None, usage, call)
            fault = verdict
            request = {**request, "repair": {"fault": fault.words, "reply": text[:4000]}}
        return Asked(None, decider.decided_by, False, f"bad output: {fault.words}", text, None, usage, 2)
    finally:
        room.store.history.add(raws)


def _call(room: Room, claim: Claim, decider: Decider, request: Mapping[str, Any], raws: list[Raw]) -> str:
    now = room.clock()
    timeout_s = max(claim.deadline_at - now - CALL_MARGIN_S, 0.1)
    room.store.claims.extend(claim, now=now, until_at=now + room.limits.lease)
    if decider.kind != "extractive":  # code of our own is no call to the outside; its request can be built again
        raws.append(Raw(claim.session_id, claim.item_id, "request", json.dumps(request, ensure_ascii=False), now))
    with outside("decider.call"):
        reply = decider.decide(request, timeout_s=timeout_s)
    raws.append(Raw(claim.session_id, claim.item_id, "reply", reply.text, room.clock()))
    if reply.stderr:
        raws.append(Raw(claim.session_id, claim.item_id, "stderr", reply.stderr, room.clock()))
    return reply.text


def _added(usage: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Usage over the calls of one session; a number one of them did not give is unknown."""
    try:
        new = json.loads(text).get("usage") or {}
    except (ValueError, AttributeError):
        new = {}
    if not isinstance(new, dict):
        new = {}
    out: dict[str, Any] = {}
    for name in ("input_tokens", "output_tokens", "cost"):
        value = new.get(name)
        good = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        before = usage.get(name) if usage else 0
        out[name] = value + before if good and before is not None else None  # type: ignore[operator]
    return out


def _budget(loaded: Loaded, policy: QueuePolicy) -> dict[str, Any]:
    return {"decisions_left": max(policy.max_decisions - loaded.decisions, 0)}


def _ended(claim: Claim, outcome: str, flag: str | None, why: str, seconds: float, cited: int = 0) -> Ended:
    return Ended(claim.session_id, claim.item_id, claim.queue, outcome, flag, why, seconds, cited)


__all__ = ["Ask", "Ended", "Room", "reuse_key", "run_session"]
