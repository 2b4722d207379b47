"""What a decider is asked, and what asking cost. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from memory.blocks import STABLE
from memory.context import Context
from sessions.config import QueuePolicy
from sessions.decider import Decider, Reply
from sessions.decisions import Usage
from store.moments import iso

USAGE: Final = ("input_tokens", "output_tokens", "cost")


def request_of(context: Context, policy: QueuePolicy, *, asked_at: float) -> dict[str, Any]:
    """The ``shiftwork.request/1`` object as a decider gets it."""
    return {**context.request, "decisions": sorted(policy.decisions), "asked_at": iso(asked_at)}


def with_text(request: Mapping[str, Any], context: Context, *, must_cite: bool) -> dict[str, Any]:
    """The request with the context as text, for deciders that want it."""
    blocks = [{"name": one.name, "text": one.text, "stable": one.name in STABLE} for one in context.blocks]
    return {**request, "blocks": blocks, "must_cite": must_cite}


def to_cite(decider: Decider, context: Context, policy: QueuePolicy) -> Collection[str] | None:
    """The ids of which an answer has to cite one: passages and people's answers, in a queue with sources; None: an
    answer may stand without.
    """
    if not decider.must_cite or not policy.sources:
        return None
    shown = context.request
    return {str(one["id"]) for one in shown["passages"]} | {str(one["flag"]) for one in shown["answers"]}


def spent(usage: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    """Usage with that of one more reply; a number that one of them did not give, or that is none, is unknown."""
    new = _measured(reply)
    out: dict[str, Any] = {}
    for name in USAGE:
        value, before = new.get(name), usage.get(name) if usage else 0
        out[name] = None if value is None or before is None else value + before
    return out


def _measured(reply: Reply) -> Mapping[str, Any]:
    if reply.usage is not None:
        return reply.usage
    try:
        return Usage.model_validate_json(json.dumps(json.loads(reply.text)["usage"])).model_dump()
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}
