"""``[deciders.NAME]`` of the kinds that ask a model's server over HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from store.settings import Duration, RelativePath, Section, Size, Text
from store.units import parse_duration, parse_size

OUR_KEYS: Final = frozenset(
    {
        "model",
        "messages",
        "system",
        "tools",
        "tool_choice",
        "stream",
        "truncate",
        "shift",
        "format",
        "options",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "n",
    }
)
"""Keys of a request's body that are ours: ``extra`` may not set them."""


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise ValueError('must be a URL such as "http://127.0.0.1:8080/v1"') from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError('must be a URL such as "http://127.0.0.1:8080/v1", with http or https')
    if parts.username is not None or parts.password is not None:
        raise ValueError("must hold no user and no password; name a file with the key in api_key_file")
    if parts.query or parts.fragment:
        raise ValueError("must end with its path: no ? and no #")
    if not value.isascii() or any(char.isspace() for char in value):
        raise ValueError("must be ASCII without spaces")
    return value.rstrip("/")


def _base_url(value: str) -> str:
    value = _url(value)
    for path in ("/chat/completions", "/api/chat", "/messages"):
        if value.endswith(path):
            raise ValueError(f'must be the part before "{path}"')
    return value


def _no_key_of_ours(value: dict[str, Any]) -> dict[str, Any]:
    for key in value:
        if key in OUR_KEYS:
            raise ValueError(f'must not set "{key}": it is set by Shiftwork')
    _only_json(value)
    return value


def _only_json(value: Any) -> None:
    if isinstance(value, dict):
        for inner in value.values():
            _only_json(inner)
    elif isinstance(value, list):
        for inner in value:
            _only_json(inner)
    elif not isinstance(value, (str, int, float, bool)):
        raise ValueError("must hold texts, numbers, true, false, lists and tables only")  # noqa: TRY004


Url = Annotated[str, AfterValidator(_base_url)]
Proxy = Annotated[str, AfterValidator(_url)]
Price = Annotated[float, Field(ge=0, le=1e6)]


class ModelDecider(Section):
    """What all of them have. Prices are per million tokens; without them the cost of a call is unknown, not zero."""

    model: Text
    api_key_file: RelativePath | None = None
    timeout: Annotated[Duration, Field(gt=0)] = parse_duration("2m")
    max_output_tokens: Annotated[int, Field(ge=64, le=1_000_000)] = 4096
    max_output: Annotated[Size, Field(ge=1024)] = parse_size("4MiB")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    price_in: Price | None = None
    price_out: Price | None = None
    must_cite: bool = True
    proxy: Proxy | None = None
    extra: Annotated[dict[str, Any], AfterValidator(_no_key_of_ours)] = Field(default_factory=dict)


class OpenaiDecider(ModelDecider):
    """``kind = "openai"``: chat/completions with tools, of OpenAI, llama.cpp, vLLM and any compatible server."""

    kind: Literal["openai"]
    base_url: Url
    tool_choice: Literal["required", "auto"] = "required"
    output_cap: Literal["auto", "max_tokens", "max_completion_tokens"] = "auto"


class OllamaDecider(ModelDecider):
    """``kind = "ollama"``: its own ``/api/chat``, with a schema for the reply."""

    kind: Literal["ollama"]
    base_url: Url = "http://127.0.0.1:11434"
    num_ctx: Annotated[int, Field(ge=512, le=10_000_000)] = 16_384

    @model_validator(mode="after")
    def _room_for_a_prompt(self) -> OllamaDecider:
        if self.max_output_tokens >= self.num_ctx:
            raise ValueError("max_output_tokens must be less than num_ctx, which holds prompt and reply")
        return self


class AnthropicDecider(ModelDecider):
    """``kind = "anthropic"``: the Messages API."""

    kind: Literal["anthropic"]
    base_url: Url = "https://api.anthropic.com"
    api_key_file: RelativePath
