"""``kind = "extractive"``: quotes the best supported passage, or asks a person. No model, no key, no network.

One question has one of these ends:

    answer   the best quotation's support reaches the threshold and no other passage contradicts it
    flag     everything else, with up to five quotations to choose from and the reason
    answer   once a person answered: the quotation they chose, or their own words, citing the flag

An answer is always a quotation with the id of its passage, never prose of its own. The same request always gives
the same decision.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from sessions.contradiction import contradiction
from sessions.decider import Reply
from sessions.extract import Candidate, Extraction, Passage, extract
from sessions.question import ASKING, QUESTION_CHARS
from sessions.sentences import units

ASKS: Final = "What answers this: "
"""How a question of this decider begins; answers to other questions about an item are not answers to it."""

AGAINST: Final = "passages contradict each other"
NONE_FITS: Final = "None of these"
LOOK_AGAIN: Final = "Look again"
LABEL_CHARS: Final = 160
ASK_CHARS: Final = 300
RECOMMEND_FROM: Final = 0.5
"""The support from which the best quotation is recommended to the person, in front of the threshold or not."""

_USAGE: Final = {"input_tokens": 0, "output_tokens": 0, "cost": 0.0}


class ExtractiveDecider:
    """Answers where the support reaches `threshold` (0..1)."""

    kind = "extractive"
    decided_by: Literal["code", "model"] = "code"
    must_cite = True

    def __init__(self, *, threshold: float) -> None:
        self._threshold = threshold

    def decide(self, request: Mapping[str, Any], *, timeout_s: float) -> Reply:  # noqa: ARG002 - milliseconds
        """The decision on this request, as JSON."""
        return Reply(json.dumps(decision(request, threshold=self._threshold), ensure_ascii=False))


def decision(request: Mapping[str, Any], *, threshold: float) -> dict[str, Any]:
    """The decision on a ``shiftwork.request/1`` object. Pure."""
    asked = question_of(request)
    extraction = extract(asked, [_passage(one) for one in request.get("passages", ())])
    answers = [
        one
        for one in request.get("answers", ())
        if str(one.get("question", "")).startswith(ASKS) and not one.get("stale")
    ]
    if answers and answers[-1].get("option") != LOOK_AGAIN:
        return _answered(answers[-1], asked, extraction)
    best = extraction.best
    if best is None:
        return _flag(asked, extraction, _nothing_found(request))
    if words := hindrance(asked, extraction):
        return _flag(asked, extraction, words)
    if best.support < threshold:
        words = (
            f"no passage supports an answer well enough (best {_two(best.support)}, needed {_two(threshold)})"
        )
        return _flag(asked, extraction, words)
    return _quote(
        best, f"{best.passage.id} supports an answer with {_two(best.support)}", [_below(best, threshold)]
    )


def hindrance(asked: str, extraction: Extraction) -> str:
    """Why this is not answered whatever the support, "" when nothing stands in the way."""
    if count := _questions_in(asked):
        return f"it asks {count} things, and one quotation answers only one"
    if len(asked) > QUESTION_CHARS:
        return f"it is longer than one question ({len(asked)} characters)"
    against = contradiction(extraction)
    return f"{AGAINST}: {against.words}" if against else ""


def _passage(shown: Mapping[str, Any]) -> Passage:
    return Passage(
        str(shown["id"]), str(shown["text"]), str(shown["source"]), str(shown.get("heading") or "")
    )


def question_of(request: Mapping[str, Any]) -> str:
    """What the item asks: its body, or its title when the body is blank."""
    item = request["item"]
    body = str(item.get("body") or "").strip()
    return body or str(item.get("title") or "").strip()


def _questions_in(text: str) -> int:
    """How many questions a text asks, 0 for one or none."""
    count = sum(text[unit.start : unit.end].rstrip("\"'”’)*_` ").endswith(ASKING) for unit in units(text))
    return count if count > 1 else 0


def _nothing_found(request: Mapping[str, Any]) -> str:
    if request.get("passages"):
        return "nothing in the sources matches its words"
    return "nothing in the sources matches, no passage was found"


def _below(best: Candidate, threshold: float) -> dict[str, str]:
    return {
        "option": "flag",
        "why_not": f"support {_two(best.support)} ≥ {_two(threshold)}, nothing contradicts it",
    }


def _quote(
    best: Candidate, reason: str, alternatives: Sequence[Mapping[str, str]], cite: str = ""
) -> dict[str, Any]:
    cited = [cite, best.passage.id] if cite else [best.passage.id]
    return {
        "decision": "answer",
        "reason": reason,
        "text": f"{quoted(best.quote)}\n\nQuoted from {best.passage.id}, support {_two(best.support)}.",
        "citations": cited,
        "evidence": cited,
        "alternatives": list(alternatives),
        "usage": _USAGE,
    }


def quoted(text: str) -> str:
    """`text` as a Markdown block quotation; without its marks it is the same text."""
    return "\n".join(f"> {line}" for line in text.split("\n"))


def _flag(asked: str, extraction: Extraction, why: str) -> dict[str, Any]:
    best = extraction.best
    options = [{"label": label(one), "cost": f"quotes {_source(one)}; support {_two(one.support)}"}
               for one in extraction.candidates]  # fmt: skip
    options.append({"label": LOOK_AGAIN, "cost": "for when a source was added or changed since"})
    options.append({"label": NONE_FITS, "cost": "closes the item, saying that the sources hold no answer"})
    recommended: int | None = None
    if best is None:
        advice = (
            "there is nothing to quote: answer in your own words, or add a source that says it and look again"
        )
    elif why.startswith(AGAINST):
        advice = "which of them holds is not for code to say"
    elif best.support >= RECOMMEND_FROM:
        recommended, advice = 1, f"it has the best support ({_two(best.support)})"
    else:
        advice = f"the best support is only {_two(best.support)}"
    return {
        "decision": "flag",
        "reason": why,
        "stuck": why,
        "questions": [
            {
                "question": ASKS + _short(asked, ASK_CHARS),
                "kind": "exception",
                "options": options,
                "recommendation": {"option": recommended, "reason": advice},
            }
        ],
        "evidence": [one.passage.id for one in extraction.candidates],
        "alternatives": [{"option": "answer", "why_not": why}],
        "usage": _USAGE,
    }


def label(candidate: Candidate) -> str:
    """A candidate as an option: its passage's id and the beginning of its best sentence."""
    return f"{candidate.passage.id}: “{_short(candidate.sentence, LABEL_CHARS)}”"


def _answered(answer: Mapping[str, Any], asked: str, extraction: Extraction) -> dict[str, Any]:
    """What a person said, as the answer. A chosen quotation that is gone is asked about again, never guessed."""
    by, flag, option = str(answer.get("by") or "a person"), str(answer["flag"]), answer.get("option")
    if not option:
        return _said(
            flag, f"Answered by {by}:\n\n{quoted(str(answer['text']))}", f"{by} answered it in {flag}"
        )
    if option == NONE_FITS:
        return _said(flag, f"The sources hold no answer to this, says {by}.", f"{by} said so in {flag}")
    chosen = next((one for one in extraction.candidates if label(one) == option), None)
    if chosen is None:
        return _flag(asked, extraction, f"the quotation {by} chose in {flag} is no longer in the sources")
    return _quote(chosen, f"{by} chose {chosen.passage.id} in {flag}", (), flag)


def _said(flag: str, text: str, reason: str) -> dict[str, Any]:
    return {"decision": "answer", "reason": reason, "text": text, "citations": [flag], "evidence": [flag],
            "usage": _USAGE}  # fmt: skip


def _source(candidate: Candidate) -> str:
    return candidate.passage.source or candidate.passage.id


def _short(text: str, chars: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= chars else line[: chars - 1] + "…"


def _two(value: float) -> str:
    """Two decimals, cut and not rounded: what is shown as 0.80 is at least 0.80."""
    return f"{int(value * 100 + 1e-9) / 100:.2f}"
