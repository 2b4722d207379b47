"""The context in the two parts that every model protocol has: what stays the same, and what this session is about.

    system   rules, tools, constraints, facts, how to reply: byte-equal in every session of a queue, so that the
             server's prompt cache hits
    user     everything else, in labelled blocks; texts from outside stand there on lines that begin with "> ";
             last the time, and in a repair call what was wrong

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sessions.deciders import schema

BETWEEN: Final = "\n\n"
BY_TOOL: Final = "HOW TO REPLY. Call exactly one tool, once. Words outside of the call reach nobody."
BY_JSON: Final = "HOW TO REPLY. With one JSON object, and nothing before or after it. It is one of these:"
MUST_CITE: Final = (
    "An answer has to cite at least one source passage or person's answer that is shown. "
    'In its text, lines that begin with ">" are quotations and are compared with what is shown.'
)
REPLY_CHARS: Final = 4000


def allowed(request: Mapping[str, Any]) -> tuple[str, ...]:
    """The decisions that this queue allows."""
    return tuple(request["decisions"])


def by_tool(request: Mapping[str, Any]) -> str:
    """The system part for a protocol with tools."""
    return BETWEEN.join([*_stable(request), _said(BY_TOOL, request)])


def by_json(request: Mapping[str, Any], extra: Sequence[str] = ()) -> str:
    """The system part for a protocol that gives one JSON object; ``extra`` keys of text come first in it."""
    return BETWEEN.join([*_stable(request), _said(_json_words(allowed(request), extra), request)])


def user(request: Mapping[str, Any]) -> list[str]:
    """The blocks of the user part, in their order."""
    parts = [one["text"] for one in request["blocks"] if not one["stable"]]
    parts.append(f"NOW. {request['asked_at']}")
    repair = request.get("repair")
    if repair:
        parts.append(_repair_words(repair))
    return parts


def _stable(request: Mapping[str, Any]) -> list[str]:
    return [one["text"] for one in request["blocks"] if one["stable"]]


def _said(words: str, request: Mapping[str, Any]) -> str:
    return f"{words}\n{MUST_CITE}" if request.get("must_cite") else words


def _json_words(names: tuple[str, ...], extra: Sequence[str]) -> str:
    lines = [BY_JSON]
    tools = schema.tools(names)
    for tool in tools:
        own = schema.own_keys(tool.name)
        properties = {name: {"type": "string"} for name in extra}
        properties |= {"reason": {"type": "string"}, "decision": {"const": tool.name}}
        properties |= {name: tool.schema["properties"][name] for name in own}
        required = [*extra, "reason", "decision", *tool.schema["required"]]
        lines.append(
            f"{tool.description}\n{schema.sketch({'type': 'object', 'properties': properties, 'required': required})}"
        )
        lines += [f"  {name}: {schema.WORDS[name]}" for name in own]
        if "questions" in own:
            inner = {key: words for key, words in schema.WORDS.items() if key.startswith("Question.")}
            lines += [f"  {key.removeprefix('Question.')}: {words}" for key, words in inner.items()]
    common = [
        name
        for name in tools[0].schema["properties"]
        if name not in (*schema.own_keys(tools[0].name), "reason")
    ]
    shapes = {"type": "object", "properties": {name: tools[0].schema["properties"][name] for name in common}}
    lines.append(f"In each, reason: {schema.WORDS['reason']}")
    lines.append(f"Each may also hold these; leave out what you do not need:\n{schema.sketch(shapes)}")
    return "\n".join(lines)


def _repair_words(repair: Mapping[str, Any]) -> str:
    from memory.blocks import quoted

    return (
        f"YOUR REPLY WAS REFUSED: {repair['fault']}.\nThis was your reply:\n"
        f"{quoted(str(repair['reply']), REPLY_CHARS)}\nGive one whole, corrected decision."
    )
