"""Measure the extractive decider on labelled questions, and propose a threshold for it.

A labelled question has the texts that count as an answer; none means that the sources hold no answer to it. An answer
given is right when one of these texts stands, as whole words, inside the quotation (and the quotation is from the
given source, where one is given). At each threshold:

    precision   right answers / answers given
    coverage    answers given / all questions

The proposal is the lowest threshold whose precision reaches the target on at least `ANSWERED_MIN` answers; where there
is none, everything should be flagged. Pure, but for what `retrieve` reads.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from sessions.deciders.extractive import hindrance
from sessions.extract import Passage, extract
from store.errors import InputRefused

TARGET: Final = 0.92
ANSWERED_MIN: Final = 10
"""Fewer answers than this show nothing about a threshold."""

FEW: Final = 100
"""Fewer labelled questions than this make a rough measure, and the table says so."""

FLAG_EVERYTHING: Final = 1.0
"""The threshold that no support reaches."""

LINE_CHARS: Final = 100_000
PROBLEMS_SHOWN: Final = 10
_GRID: Final = tuple(n / 100 for n in range(5, 100))
_SHOWN: Final = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99)
_KEYS: Final = ("question", "answers", "source")


class Labelled(NamedTuple):
    """A question, the texts that answer it (none: unanswerable), and the source they stand in ("" for any)."""

    question: str
    answers: tuple[str, ...]
    source: str = ""


class Level(NamedTuple):
    """What one threshold gives, in numbers of questions."""

    threshold: float
    questions: int
    answered: int
    right: int
    unanswerable: int
    answered_unanswerable: int

    @property
    def precision(self) -> float:
        """Right answers of the answers given, 0..1; 1 when none was given."""
        return self.right / self.answered if self.answered else 1.0

    @property
    def coverage(self) -> float:
        """Answers given of all questions, 0..1."""
        return self.answered / self.questions if self.questions else 0.0

    @property
    def at_least(self) -> float:
        """The precision that can be counted on with so few answers: the lower end of its 90 % interval (Wilson)."""
        if not self.answered:
            return 0.0
        n, p, z = self.answered, self.precision, 1.645
        middle, spread = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, (middle - spread) / (1 + z * z / n))


class Calibration(NamedTuple):
    """The levels at each threshold, rising, and the one proposed; None says to flag everything."""

    target: float
    levels: tuple[Level, ...]
    proposed: Level | None

    @property
    def threshold(self) -> float:
        """The proposed threshold, `FLAG_EVERYTHING` when none reaches the target."""
        return self.proposed.threshold if self.proposed else FLAG_EVERYTHING


def read_rows(lines: Iterable[str]) -> list[Labelled]:
    """The labelled questions of JSON Lines, blank lines left out.

    Raises InputRefused with the number and the rule of up to `PROBLEMS_SHOWN` bad lines, or when there is no question.
    """
    rows: list[Labelled] = []
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rows.append(_row(line))
        except ValueError as error:
            problems.append(f"line {number}: {error}")
    if problems:
        more = len(problems) - PROBLEMS_SHOWN
        shown = problems[:PROBLEMS_SHOWN] + ([f"and {more} more bad lines"] if more > 0 else [])
        raise InputRefused("\n".join(shown), rule="labelled question")
    if not rows:
        raise InputRefused(
            'no labelled question in it; a line is {"question": "…", "answers": ["…"]}', rule="empty"
        )
    return rows


def calibrate(
    rows: Sequence[Labelled], retrieve: Callable[[str], Sequence[Passage]], *, target: float = TARGET
) -> Calibration:
    """Ask every question of `rows` with the passages that `retrieve` finds for it, as a session would."""
    asked = [(row, *_answer(row, retrieve(row.question))) for row in rows]
    levels = tuple(_level(asked, threshold) for threshold in _GRID)
    fit = [level for level in levels if level.answered >= ANSWERED_MIN and level.precision >= target]
    return Calibration(target, levels, fit[0] if fit else None)


def render(calibration: Calibration) -> str:
    """The table and the advice, at most 80 columns, without a line end at its end."""
    first = calibration.levels[0]
    lines = [
        f"{_count(first.questions, 'question')}, {first.unanswerable} of them without an answer in the sources",
        "",
        "threshold  answered  right  precision  at least  coverage  answered without one",
    ]
    proposed = calibration.proposed
    wanted = {*_SHOWN, *([proposed.threshold] if proposed else [])}
    for level in calibration.levels:
        if level.threshold in wanted:
            mark = " ←" if level == proposed else ""
            lines.append(_line(level) + mark)
    lines += ["", *_advice(calibration)]
    return "\n".join(lines)


def _line(level: Level) -> str:
    share = f"{level.precision:9.3f}  {level.at_least:8.2f}" if level.answered else f"{'-':>9}  {'-':>8}"
    gone = f"{level.answered_unanswerable} of {level.unanswerable}"
    return f"{level.threshold:9.2f}  {level.answered:8d}  {level.right:5d}  {share}  {level.coverage:8.1%}  {gone:>14}"


def _advice(calibration: Calibration) -> list[str]:
    proposed, target = calibration.proposed, calibration.target
    if proposed is None:
        lines = [
            f"No threshold answers {ANSWERED_MIN} or more of them with precision {target:.2f}: flag everything.",
            f"In the decider's section:  threshold = {FLAG_EVERYTHING}",
        ]
    else:
        lines = [
            f"{proposed.threshold:.2f} is the lowest threshold with precision {target:.2f} or more.",
            f"In the decider's section:  threshold = {proposed.threshold:.2f}",
        ]
    if calibration.levels[0].questions < FEW:
        lines.append(f"So few questions measure roughly: label {FEW} or more to rely on it.")
    elif proposed is not None and proposed.at_least < target:
        lines.append('"At least" is what so few answers prove; label more questions to know better.')
    return lines


def _level(asked: Sequence[tuple[Labelled, float, bool]], threshold: float) -> Level:
    given = [(row, right) for row, support, right in asked if support >= threshold]
    return Level(
        threshold=threshold,
        questions=len(asked),
        answered=len(given),
        right=sum(right for _, right in given),
        unanswerable=sum(not row.answers for row, _, _ in asked),
        answered_unanswerable=sum(not row.answers for row, _ in given),
    )


def _answer(row: Labelled, passages: Sequence[Passage]) -> tuple[float, bool]:
    """The support with which a question is answered (-1 when it is flagged at any threshold), and whether rightly."""
    got = extract(row.question, passages)
    best = got.best
    if best is None or hindrance(row.question, got):
        return -1.0, False
    from_there = not row.source or _same_source(row.source, best.passage)
    return best.support, from_there and any(_holds(best.quote, answer) for answer in row.answers)


def _same_source(wanted: str, passage: Passage) -> bool:
    """Whether `wanted` is the passage's id or source, or the end of its path."""
    return wanted in {passage.id, passage.source} or f"/{passage.source}".endswith(f"/{wanted.lstrip('/')}")


def _holds(quote: str, answer: str) -> bool:
    """Whether `answer` stands in `quote` as whole words, whatever its case and white space."""
    text, wanted = (" ".join(one.casefold().split()) for one in (quote, answer))
    before = r"(?<!\w)" if wanted[0].isalnum() and wanted.isascii() else ""
    after = r"(?!\w)" if wanted[-1].isalnum() and wanted.isascii() else ""
    return re.search(before + re.escape(wanted) + after, text) is not None


def _row(line: str) -> Labelled:
    """One line as a labelled question. Raises ValueError that names the rule."""
    if len(line) > LINE_CHARS:
        raise ValueError(f"longer than {LINE_CHARS} characters")
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(found, dict):
        raise ValueError('must be an object like {"question": "…", "answers": ["…"]}')  # noqa: TRY004 - one error for a line
    if unknown := [key for key in found if key not in _KEYS]:
        raise ValueError(f'unknown key "{unknown[0][:40]}"; known are question, answers, source')
    question, answers, source = found.get("question"), found.get("answers"), found.get("source")
    if not isinstance(question, str) or not question.strip():
        raise ValueError('"question" must be a text that is not blank')
    if not isinstance(answers, list):
        raise ValueError('"answers" must be a list, empty for a question without an answer')  # noqa: TRY004 - same
    if not all(isinstance(one, str) and one.strip() for one in answers):
        raise ValueError('"answers" must hold texts that are not blank')
    if source is not None and (not isinstance(source, str) or not source.strip()):
        raise ValueError('"source" must be a text that is not blank')
    return Labelled(question.strip(), tuple(answers), (source or "").strip())


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
