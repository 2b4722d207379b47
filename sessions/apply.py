"""Decisions as edits: values in, an ``Outcome`` out, no I/O. What a person reads about it is worded here too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from memory import episodes
from memory.context import Context
from sessions.decisions import Answer, Flag, Park
from sessions.ladder import Checked
from store import moments
from store.asking import Ask
from store.checkpoints import Lesson, Note, Outcome
from store.claims import Claim, delay_after_failure
from store.loading import Loaded
from store.text import first_line

NOTE_CHARS = 300
PARK_EXPIRES_S = 48 * 3600.0
RAW_KEPT_CHARS = 4000
AWAY_STEP_BACK_S = 10.0
AWAY_STEP_BACK_MOST_S = 600.0
TRY_AGAIN = "Try it again, or give this item up?"


def edit(claim: Claim, loaded: Loaded, context: Context, checked: Checked, *, decided_by: str) -> Outcome:
    """The edit of a decision that reached the top of the ladder."""
    decision = checked.decision
    notes = _notes(loaded, decision)
    lessons = [lesson.model_dump() for lesson in decision.lessons]
    common = Outcome(
        kind="answered",
        decision=checked.body,
        decided_by=decided_by,
        notes=notes,
        lessons=[
            *episodes.accept(lessons, loaded=loaded, context=context),
            *episodes.of_notes(notes, loaded=loaded, context=context),
            *_crashed_before(loaded),
        ],
        conclusions=[one.model_dump() for one in decision.conclusions],
        shown=context.shown,
        premises={"given": dict(decision.premises), "shown": context.premises},
        log=_log(checked, context),
    )
    if isinstance(decision, Answer):
        cited = set(decision.citations)
        return common._replace(
            result={"text": decision.text, "citations": list(decision.citations), "reason": decision.reason},
            shown=[one._replace(cited=one.ref in cited) for one in context.shown],
            why=decision.reason,
        )
    if isinstance(decision, Flag):
        return common._replace(kind="flagged", ask=_ask(claim, decision), why=decision.stuck)
    return _parked(common, decision)


class Failing(NamedTuple):
    """A decider failure as the edit needs it. ``permanent``: another try is pointless; ``away``: nobody could be asked,
    which says nothing about this item, unless it is ``suspect``.
    """

    fault: str
    raw: str = ""
    retry_after_s: float | None = None
    permanent: bool = False
    away: bool = False
    suspect: bool = False


def failed(claim: Claim, loaded: Loaded, failing: Failing, *, limit: int, now: float) -> Outcome:
    """A decider failure: tried again later, or, the ``limit``-th in a row or a permanent one, a person is asked."""
    counts = not failing.away or failing.suspect
    failures = loaded.failures + 1
    words = first_line(failing.fault, 300)
    if not failing.permanent and (not counts or failures < limit):
        wait_s = max(
            delay_after_failure(failures if counts else 1, key=claim.node_id),
            away_wait_s(claim.attempt) if failing.away else 0.0,
            failing.retry_after_s or 0.0,
        )
        what = f"decider failure {failures} of {limit}" if counts else "its decider cannot be asked"
        return Outcome(
            kind="failed",
            failed_call=counts,
            failures_kept=not counts,
            not_before=now + wait_s,
            why=f"{what}: {words}",
            log={
                "fault": failing.fault[:2000],
                "failures": loaded.failures + counts,
                "again_at": now + wait_s,
            },
        )
    how = "its decider refused" if failing.permanent else f"the decider failed {failures} times in a row"
    ask = _code_ask(
        claim,
        cause="failures",
        stuck=f"{how}: {words if failing.permanent else first_line(failing.fault, 200)}",
        reason="when the decider is mended, it will go through",
        evidence=[failing.raw[:RAW_KEPT_CHARS]] if failing.raw else [],
    )
    return Outcome(
        kind="flagged", failed_call=True, ask=ask, why=ask.stuck, log={"fault": failing.fault[:2000]}
    )


def away_wait_s(attempt: int) -> float:
    """Seconds for which an item steps back whose decider could not be asked: longer than the decider's queues are left
    alone, so that another item asks first. One that breaks the server each time would starve all behind it.
    """
    return min(AWAY_STEP_BACK_S * 2.0 ** min(attempt - 1, 20), AWAY_STEP_BACK_MOST_S)


def too_many_decisions(claim: Claim, decisions: int) -> Outcome:
    """The cap on decisions per item: a runaway becomes a question."""
    ask = _code_ask(
        claim,
        cause="max_decisions",
        stuck=f"{decisions} decisions on this item and no end (max_decisions)",
        reason="a look at  shiftwork log  shows whether it goes in circles",
    )
    return Outcome(kind="denied", ask=ask, why=ask.stuck, log={"denied": "max_decisions"})


def too_large(claim: Claim, chars: int, cap: int) -> Outcome:
    """What must be shown whole does not fit; nothing is paraphrased or left out to make it fit."""
    ask = _code_ask(
        claim,
        cause="context",
        stuck=f"item and constraints need {chars} characters, context_chars allows {cap}",
        reason="raise context_chars for this queue, or hand the item in shorter",
    )
    return Outcome(kind="denied", ask=ask, why=ask.stuck, log={"denied": "context_chars"})


def expired(claim: Claim, expired_at: float) -> Outcome:
    """A park whose end came and went while nothing could look at it: a person says whether it still matters."""
    at = moments.utc_minute(expired_at)
    ask = _code_ask(
        claim,
        cause="expired",
        stuck=f"it was parked and its time ran out at {at}: needs re-confirmation",
        reason="nobody withdrew it",
    )
    return Outcome(kind="denied", ask=ask, why=ask.stuck, log={"denied": "park expired"})


def unreadable(claim: Claim, what: str) -> Outcome:
    """The item's own rows cannot be read; the rest of the store goes on."""
    ask = _code_ask(
        claim,
        cause="unreadable",
        stuck=f"unreadable: {what}",
        reason="hand the item in again; this row cannot be trusted",
        recommended=2,
    )
    return Outcome(kind="denied", ask=ask, why=ask.stuck, log={"unreadable": what})


def _crashed_before(loaded: Loaded) -> list[Lesson]:
    """Failed attempts are always kept; a session that crashed could not tell of itself, so the next one does."""
    if not loaded.crashes:
        return []
    times = "1 session" if loaded.crashes == 1 else f"{loaded.crashes} sessions in a row"
    text = f'{loaded.item_id} "{first_line(loaded.title, 120)}": {times} crashed on it, {loaded.why}'
    source = episodes.source_of(loaded)
    return [episodes.lesson_of(text, failed=True, source=source, trust="untrusted")]


def _parked(common: Outcome, decision: Park) -> Outcome:
    until = decision.until.timestamp()
    expires = decision.expires.timestamp() if decision.expires else until + PARK_EXPIRES_S
    return common._replace(
        kind="parked",
        not_before=until,
        parked=True,
        park_expires_at=expires,
        why=decision.reason,
    )


def _ask(claim: Claim, decision: Flag) -> Ask:
    return Ask(
        item_id=claim.item_id,
        about_node_id=claim.node_id,
        queue=claim.queue,
        kind=decision.questions[0].kind,
        stuck=decision.stuck,
        questions=[one.model_dump() for one in decision.questions],
        evidence=list(decision.evidence),
    )


def _code_ask(
    claim: Claim, *, cause: str, stuck: str, reason: str, evidence: Sequence[str] = (), recommended: int = 1
) -> Ask:
    question: Mapping[str, Any] = {
        "question": "Go on with it, or give this item up?" if cause == "expired" else TRY_AGAIN,
        "kind": "exception",
        "options": [
            {"label": "try again", "cost": "the same again if nothing changed", "does": "retry"},
            {"label": "give it up", "cost": "the item is aborted", "does": "abort"},
        ],
        "recommendation": {"option": recommended, "reason": reason},
    }
    return Ask(
        item_id=claim.item_id, about_node_id=claim.node_id, queue=claim.queue, kind="exception", cause=cause,
        stuck=stuck, questions=[question], evidence=evidence,
    )  # fmt: skip


def _notes(loaded: Loaded, decision: Answer | Flag | Park) -> list[Note]:
    title = first_line(loaded.title, 120)
    if isinstance(decision, Answer):
        said = decision.note.strip() or f"{title} → {first_line(decision.text, 120)}"
        return [Note("conclusion", _cut(f"{loaded.item_id}: {said}"), tuple(decision.citations))]
    if isinstance(decision, Flag):
        said = decision.note.strip() or f"{title}: {decision.questions[0].question}"
        return [Note("question", _cut(f"{loaded.item_id}: {said}"), tuple(decision.evidence))]
    said = decision.note.strip() or f"{title}: parked, {decision.reason}"
    return [Note("stage", _cut(f"{loaded.item_id}: {said}"), tuple(decision.evidence))]


def _log(checked: Checked, context: Context) -> dict[str, Any]:
    """What the event adds to the stored decision: what it was made from."""
    return {
        "decision": checked.body["decision"],
        "context_chars": context.chars,
        "passages": len(context.request["passages"]),
        "notes": len(context.request["notes"]),
    }


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= NOTE_CHARS else line[: NOTE_CHARS - 1] + "…"
