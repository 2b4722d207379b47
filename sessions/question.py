"""Read a question: its terms, what kind of answer it asks for, and what it insists on.

Words are the surface forms as written, each with the forms the tokeniser indexes it under. A question's
terms are its distinct words that carry meaning; words of asking ("name", "kind", "used") count little,
because an answer rarely repeats them. English words of asking only: in other languages every word is a term,
which makes the score lower, never higher.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from memory.tokens import tokens


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


QUESTION_CHARS: Final = 2_000
"""How much of a question is read; what is longer is no single question."""

ASKING: Final = ("?", "\uff1f")
"""What a sentence that asks ends with."""

WEAK_WEIGHT: Final = 0.35

_WORD: Final = re.compile(r"\d+(?:[.,]\d+)*|\w+(?:['’]\w+)?")
_STOP: Final = _listed(
    "a an the of in on at to for from by with as and or but if then than that this these those there here it its "
    "is are was were be been being am do does did done doing has have had having will would can could shall "
    "should may might must not no nor so such what which who whom whose when where why how i you he she we they "
    "me him her us them my your his our their one ones any some all each every both about into onto over under "
    "between during also s t d ll re ve m up out off only very much many more most other just because while "
    "after before against per upon within without through"
)
_WEAK_WORDS: Final = (
    "name named call called known type kind sort term use used year time date day number amount people person "
    "place thing according happen happened occur cause get got make made take took taken give given go went "
    "come came become became say said see seen new old include included consist mean refer considered part way "
    "long large example"
)
# What a question insists on: leaving one out, or meeting its opposite, changes the answer.
_INSISTS: Final = _listed(
    "first last most least only largest smallest best worst earliest latest final oldest youngest highest lowest "
    "biggest fewest longest shortest top second third before after during since until"
)
_OPPOSITES: Final = (
    "first last", "most least", "most fewest", "largest smallest", "best worst", "earliest latest",
    "oldest youngest", "highest lowest", "longest shortest", "before after", "north south", "east west",
    "northern southern", "eastern western", "more less", "more fewer", "increase decrease", "maximum minimum",
    "inside outside", "always never", "start stop", "enable disable", "allow refuse", "above below",
)  # fmt: skip
_NEGATIONS: Final = _listed("not never no none neither nor without cannot except unlike")
_NUMBER_WORDS: Final = _listed(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million "
    "billion trillion half third quarter dozen once twice double triple"
)
_SMALL: Final = "zero one two three four five six seven eight nine ten eleven twelve"
_DIGITS: Final = {word: str(value) for value, word in enumerate(_SMALL.split())}
_DATE_WORDS: Final = _listed(
    "january february march april may june july august september october november december monday tuesday "
    "wednesday thursday friday saturday sunday century decade"
)
_REASON_WORDS: Final = _listed("because due to since for so that cause caused reason led lest")
_KINDS: Final = (
    ("number", re.compile(
        r"\bhow (?:many|much|long|old|far|tall|large|big|often|high|fast|wide|deep|few)\b"
        r"|\b(?:what|which) (?:is |was |are |were )?(?:the )?"
        r"(?:percent|percentage|number|fraction|proportion|amount|share|rank|age|score|population|average|total|"
        r"temperature|distance|height|length|size|area|rate|limit)\b", re.IGNORECASE)),
    ("date", re.compile(
        r"\bwhen\b|\b(?:what|which) (?:\w+ )?(?:year|years|date|century|day|month|decade|era)\b", re.IGNORECASE)),
    ("who", re.compile(r"\bwho(?:m|se)?\b", re.IGNORECASE)),
    ("where", re.compile(
        r"\bwhere\b|\b(?:what|which) (?:city|country|state|town|county|region|nation|continent|river)\b",
        re.IGNORECASE)),
    ("why", re.compile(r"\bwhy\b", re.IGNORECASE)),
)  # fmt: skip


class Word(NamedTuple):
    """A word as written, lower-cased (possessive off), and the forms it is indexed under; the first is its own."""

    text: str
    low: str
    forms: tuple[str, ...]

    @property
    def is_number(self) -> bool:
        """Whether it is written in digits."""
        return self.text[0].isdigit()

    @property
    def is_stop(self) -> bool:
        """Whether it carries no meaning of its own."""
        return self.low in _STOP

    @property
    def is_name(self) -> bool:
        """Whether it is written like a name; the first word of a sentence may be one by accident."""
        return self.text[0].isupper() and not self.is_stop


class Term(NamedTuple):
    """A form the answer should hold, what it weighs (0..1), and whether it is a name or a number."""

    form: str
    weight: float
    is_name: bool
    is_number: bool


class Question(NamedTuple):
    """A question as read. `kind` is number, date, who, where, why or other."""

    words: tuple[Word, ...]
    terms: tuple[Term, ...]
    kind: str
    insists: frozenset[str]
    opposites: frozenset[str]
    is_negative: bool

    @property
    def weight(self) -> float:
        """The weight of all terms together; 0 when nothing in it can be looked for."""
        return sum(term.weight for term in self.terms)

    @property
    def line(self) -> str:
        """Its words, lower-cased, with one space between."""
        return " ".join(word.low for word in self.words)

    @property
    def forms(self) -> frozenset[str]:
        """Every form of every word, those that carry no meaning included."""
        return frozenset(form for word in self.words for form in word.forms)


def words(text: str) -> tuple[Word, ...]:
    """The words of `text` in order."""
    found = []
    for match in _WORD.finditer(text):
        surface = match.group()
        low = surface.lower().replace("’", "'").removesuffix("'s")
        forms = (low.replace(",", ""),) if low[0].isdigit() and not low.isalnum() else _forms(low, surface)
        if forms:
            found.append(Word(surface, low, forms))
    return tuple(found)


@lru_cache(maxsize=20_000)
def _forms(low: str, surface: str) -> tuple[str, ...]:
    source = low if len(low) < len(surface) or surface.istitle() else surface  # CamelCase keeps its humps
    return tuple(dict.fromkeys(tokens(source)))


def read(text: str) -> Question:
    """`text` as a question; anything may be read, and what holds no word has weight 0."""
    found = words(text[:QUESTION_CHARS])
    weak = _weak()
    terms: dict[str, Term] = {}
    for position, word in enumerate(found):
        if word.is_stop or word.low in _INSISTS:
            continue
        own = word.forms[:1] if word.text.isascii() else word.forms
        for form in own:
            weight = WEAK_WEIGHT if form in weak else 1.0
            is_name = position > 0 and word.is_name and not word.is_number
            terms.setdefault(form, Term(form, weight, is_name, word.is_number))
    kind = next((name for name, pattern in _KINDS if pattern.search(text[:QUESTION_CHARS])), "other")
    lows = {word.low for word in found}
    opposite = {
        b for pair in _OPPOSITES for a, b in (pair.split(), pair.split()[::-1]) if a in lows and b not in lows
    }
    return Question(
        words=found,
        terms=tuple(terms.values()),
        kind=kind,
        insists=frozenset(word.forms[0] for word in found if word.low in _INSISTS),
        opposites=frozenset(opposite),
        is_negative=negative(found),
    )


def negative(found: tuple[Word, ...]) -> bool:
    """Whether a sentence of these words denies something."""
    return any(word.low in _NEGATIONS or word.low.endswith("n't") for word in found)


def answers(sentence: tuple[Word, ...], question: Question, asked: frozenset[str]) -> list[int]:
    """Positions of the words in `sentence` that could be the answer: of the kind asked for and not in the question.

    `asked` is `question.forms`, given so that it is computed once.
    """
    fits = _FITS[question.kind]
    return [i for i, word in enumerate(sentence) if word.forms[0] not in asked and fits(word, i)]


def is_quantity(word: Word) -> bool:
    """Whether the word is a number, in digits or in letters."""
    return word.is_number or word.low in _NUMBER_WORDS


def amount(word: Word) -> str:
    """The word in digits where it is a number in letters up to twelve, else as it is."""
    return _DIGITS.get(word.low, word.low)


def is_date(word: Word) -> bool:
    """Whether the word is a month, a weekday, or a number that may be a year."""
    return word.low in _DATE_WORDS or (word.is_number and word.low.isdigit() and 3 <= len(word.low) <= 4)


_FITS: Final[dict[str, Callable[[Word, int], bool]]] = {
    "number": lambda word, _: is_quantity(word),
    "date": lambda word, _: is_date(word),
    "who": lambda word, position: position > 0 and word.is_name,
    "where": lambda word, position: position > 0 and word.is_name,
    "why": lambda word, _: word.low in _REASON_WORDS,
    "other": lambda word, _: not word.is_stop,
}


@lru_cache(maxsize=1)
def _weak() -> frozenset[str]:
    return frozenset(tokens(_WEAK_WORDS))
