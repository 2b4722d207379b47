"""How a problem of the configuration is said: file and line, key and value, the rule, the nearest known key.

``shiftwork.toml:14  queues.questions.decidr = "local"    unknown key; did you mean "decider"?``
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from daemon.sections import HttpSettings, QueueSettings
from daemon.toml_lines import KeyPath
from notify.config import NotifySettings
from sessions.config import LATER_DECISIONS, DaemonLimits
from store.settings import Section
from store.text import shown
from store.units import duration_text, parse_duration, parse_size, size_text
from triggers.config import WebhookSettings

TOP_LEVEL = ("state_dir", "daemon", "http", "queues", "deciders", "triggers", "webhooks", "notify")
LATER = "comes with a later version"
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_VALUE_CHARS = 60

_PLAIN = {
    "missing": "missing",
    "string_type": "must be a text in quotes",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list in [ ]",
    "list_type": "must be a list in [ ]",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "too_short": "must not be empty",
}
_BOUNDS = {
    "greater_than": ("gt", "must be more than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}
MASK = "***"
_SECRET_WORDS = re.compile(r"(?i)((?:token(?!s)|(?:secret|passw(?:or)?d|api[_-]?key)s?)[=: ]+)[^\s\"',]+")
_SECRET_NAME = re.compile(r"(?i)(?:.*[_-])?(?:token|secret|passw(?:or)?d|api[_-]?key)")
"""Keys whose whole value is a secret. What ends in ``_file`` is a path, and ``tokens`` are counted."""
_URL_USER = re.compile(r"(?i)([a-z][a-z0-9+.-]*://)[^/@\s]*@")


class Problem(NamedTuple):
    """One thing that is wrong or doubtful. ``value`` is as shown to people, None where there is none."""

    line: int
    key: str
    value: str | None
    rule: str

    def text(self, file: Path) -> str:
        """The line that people see."""
        setting = self.key if self.value is None else f"{self.key} = {self.value}"
        return f"{shown(str(file))}:{self.line}  {setting}    {self.rule}"


def report(file: Path, problems: Sequence[Problem]) -> str:
    """All problems, a line each, and how many."""
    lines = [problem.text(file) for problem in problems]
    count = "1 error" if len(problems) == 1 else f"{len(problems)} errors"
    return "\n".join([*lines, f"{count}. Nothing was changed."])


def key_text(path: KeyPath) -> str:
    """``queues.questions.sources[0]``; odd names in quotes."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if _BARE.fullmatch(part) else f'"{shown(part)}"')
    return text


def value_text(value: Any, path: KeyPath) -> str:
    """The value at ``path`` as TOML would have it, short, escaped, without secrets."""
    name = next((part for part in reversed(path) if isinstance(part, str)), "")
    return shown(json.dumps(without_secrets(value, name), ensure_ascii=False, default=str), _VALUE_CHARS)


def without_secrets(value: Any, name: str = "") -> Any:
    """``value`` of the key ``name`` with secrets masked: by the names of keys, and in texts by what looks like one."""
    if isinstance(value, dict):
        return {key: without_secrets(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(inner, name) for inner in value]
    if isinstance(value, str):
        return MASK if _SECRET_NAME.fullmatch(name) else _masked(value)
    return value


def _masked(text: str) -> str:
    """``text`` without what follows a word like token or password, and without the user part of URLs."""
    return _URL_USER.sub(rf"\1{MASK}@", _SECRET_WORDS.sub(rf"\1{MASK}", text))


def value_at(data: Any, path: KeyPath) -> Any:
    """The value at ``path`` in the parsed file, None where there is none."""
    for part in path:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that ``word`` was most likely meant to be."""
    close = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return close[0] if close else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean "decider"?`` or nothing."""
    near = nearest(word, known)
    return f'; did you mean "{near}"?' if near else ""


def unknown_key(key: str, known: Iterable[str], homes: Iterable[tuple[str, str]]) -> str:
    """The rule for an unknown key. ``homes`` are (key, table) pairs of other places."""
    known = sorted(known)
    hint = did_you_mean(key, known)
    if not hint:
        hint = next((f"; it belongs to {table}" for name, table in homes if name == key), "")
    if not hint and len(known) <= 8:
        hint = f"; known here: {', '.join(known)}" if known else ""
    return f"unknown key{hint}"


def unknown_kind(section: str, kind: str, ours: Iterable[str], offered: Iterable[str], python: str) -> str:
    """The rule for a ``kind`` that is neither ours nor offered by an installed plug-in; ``python`` runs Shiftwork."""
    known = [*ours, *offered]
    hint = did_you_mean(kind, known)
    if hint:
        return f"must be {_or(known)}{hint}"
    one = section.removesuffix("s")
    return (
        f"no {one} of this kind is installed; there is {_or(known)}. "
        f"If a plug-in brings it, install that beside Shiftwork:  {python} -m pip install DISTRIBUTION"
    )


def translated(
    error: ValidationError, path: KeyPath, model: type[Section], value: Any
) -> Iterator[tuple[KeyPath, str, str | None]]:
    """Each error of a section as (key, rule, shown value). A misspelt key is not also called missing."""
    details = error.errors(include_url=False)
    unknown = [detail["loc"] for detail in details if detail["type"] == "extra_forbidden"]
    meant = {(*loc[:-1], nearest(str(loc[-1]), _model_at(model, loc[:-1]).model_fields)) for loc in unknown}
    for detail in details:
        loc = detail["loc"]
        if detail["type"] == "missing" and loc in meant:
            continue
        given = value_at(value, loc)
        rule = _rule(detail, loc, model, given)
        hide = detail["type"] == "missing" or given is None or isinstance(given, dict)
        yield (*path, *loc), rule, None if hide else value_text(given, loc)


def _rule(detail: ErrorDetails, loc: KeyPath, model: type[Section], given: Any) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        inner = _model_at(model, loc[:-1])
        return unknown_key(str(loc[-1]), inner.model_fields, _homes())
    if kind == "literal_error":
        words = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        if "decisions" in loc and given in LATER_DECISIONS:
            return LATER
        return f"must be {_or(words)}" + (did_you_mean(given, words) if isinstance(given, str) else "")
    if kind in _BOUNDS:
        name, words_before = _BOUNDS[kind]
        return f"{words_before} {_with_unit(context[name], given)}"
    if kind == "value_error":
        return str(context["error"])
    return _PLAIN.get(kind) or detail["msg"].replace("Input should be", "must be", 1)


def _model_at(model: type[Section], loc: KeyPath) -> type[Section]:
    """The model of the table at ``loc`` inside ``model``."""
    for part in loc:
        if isinstance(part, str) and part in model.model_fields:
            model = next(_sections_in(model.model_fields[part].annotation), model)
    return model


def _sections_in(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for inner in get_args(annotation):
        yield from _sections_in(inner)


def _homes() -> Iterator[tuple[str, str]]:
    """Where each key of the fixed tables belongs, for a key that stands in the wrong one."""
    tables: tuple[tuple[type[Section], str], ...] = (
        (DaemonLimits, "[daemon]"),
        (NotifySettings, "[notify]"),
        (HttpSettings, "[http]"),
        (QueueSettings, "[queues.NAME]"),
        (WebhookSettings, "[webhooks.NAME]"),
    )
    for section, table in tables:
        for name in section.model_fields:
            yield name, table
    for name in TOP_LEVEL:
        yield name, "the top of the file, before the first [table]"


def _with_unit(bound: Any, given: Any) -> str:
    if isinstance(given, str):
        for parse, write in ((parse_duration, duration_text), (parse_size, size_text)):
            try:
                parse(given)
            except ValueError:
                continue
            return write(bound)
    return f"{bound:g}" if isinstance(bound, float) else str(bound)


def _or(words: Sequence[str]) -> str:
    quoted = [f'"{word}"' for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
