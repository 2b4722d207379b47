"""The validation ladder: every decider's reply climbs it, and what falls off is never a decision.

    transport ok → complete (not cut at the cap) → exactly one call → a known name → one JSON object → schema-valid, no
    extra keys, no blank text → citations and evidence are ids shown in this context, quotes are verbatim → allowed for
    this queue

(The rungs before the name are the decider's own: ``Reply.fault``.) The words of a fault go into the one repair call.
Pure: the same reply and context always give the same verdict.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from sessions.config import LATER_DECISIONS
from sessions.decider import Fault
from sessions.decisions import KINDS, Answer, Flag, Park

MAX_FAULTS = 5


class Checked(NamedTuple):
    """A reply that reached the top."""

    decision: Answer | Flag | Park
    body: dict[str, Any]


def climb(
    text: str,
    *,
    shown: Collection[str],
    allowed: Collection[str],
    cite: Collection[str] | None,
    now: float,
    quotable: str | None = None,
) -> Checked | Fault:
    """Judge one reply. ``shown`` are the ids that stood in the context; an answer cites at least one of ``cite``
    (None: it may cite nothing); its quoted lines stand in ``quotable``, the context as text (None: they are not
    looked at).
    """
    body = one_object(text)
    if isinstance(body, Fault):
        return body
    name = body.get("decision")
    if name in LATER_DECISIONS:
        return Fault("name", f'decision "{name}" comes with a later version; use one of {_list(allowed)}')
    if not isinstance(name, str) or name not in KINDS:
        return Fault("name", f"decision must be one of {_list(allowed)}, not {json.dumps(name)[:80]}")
    try:
        decision = KINDS[name].model_validate_json(json.dumps(body))
    except ValidationError as error:
        return Fault("schema", _words(error))
    fault = _ids(decision, shown, cite) or _quotes(decision, quotable) or _sense(decision, now)
    if fault is not None:
        return fault
    if name not in allowed:
        return Fault("allowed", f'this queue does not allow "{name}"; use one of {_list(allowed)}')
    return Checked(decision, decision.model_dump(mode="json", exclude={"usage"}))


def one_object(text: str) -> dict[str, Any] | Fault:
    """The text as one JSON object with one meaning."""
    if not text.strip():
        return Fault("json", "the reply is empty; give one JSON object")
    try:
        body = json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return Fault("json", f"the reply is not exactly one JSON object: {error}")
    if not isinstance(body, dict):
        return Fault("json", f"the reply must be a JSON object, not {type(body).__name__}")
    return body


def _ids(
    decision: Answer | Flag | Park, shown: Collection[str], cite: Collection[str] | None
) -> Fault | None:
    named = [("evidence", one) for one in decision.evidence]
    named += [("evidence of a conclusion", one) for c in decision.conclusions for one in c.evidence]
    named += [("evidence of a lesson", one) for lesson in decision.lessons for one in lesson.evidence]
    if isinstance(decision, Answer):
        named += [("citations", one) for one in decision.citations]
    unknown = [f'{where} names "{one[:80]}"' for where, one in named if one not in shown]
    if unknown:
        return Fault("citations", f"{'; '.join(unknown[:MAX_FAULTS])}, which was not shown in this context")
    if cite is not None and isinstance(decision, Answer) and not set(decision.citations) & set(cite):
        what = "a passage or a person's answer that is shown"
        if not cite:
            return Fault(
                "citations", f"an answer must cite {what}, and none is: it cannot be answered, ask a person"
            )
        return Fault(
            "citations", f"an answer must cite {what}; it may cite {_list(sorted(cite)[:MAX_FAULTS])}"
        )
    return None


def _quotes(decision: Answer | Flag | Park, quotable: str | None) -> Fault | None:
    """Every run of lines that begin with ">" stands word for word in the context; white space may differ."""
    if quotable is None or not isinstance(decision, Answer):
        return None
    shown = _words_of(quotable.splitlines())
    for quote in _quoted_runs(decision.text):
        if quote not in shown:
            said = json.dumps(quote[:120], ensure_ascii=False)
            return Fault(
                "quotes",
                f"{said} is quoted and stands nowhere in what is shown; "
                'quote word for word, or say it in your own words without ">"',
            )
    return None


def _quoted_runs(text: str) -> list[str]:
    runs: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.lstrip().startswith(">"):
            runs[-1].append(line)
        elif runs[-1]:
            runs.append([])
    return [words for run in runs if (words := _words_of(run))]


def _words_of(lines: Sequence[str]) -> str:
    """Lines as one, without the marks of quotations."""
    return " ".join(" ".join(line.lstrip(" \t>") for line in lines).split())


def _sense(decision: Answer | Flag | Park, now: float) -> Fault | None:
    if isinstance(decision, Flag):
        for number, question in enumerate(decision.questions, 1):
            option = question.recommendation.option
            if option is not None and option > len(question.options):
                return Fault(
                    "schema", f"question {number} recommends option {option} of {len(question.options)}"
                )
    if isinstance(decision, Park):
        if decision.until.timestamp() <= now:
            return Fault("schema", "until must be in the future")
        if decision.expires is not None and decision.expires < decision.until:
            return Fault("schema", "expires must not be before until")
    return None


def _words(error: ValidationError) -> str:
    found = []
    for one in error.errors(include_url=False, include_context=False, include_input=False)[:MAX_FAULTS]:
        where = ".".join(str(part) for part in one["loc"]) or "the object"
        found.append(f"{where}: {one['msg'].removeprefix('Value error, ')}")
    return "; ".join(found)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise ValueError(f"key {json.dumps(key)} stands there twice")
        seen[key] = value
    return seen


def _no_constant(name: str) -> Mapping[str, Any]:
    raise ValueError(f"{name} is not a JSON number")


def _list(names: Collection[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names))
