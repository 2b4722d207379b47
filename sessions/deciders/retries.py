"""When a call to a model's server is tried again, and what its error says. Pure.

408, 409, 429, 5xx (529 too), connection lost   again, unless ``x-should-retry`` says no
quota used up, spend limit reached              never: only a person changes it
``retry-after-ms``, ``retry-after``             are obeyed; a longer wait than ``WAIT_IN_CALL_S`` is stored
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

TRIES: Final = 3
WAIT_IN_CALL_S: Final = 5.0
FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 24 * 3600.0
"""What a server may ask us to wait at most: more is a mistake of its clock or ours."""

RETRIED: Final = (408, 409, 429)
OUT_OF_MONEY: Final = frozenset(
    {
        "insufficient_quota",
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "billing_hard_limit_reached",
        "billing_not_active",
        "billing_error",
        "enforced_spend_limit_reached",
    }
)
"""``error.type``, ``error.code`` or ``error.details.error_code`` of a bill that waits for a person."""

OUT_OF_MONEY_WORDS: Final = ("credit balance is too low", "api usage limits", "exceeded your current quota")
"""… and the messages of those that say it with a 400 or with a type of something else."""


class ErrorBody(NamedTuple):
    """What an error reply says of itself."""

    words: str
    out_of_money: bool


def error_of(body: bytes) -> ErrorBody:
    """Read an error body in the shapes of OpenAI, Anthropic, Ollama and their like; anything else has no words."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return ErrorBody("", False)
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else None
    if isinstance(error, str):
        error = {"message": error}
    if not isinstance(error, dict):
        return ErrorBody("", False)
    details = error.get("details")
    codes = [
        error.get("type"),
        error.get("code"),
        details.get("error_code") if isinstance(details, dict) else None,
    ]
    message = str(error.get("message") or error.get("detail") or "")
    kinds = dict.fromkeys(str(one) for one in codes if isinstance(one, str) and one)
    broke = any(kind in OUT_OF_MONEY for kind in kinds) or any(
        words in message.lower() for words in OUT_OF_MONEY_WORDS
    )
    named = f" ({', '.join(kinds)})" if kinds else ""
    return ErrorBody(f"{' '.join(message.split())[:300]}{named}".strip(), broke)


def retried(status: int, should: str | None) -> bool:
    """May the same request be sent again? The server's own word counts more than its status."""
    said = (should or "").strip().lower()
    if said in ("true", "false"):
        return said == "true"
    return status in RETRIED or status >= 500


def asked_wait(headers: Mapping[str, str], *, now: float) -> float | None:
    """The seconds a server asks us to wait, None when it does not say; never below 0 or above ``LONGEST_WAIT_S``."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if not value:
            continue
        try:
            seconds = float(value) * unit
        except ValueError:
            try:
                seconds = parsedate_to_datetime(value).timestamp() - now
            except (ValueError, TypeError, OverflowError):
                continue
        if math.isfinite(seconds):
            return min(max(seconds, 0.0), LONGEST_WAIT_S)
    return None
