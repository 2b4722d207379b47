"""The decisions as JSON schemas for models: one tool a decision, made from ``sessions/decisions.py`` once.

``reason`` comes first, so that a model thinks before it chooses words. The schemas hold what every server's grammar
understands (types, required keys, lists of words): sizes and times are told in words and judged by the ladder. The same
decisions give the same bytes in every session, so that prompt caches hit. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from sessions.decisions import KINDS

FIRST: Final = "reason"
NOT_ASKED: Final = frozenset({"decision", "usage"})
"""Keys of a decision that a model does not fill in: the tool's name says one, the server the other."""

KEPT: Final = ("type", "enum", "const", "required", "additionalProperties")

REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {"Answer": ("citations",), "Question": ("options",)}
"""What a model has to fill in although the ladder would let it go, since an empty list says something too."""

WORDS: Final[Mapping[str, str]] = {
    "answer": "Finish the step with an answer. Only where what is shown carries it.",
    "flag": "Ask a person: whenever you are not sure, may not decide, or what is shown carries no answer.",
    "park": "Do nothing before a time; then the step is decided anew.",
    "reason": "Why this decision, in one or two sentences, written before the rest.",
    "alternatives": "What else could have been decided, and why not.",
    "evidence": "Ids that the decision rests on, as shown in square brackets, without the brackets.",
    "premises": "What you take for given, as names with values.",
    "conclusions": "What is now held to be true about this item.",
    "units": "How far the step is, counted in its own units.",
    "note": "One line for the sessions that follow: they know only what is written down.",
    "lessons": "Only what would change a later choice. Without evidence only if something failed.",
    "text": "The whole answer, as the person who asked will read it.",
    "citations": "Ids of the passages or people's answers that it rests on, as shown, without the brackets.",
    "stuck": "What cannot be decided here, in one sentence.",
    "questions": "1 to 10 questions that a person can answer without reading anything else.",
    "until": "Later than now: ISO 8601 with its zone, such as 2026-03-01T09:00:00Z.",
    "expires": "When a person is asked whether it still matters: ISO 8601 with its zone, or null.",
    "Question.kind": "direction: which way; confirm: may this be done; exception: something does not fit; "
    "acceptance: is this good enough.",
    "Question.options": "The ways to answer it, each with what it costs.",
    "Question.recommendation": "What you would choose: the number of the option, from 1, or null for none; and why.",
}


class Tool(NamedTuple):
    """One decision that a model may call."""

    name: str
    description: str
    schema: dict[str, Any]


@lru_cache(maxsize=32)
def tools(allowed: tuple[str, ...]) -> tuple[Tool, ...]:
    """A tool for each allowed decision, sorted by name."""
    return tuple(Tool(name, WORDS[name], _of(KINDS[name])) for name in sorted(allowed))


@lru_cache(maxsize=32)
def one_of(allowed: tuple[str, ...], extra: tuple[str, ...] = ()) -> dict[str, Any]:
    """One schema for all allowed decisions: the name is the key ``decision``, after ``extra`` keys and ``reason``."""
    variants = []
    for tool in tools(allowed):
        properties = {name: {"type": "string"} for name in extra}
        properties[FIRST] = tool.schema["properties"][FIRST]
        properties["decision"] = {"const": tool.name}
        properties |= {key: value for key, value in tool.schema["properties"].items() if key != FIRST}
        required = [*extra, FIRST, "decision", *[key for key in tool.schema["required"] if key != FIRST]]
        variants.append(
            {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        )
    return variants[0] if len(variants) == 1 else {"anyOf": variants}


def own_keys(name: str) -> tuple[str, ...]:
    """The keys that a decision has beside those that every decision may carry."""
    return tuple(key for key in KINDS[name].__annotations__ if key not in NOT_ASKED)


def sketch(schema: Mapping[str, Any]) -> str:
    """A schema as a line that a model reads: ``{"reason": "…", "citations"?: ["…"]}``; ``?``: may be left out."""
    if "anyOf" in schema:
        return " or ".join(sketch(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(f'"{word}"' for word in schema["enum"])
    if "const" in schema:
        return f'"{schema["const"]}"'
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(sketch({"type": one}) for one in kind)
    if kind == "array":
        return f"[{sketch(schema['items'])}, …]"
    if kind == "object" and "properties" in schema:
        required = schema.get("required", ())
        inner = [
            f'"{key}"{"" if key in required else "?"}: {sketch(value)}'
            for key, value in schema["properties"].items()
        ]
        return "{" + ", ".join(inner) + "}"
    if kind == "object":
        return '{"name": "value", …}'
    return {"string": '"…"', "integer": "1", "number": "0.0", "boolean": "true", "null": "null"}.get(
        str(kind), "…"
    )


def _of(model: type[BaseModel]) -> dict[str, Any]:
    whole = model.model_json_schema()
    lean = _lean(whole, whole.get("$defs", {}))
    properties = lean["properties"]
    names = [FIRST, *[name for name in _own_first(model) if name != FIRST and name not in NOT_ASKED]]
    lean["properties"] = {name: _described(name, properties[name]) for name in names}
    lean["required"] = [name for name in names if name in lean["required"]]
    return lean


def _own_first(model: type[BaseModel]) -> Sequence[str]:
    """The decision's own keys before those that every decision has."""
    own = list(model.__annotations__)
    return [*own, *[name for name in model.model_fields if name not in own]]


def _described(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {**schema, "description": WORDS[name]}


def _lean(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    """Only what a grammar needs, references resolved."""
    if "$ref" in schema:
        return _lean(parts[schema["$ref"].rpartition("/")[2]], parts)
    if "anyOf" in schema:
        return _either([_lean(one, parts) for one in schema["anyOf"]])
    out = {key: schema[key] for key in KEPT if key in schema}
    if "properties" in schema:
        title = schema.get("title", "")
        inner = {name: (f"{title}.{name}", _lean(one, parts)) for name, one in schema["properties"].items()}
        out["properties"] = {
            name: {**one, "description": WORDS[key]} if key in WORDS else one
            for name, (key, one) in inner.items()
        }
        out["required"] = [*schema.get("required", ()), *REQUIRED.get(title, ())]
    if "items" in schema:
        out["items"] = _lean(schema["items"], parts)
    if isinstance(out.get("additionalProperties"), dict):
        out["additionalProperties"] = _lean(out["additionalProperties"], parts)
    return out


def _either(options: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Alternatives of bare types as one list of types; anything else stays a choice."""
    if all(set(one) == {"type"} for one in options):
        return {"type": list(dict.fromkeys(one["type"] for one in options))}
    return {"anyOf": list(options)}
