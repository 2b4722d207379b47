"""``kind = "anthropic"``: the Messages API, one tool a decision.

``tool_choice`` any with ``disable_parallel_tool_use`` is exactly one call (FIELD 34). The cache breakpoint stands after
the stable blocks: tools and system are one prefix. ``input_tokens`` is what came after the last cached token, so
cached ones are added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from sessions.decider import DeciderFailure, Reply
from sessions.deciders import calling, prompt, schema
from sessions.models import AnthropicDecider as Settings

VERSION: Final = "2023-06-01"
CACHE_WRITE: Final = 1.25
CACHE_READ: Final = 0.1
"""What a token written to, or read from, the five-minute cache costs, as a share of ``price_in``."""


class AnthropicDecider(calling.ModelCaller):
    """Asks a server that speaks Anthropic's Messages."""

    kind = "anthropic"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._anthropic = settings

    def url(self) -> str:
        """``base_url`` is without /v1."""
        return f"{self._anthropic.base_url}/v1/messages"

    def headers(self) -> dict[str, str]:
        """The version of the protocol that this file speaks."""
        return {"anthropic-version": VERSION}

    def secrets(self) -> dict[str, str]:
        """The key has a header of its own here."""
        return {"x-api-key": calling.read_key(self._anthropic.api_key_file)}

    def body(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Tools, system, breakpoint; then what this session is about, a block each."""
        body: dict[str, Any] = {
            "model": self._anthropic.model,
            "max_tokens": self._anthropic.max_output_tokens,
            "tools": [
                {"name": one.name, "description": one.description, "input_schema": one.schema}
                for one in schema.tools(prompt.allowed(request))
            ],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
            "stream": False,
        }
        if self._anthropic.temperature is not None:
            body["temperature"] = self._anthropic.temperature
        body |= self._anthropic.extra
        body["system"] = [
            {"type": "text", "text": prompt.by_tool(request), "cache_control": {"type": "ephemeral"}}
        ]
        body["messages"] = [
            {"role": "user", "content": [{"type": "text", "text": text} for text in prompt.user(request)]}
        ]
        return body

    def read(self, envelope: dict[str, Any], request: Mapping[str, Any]) -> Reply:
        """The one ``tool_use`` block among the reply's blocks."""
        allowed = prompt.allowed(request)
        blocks = envelope.get("content")
        if not isinstance(blocks, list):
            raise DeciderFailure("the reply holds no content")
        usage, tokens_out = self._usage(envelope.get("usage"))
        calls = [one for one in blocks if isinstance(one, dict) and one.get("type") == "tool_use"]
        said = [
            str(one.get("text") or "")
            for one in blocks
            if isinstance(one, dict) and one.get("type") == "text"
        ]
        raw = json.dumps(calls, ensure_ascii=False) if calls else "\n".join(said)
        fault = self.incomplete(tokens_out, envelope.get("stop_reason")) or calling.calls_fault(
            len(calls), allowed
        )
        if fault is None:
            given = calls[0].get("input")
            found = calling.decision(calls[0].get("name"), given if isinstance(given, dict) else "", allowed)
            if isinstance(found, str):
                return Reply(found, usage=usage)
            fault = found
        return Reply(raw, usage=usage, fault=fault)

    def _usage(self, given: Any) -> tuple[dict[str, Any], int | None]:
        given = given if isinstance(given, dict) else {}
        plain, out = calling.count(given.get("input_tokens")), calling.count(given.get("output_tokens"))
        written, read = (
            _cached(given, "cache_creation_input_tokens"),
            _cached(given, "cache_read_input_tokens"),
        )
        if plain is None or written is None or read is None:
            return self.usage(None, out), out
        weighted = plain + written * CACHE_WRITE + read * CACHE_READ
        return self.usage(plain + written + read, out, weighted_in=weighted), out


def _cached(given: Mapping[str, Any], key: str) -> int | None:
    """Cached tokens: none where the key is missing or null, unknown where it holds no number."""
    return 0 if given.get(key) is None else calling.count(given[key])
