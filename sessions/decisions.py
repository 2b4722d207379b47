"""What a decider may say: one decision, as one JSON object, and nothing else (protocol ``shiftwork.request/1``).

    answer   text, citations                              the node succeeds with this result
    flag     stuck, questions (1 to 10)                   a person is asked; the node waits
    park     until, expires                               the node is not ready before a time

``act``, ``plan`` and ``rewind`` are names of later versions. Every decision has a ``reason`` first and may carry
alternatives, evidence, premises, conclusions, units, a note, lessons and usage. Unknown keys are refused.
"""

from __future__ import annotations

import unicodedata
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

MAX_TEXT_CHARS = 200_000
MAX_LINE_CHARS = 2_000
MAX_TOKENS = 10**12
MAX_COST = 1e12


def _words(value: str) -> str:
    # zero-width signs say nothing, too
    if all(unicodedata.category(char)[0] in "CZ" for char in value):
        raise ValueError("must not be blank")
    return value


Words = Annotated[str, Field(max_length=MAX_TEXT_CHARS), AfterValidator(_words)]
Line = Annotated[str, Field(max_length=MAX_LINE_CHARS), AfterValidator(_words)]


def _or_none_given(value: object) -> object:
    return {} if value is None else value


def _or_blank(value: object) -> object:
    return "" if value is None else value


Id = Annotated[str, Field(min_length=1, max_length=500)]


class Part(BaseModel):
    """A piece of a decision: every key known, every value of its own type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Alternative(Part):
    """An option that was not taken."""

    option: Line
    why_not: Line


class Conclusion(Part):
    """What is now held to be true about a subject."""

    subject: Line
    value: Line
    evidence: list[Id] = Field(default_factory=list, max_length=50)


class Units(Part):
    """How far the node is, in its own units of work."""

    done: Annotated[int, Field(ge=0)]
    total: Annotated[int, Field(ge=0)]


class Lesson(Part):
    """What would change a later choice. ``evidence`` may be empty only when ``failed``."""

    text: Line
    evidence: list[Id] = Field(default_factory=list, max_length=50)
    failed: bool = False


class Usage(Part):
    """What the call cost; a missing number is unknown, not zero."""

    input_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] | None = None
    output_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] | None = None
    cost: Annotated[float, Field(ge=0, le=MAX_COST)] | None = None


class Option(Part):
    """One way to answer a question, with what it costs."""

    label: Line
    cost: Line


class Recommendation(Part):
    """Which option (from 1) the decider would take, or none, and why."""

    option: Annotated[int, Field(ge=1)] | None
    reason: Line


class Question(Part):
    """One question for a person."""

    question: Line
    kind: Literal["direction", "confirm", "exception", "acceptance"]
    options: list[Option] = Field(default_factory=list, max_length=20)
    recommendation: Recommendation


class Decision(Part):
    """What every decision carries."""

    reason: Line
    alternatives: list[Alternative] = Field(default_factory=list, max_length=20)
    evidence: list[Id] = Field(default_factory=list, max_length=100)
    premises: dict[str, str | int | float | bool] = Field(default_factory=dict, max_length=50)
    conclusions: list[Conclusion] = Field(default_factory=list, max_length=50)
    units: Units | None = None
    note: Annotated[str, Field(max_length=MAX_LINE_CHARS), BeforeValidator(_or_blank)] = ""
    lessons: list[Lesson] = Field(default_factory=list, max_length=20)
    usage: Annotated[Usage, BeforeValidator(_or_none_given)] = Usage()


class Answer(Decision):
    """The node succeeds with this text."""

    decision: Literal["answer"]
    text: Words
    citations: list[Id] = Field(default_factory=list, max_length=100)


class Flag(Decision):
    """A person is asked."""

    decision: Literal["flag"]
    stuck: Line
    questions: Annotated[list[Question], Field(min_length=1, max_length=10)]


class Park(Decision):
    """Not before ``until``; after ``expires`` it needs re-confirmation by a person."""

    decision: Literal["park"]
    until: AwareDatetime
    expires: AwareDatetime | None = None


KINDS: dict[str, type[Answer | Flag | Park]] = {"answer": Answer, "flag": Flag, "park": Park}
