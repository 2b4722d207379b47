"""``kind = "ollama"``: its own ``/api/chat``, with a schema for the reply.

The compatible layers of Ollama ignore ``tool_choice``, so none is used. It drops the front of a prompt that is longer
than ``num_ctx`` and says 200 all the same (FIELD 33): the first line of the prompt holds a word that is made from the
prompt's own stable part, and the reply has to repeat it. A reply without it was given by a model that did not see the
rules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from sessions.decider import DeciderFailure, Fault, Reply
from sessions.deciders import calling, prompt, schema
from sessions.ladder import one_object
from sessions.models import OllamaDecider as Settings
from store.keys import digest

WORD: Final = "word"


class OllamaDecider(calling.ModelCaller):
    """Asks an Ollama server."""

    kind = "ollama"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._ollama = settings

    def url(self) -> str:
        """``base_url`` is without /api."""
        return f"{self._ollama.base_url}/api/chat"

    def body(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """``truncate`` and ``shift`` make newer servers refuse what is too long; older ones do not know them."""
        options: dict[str, Any] = {
            "num_ctx": self._ollama.num_ctx,
            "num_predict": self._ollama.max_output_tokens,
        }
        if self._ollama.temperature is not None:
            options["temperature"] = self._ollama.temperature
        rules = prompt.by_json(request, (WORD,))
        body: dict[str, Any] = {
            "model": self._ollama.model,
            "stream": False,
            "truncate": False,
            "shift": False,
            "format": schema.one_of(prompt.allowed(request), (WORD,)),
            "options": options,
        }
        body |= self._ollama.extra
        body["messages"] = [
            {"role": "system", "content": f"{_first_line(word_of(rules))}\n\n{rules}"},
            {"role": "user", "content": prompt.BETWEEN.join(prompt.user(request))},
        ]
        return body

    def read(self, envelope: dict[str, Any], request: Mapping[str, Any]) -> Reply:
        """The text of the message, which is to be the decision with the word in it."""
        message = envelope.get("message")
        text = message.get("content") if isinstance(message, dict) else None
        if not isinstance(text, str):
            error = envelope.get("error")
            raise DeciderFailure(f"the reply holds no message{f': {error}' if error else ''}")
        tokens_out = calling.count(envelope.get("eval_count"))
        usage = self.usage(calling.count(envelope.get("prompt_eval_count")), tokens_out)
        if not text.strip() and isinstance(message, dict) and message.get("tool_calls"):
            return Reply(
                text, usage=usage, fault=Fault("one call", "the reply calls a tool; give one JSON object")
            )
        if fault := self.incomplete(tokens_out, envelope.get("done_reason")):
            return Reply(text, usage=usage, fault=fault)
        body = one_object(text)
        if isinstance(body, Fault):
            return Reply(text, usage=usage, fault=body)
        word = word_of(prompt.by_json(request, (WORD,)))
        if body.pop(WORD, None) != word:
            return Reply(text, usage=usage, fault=self._headless())
        if "usage" in body:
            return Reply(text, usage=usage, fault=Fault("schema", "usage: not a key of a decision"))
        return Reply(json.dumps(body), usage=usage)

    def _headless(self) -> Fault:
        return Fault(
            "complete",
            f'"{WORD}" is not the word of the first line. Either it was not repeated, or the server dropped the head '
            f"of the prompt: raise num_ctx ({self._ollama.num_ctx}) or lower the queue's context_chars",
        )


def word_of(rules: str) -> str:
    """The word that a reply has to repeat: the same for the same rules, and nothing that can be guessed."""
    return digest("word", rules)[:12]


def _first_line(word: str) -> str:
    return f'The word is {word}. Repeat it as "{WORD}", first in your reply.'
