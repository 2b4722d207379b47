"""One session: the one place to read the mission.

    claim → verify → context → admit → decide → apply → checkpoint

Each is a named step. A session decides at most once, writes in two commits (the claim and the checkpoint), and may die
between any two lines: what is not checkpointed did not happen, and what is, happened once.

    claim       commit 1: lease, attempt + 1, session row; behind a quick session it rides on that one's commit 2
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
from sessions import asking
from sessions.config import DaemonLimits, QueuePolicy
from sessions.decider import Decider, DeciderFailure, Fault, Reply, Wire
from sessions.ladder import Checked, climb
from sessions.link import Link
from store.checkpoints import Committed, Outcome, Step
from store.claims import Claim, Order
from store.contract import Store
from store.errors import CheckpointConflict
from store.history import Raw
from store.keys import digest
from store.loading import Loaded, Unreadable
from store.points import outside

CALL_MARGIN_S = 1.0
QUICK_S = 1.0
"""A session that took less lets the next claim ride on its checkpoint; for a longer one a commit more is nothing, and
what it wrote into the outbox is marked in the store at once.
"""
FAILURE_LIMIT = 5

Clock = Callable[[], float]


class Room(NamedTuple):
    """What a session works with. ``clock`` gives UTC seconds; it is read once per step."""

    store: Store
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
    away: edits.Failing | None = None
    following: Claim | None = None


class Asked(NamedTuple):
    """What the decide step brought: a decision, or why there is none."""

    checked: Checked | None
    decided_by: str
    failing: edits.Failing | None
    usage: Mapping[str, Any]


class _Record:
    """The steps as they happen."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock()
        self.steps: list[Step] = []
        self.away: edits.Failing | None = None
        """Why nobody could be asked, where that is so."""

    def add(self, name: str, what: str, *, decided_by: str = "code") -> None:
        now = self._clock()
        ms = max(0, round((now - self._since) * 1000))
        self._since = now
        self.steps.append(Step(name, decided_by, what, ms))


class Sitting(NamedTuple):
    """One session at work: its room, its claim, its queue's policy and the record of its steps."""

    room: Room
    claim: Claim
    policy: QueuePolicy
    record: _Record


def run_session(room: Room, claim: Claim, *, following: Callable[[], Order | None] = lambda: None) -> Ended:
    """Everything after the claim. Raises nothing for a lost claim: its work is discarded and said so.

    ``following`` says what to claim together with a quick session's checkpoint.
    """
    started = room.clock()
    sitting = Sitting(room, claim, room.policies[claim.queue], _Record(room.clock))
    sitting.record.add("claim", f"attempt {claim.attempt}")
    try:
        outcome = _outcome(sitting)
        if outcome is None:
            room.store.claims.release(claim, now=room.clock(), why="stopped")
            return _ended(claim, "released", why="stopped", seconds=room.clock() - started)
        quick = outcome.decision is not None and room.clock() - started < QUICK_S
        committed = checkpoint(sitting, outcome, then=following() if quick else None)
    except CheckpointConflict as conflict:
        return _ended(claim, "conflict", why=str(conflict), seconds=room.clock() - started)
    cited = len((outcome.result or {}).get("citations", []))
    return _ended(
        claim,
        outcome.kind,
        why=outcome.why,
        seconds=room.clock() - started,
        flag=committed.flag_id,
        cited=cited,
    )._replace(away=sitting.record.away, following=committed.following)


def _outcome(sitting: Sitting) -> Outcome | None:
    """Steps verify to apply. None: a stop was asked for before anything was decided."""
    try:
        refresh(sitting)
        with sitting.room.store.db.read():  # one moment of the store for all that this decision is made from
            loaded = verify(sitting)
            context = build_context(sitting, loaded)
        denied = admit(sitting, loaded, context)
        if denied is not None:
            return denied
        if sitting.room.link.stop_asked():
            return None
        return apply(sitting, loaded, context, decide(sitting, loaded, context))
    except Unreadable as error:
        return edits.unreadable(sitting.claim, str(error))


def refresh(sitting: Sitting) -> None:
    """Source files that changed are indexed anew, in commits of their own."""
    room = sitting.room
    watch = room.sources.get(sitting.claim.queue)
    changed = watch.refresh(room.store, now=room.clock()) if watch is not None else 0
    if changed:
        sitting.record.add("sources", f"{changed} sources indexed anew")


def verify(sitting: Sitting) -> Loaded:
    """The item's rows are what their digest says. Raises Unreadable."""
    loaded = sitting.room.store.loading.load(sitting.claim.node_id)
    if not loaded.intact:
        raise Unreadable("its content does not match its digest: the row was changed by hand")
    sitting.record.add("verify", "inputs match")
    return loaded


def build_context(sitting: Sitting, loaded: Loaded) -> contexts.Context:
    """What the decider is shown: rebuilt from the store, never a transcript."""
    room = sitting.room
    budget = contexts.budget_of(loaded, sitting.policy.max_decisions)
    context = contexts.build(room.store, loaded, sitting.policy, now=room.clock(), budget=budget)
    sitting.record.add("context", f"{context.chars} characters, {len(context.ids)} ids shown")
    return context


def admit(sitting: Sitting, loaded: Loaded, context: contexts.Context) -> Outcome | None:
    """Caps before anything is spent: an outcome that asks a person, or None to go on."""
    policy, claim = sitting.policy, sitting.claim
    if loaded.park_expires_at is not None and sitting.room.clock() > loaded.park_expires_at:
        sitting.record.add("admit", "denied: the park expired")
        return edits.expired(claim, loaded.park_expires_at)
    if loaded.decisions >= policy.max_decisions:
        sitting.record.add("admit", "denied: max_decisions")
        return edits.too_many_decisions(claim, loaded.decisions)
    if not context.fits:
        sitting.record.add("admit", "denied: context_chars")
        return edits.too_large(claim, context.chars, policy.context_chars)
    sitting.record.add("admit", "yes")
    return None


def decide(sitting: Sitting, loaded: Loaded, context: contexts.Context) -> Asked:
    """The stored decision for these inputs, or one decider call with at most one repair."""
    room, claim, policy = sitting.room, sitting.claim, sitting.policy
    stored = None
    if loaded.decisions:
        key = reuse_key(loaded, context)
        stored = room.store.checkpoints.stored_decision(claim.item_id, claim.node_id, key)
    if stored is not None:
        verdict = climb(
            json.dumps(stored["body"]),
            shown=context.ids | _named(stored["body"]),
            allowed=policy.decisions,
            cite=None,
            now=float("-inf"),
        )
        if isinstance(verdict, Checked):
            sitting.record.add("decide", "reused the stored decision", decided_by=stored["decided_by"])
            return Asked(verdict, stored["decided_by"], None, {})
    asked = _ask(sitting, context, room.deciders[policy.decider])
    what = (
        asked.checked.decision.decision
        if asked.checked
        else f"failed: {asked.failing.fault if asked.failing else ''}"
    )
    sitting.record.add("decide", what, decided_by=asked.decided_by)
    return asked


def apply(sitting: Sitting, loaded: Loaded, context: contexts.Context, asked: Asked) -> Outcome:
    """The decision as its edit: a value. A decider that failed is tried later, or a person is asked."""
    claim, now = sitting.claim, sitting.room.clock()
    if asked.checked is None:
        failing = asked.failing or edits.Failing("")
        sitting.record.away = failing if failing.away else None
        outcome = edits.failed(claim, loaded, failing, limit=FAILURE_LIMIT, now=now)
    else:
        outcome = edits.edit(claim, loaded, context, asked.checked, decided_by=asked.decided_by)
    sitting.record.add("apply", outcome.kind)
    return outcome._replace(
        reuse_key=reuse_key(loaded, context) if asked.checked else None,
        context_digest=context.digest,
        context_chars=context.chars,
        input_tokens=asked.usage.get("input_tokens"),
        output_tokens=asked.usage.get("output_tokens"),
        cost=asked.usage.get("cost"),
    )


def checkpoint(sitting: Sitting, outcome: Outcome, *, then: Order | None = None) -> Committed:
    """Commit 2. Raises CheckpointConflict, and then nothing of this session was written, nor of the next."""
    policy = sitting.policy

    def compact(notes: Sequence[Any]) -> Sequence[tuple[int, str | None]]:
        return compaction.compact(notes, notes_max=policy.notes_max, notes_chars=policy.notes_chars)

    return sitting.room.store.checkpoints.commit(
        sitting.claim,
        outcome._replace(steps=sitting.record.steps),
        now=sitting.room.clock(),
        compact=compact,
        then=then,
    )


def reuse_key(loaded: Loaded, context: contexts.Context) -> str:
    """Digest of everything a decision rests on that would make it another decision."""
    answers = [list(one) for one in loaded.answers]
    rules = [list(one) for one in loaded.constraints]
    return digest("decide", loaded.digest, answers, rules, context.constraints_digest, loaded.parks)


def _ask(sitting: Sitting, context: contexts.Context, decider: Decider) -> Asked:
    """One call, and one repair call with the validator's words."""
    claim, clock = sitting.claim, sitting.room.clock
    asked_at = clock()  # a time that passes while the decider thinks was still to come when it chose it
    cite = asking.to_cite(decider, context, sitting.policy)
    request = asking.request_of(context, sitting.policy, asked_at=asked_at)
    wants_text = getattr(decider, "wants_text", False)
    if wants_text:
        request = asking.with_text(request, context, must_cite=cite is not None)
    usage: dict[str, Any] = {}
    raws: list[Raw] = []
    text, fault = "", Fault("", "")
    try:
        for _call_number in (1, 2):
            reply = _call(sitting, decider, request, raws)
            usage, text = asking.spent(usage, reply), reply.text
            verdict = reply.fault or climb(
                text,
                shown=context.ids,
                allowed=sitting.policy.decisions,
                cite=cite,
                quotable=context.text if wants_text and cite is not None else None,
                now=asked_at,
            )
            if isinstance(verdict, Checked):
                if decider.kind == "extractive":  # what code of our own said stands whole in the decision
                    raws.clear()
                return Asked(verdict, decider.decided_by, None, usage)
            fault = verdict
            request = {**request, "repair": {"fault": fault.words, "reply": text[:4000]}}
    except DeciderFailure as failure:
        raws.append(Raw(claim.session_id, claim.item_id, "error", str(failure), clock()))
        unknown = dict.fromkeys(asking.USAGE)
        failing = edits.Failing(
            str(failure),
            failure.raw,
            failure.retry_after_s,
            permanent=failure.permanent,
            away=failure.away,
            suspect=failure.suspect,
        )
        return Asked(None, decider.decided_by, failing, unknown)
    finally:
        lost = sitting.room.store.history.add(raws)
        if lost:
            sitting.record.add("history", f"raw texts were not kept: {lost}")
    return Asked(None, decider.decided_by, edits.Failing(f"bad output: {fault.words}", text), usage)


def _call(sitting: Sitting, decider: Decider, request: Mapping[str, Any], raws: list[Raw]) -> Reply:
    room, claim = sitting.room, sitting.claim
    now = room.clock()
    timeout_s = max(claim.deadline_at - now - CALL_MARGIN_S, 0.1)
    room.store.claims.extend(claim, now=now, until_at=now + timeout_s + room.limits.lease)

    def keep(wire: Sequence[Wire]) -> None:
        if not wire and decider.kind != "extractive":  # code of our own is no call to the outside
            wire = [Wire("request", json.dumps(request, ensure_ascii=False))]
        raws.extend(Raw(claim.session_id, claim.item_id, one.kind, one.text, room.clock()) for one in wire)

    wire: Sequence[Wire] = ()
    try:
        with outside("decider.call"):
            reply = decider.decide(request, timeout_s=timeout_s)
        wire = reply.wire
    except DeciderFailure as failure:
        wire = failure.wire
        raise
    finally:
        keep(wire)
    said = [] if reply.wire else [Wire("reply", reply.text)]
    said += [Wire("stderr", reply.stderr)] if reply.stderr else []
    raws.extend(Raw(claim.session_id, claim.item_id, one.kind, one.text, room.clock()) for one in said)
    return reply


def _named(body: Mapping[str, Any]) -> set[str]:
    """The ids a stored decision names: they were shown when it was made."""
    ids = {*body.get("citations", []), *body.get("evidence", [])}
    for part in (*body.get("conclusions", []), *body.get("lessons", [])):
        ids.update(part["evidence"])
    return ids


def _ended(
    claim: Claim, outcome: str, *, why: str, seconds: float, flag: str | None = None, cited: int = 0
) -> Ended:
    return Ended(claim.session_id, claim.item_id, claim.queue, outcome, flag, why, seconds, cited)
