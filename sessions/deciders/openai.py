"""``kind = "openai"``: ``/chat/completions`` with one tool a decision, of any compatible server.

Exactly one call is a decision, whatever ``finish_reason`` says: servers give "stop" with a call and "tool_calls" with a
cut one (FIELD 32). A server that drops the tools without a word is found out when no call comes: the same prompt is
counted once more without them, and equal counts name it (FIELD 33).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from sessions.decider import DeciderFailure, Fault, Reply
from sessions.deciders import calling, prompt, schema
from sessions.models import OpenaiDecider as Settings

VENDOR: Final = "api.openai.com"


class OpenaiDecider(calling.ModelCaller):
    """Asks a server that speaks the protocol of OpenAI's chat completions."""

    kind = "openai"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._openai = settings
        self._tools_arrive: bool | None = None

    def url(self) -> str:
        """``base_url`` is what the vendor calls its base: with /v1 where it has one."""
        return f"{self._openai.base_url}/chat/completions"

    def body(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What stays the same stands first, so that it is the same bytes in every session."""
        body: dict[str, Any] = {
            "model": self._openai.model,
            "tools": [
                {
                    "type": "function",
                    "function": {"name": one.name, "description": one.description, "parameters": one.schema},
                }
                for one in schema.tools(prompt.allowed(request))
            ],
            "tool_choice": self._openai.tool_choice,
            "stream": False,
            self._cap(): self._openai.max_output_tokens,
        }
        if self._openai.temperature is not None:
            body["temperature"] = self._openai.temperature
        body |= self._openai.extra
        body["messages"] = [
            {"role": "system", "content": prompt.by_tool(request)},
            {"role": "user", "content": prompt.BETWEEN.join(prompt.user(request))},
        ]
        return body

    def read(self, envelope: dict[str, Any], request: Mapping[str, Any]) -> Reply:
        """The one call in the one choice."""
        allowed = prompt.allowed(request)
        message, ended = _message(envelope)
        tokens_in, tokens_out = _tokens(envelope)
        usage = self.usage(tokens_in, tokens_out)
        calls = message.get("tool_calls") or []
        said = message.get("content") if isinstance(message.get("content"), str) else ""
        raw = json.dumps(calls, ensure_ascii=False) if calls else said or str(message.get("refusal") or "")
        if not isinstance(calls, list):
            raise DeciderFailure("tool_calls of the reply is no list")
        number = len(calls) + _begun(calls, message)
        fault = self.incomplete(tokens_out, ended) or calling.calls_fault(number, allowed)
        if fault is None:
            self._tools_arrive = True
            function = calls[0].get("function") if isinstance(calls[0], dict) else None
            function = function if isinstance(function, dict) else {}
            found = calling.decision(function.get("name"), function.get("arguments"), allowed)
            if isinstance(found, str):
                return Reply(found, usage=usage)
            fault = found
        elif not calls:
            fault = self._dropped(request, tokens_in, fault)
        return Reply(raw, usage=usage, fault=fault)

    def _dropped(self, request: Mapping[str, Any], tokens_in: int | None, fault: Fault) -> Fault:
        """Does the server drop the tools? Found out at most once a worker, and only when no call came."""
        if self._tools_arrive is None and tokens_in is not None:
            self._tools_arrive = self._count_without(request) != tokens_in
        if self._tools_arrive is not False:
            return fault
        raise DeciderFailure(
            f"the server drops the tools: {tokens_in} prompt tokens with and without them. Start llama.cpp with "
            "--jinja, vLLM with --enable-auto-tool-choice and a parser, or use a model whose template knows tools",
            permanent=True,
            away=True,
        )

    def _count_without(self, request: Mapping[str, Any]) -> int | None:
        """The prompt's tokens without the tools; None: the server does not say."""
        body = self.body(request)
        without = {key: value for key, value in body.items() if key not in ("tools", "tool_choice")}
        without[self._cap()] = 1
        self._side_call = True
        try:
            counted, _ = _tokens(calling.envelope(self.call(without)))
        except DeciderFailure:
            return None
        return counted

    def _cap(self) -> str:
        """The vendor's newer models refuse ``max_tokens``, many servers know nothing else."""
        if self._openai.output_cap != "auto":
            return self._openai.output_cap
        return "max_completion_tokens" if urlsplit(self._openai.base_url).hostname == VENDOR else "max_tokens"


def _begun(calls: list[Any], message: Mapping[str, Any]) -> int:
    """Calls that stand in no list: llama-cpp-python repeats the one call in the older ``function_call``, and leaves the
    name of another call there that it began and could not read.
    """
    left, called = message.get("function_call"), calls[0] if len(calls) == 1 else None
    if not isinstance(left, dict) or not left.get("name") or not isinstance(called, dict):
        return 0
    function = called.get("function")
    return int(not isinstance(function, dict) or left["name"] != function.get("name"))


def _message(envelope: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """The one choice's message, and how the server says it ended."""
    choices = envelope.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        error = envelope.get("error")
        said = f": {json.dumps(error, ensure_ascii=False)[:200]}" if error else ""
        raise DeciderFailure(f"the reply does not hold exactly one choice{said}")
    message = choices[0].get("message")
    if not isinstance(message, dict):
        raise DeciderFailure("the reply's choice holds no message")
    return message, choices[0].get("finish_reason")


def _tokens(envelope: Mapping[str, Any]) -> tuple[int | None, int | None]:
    usage = envelope.get("usage")
    if not isinstance(usage, dict):
        return None, None
    return calling.count(usage.get("prompt_tokens")), calling.count(usage.get("completion_tokens"))
