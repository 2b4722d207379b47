"""The one interface of everything that decides. A new decider is one file in ``deciders/`` and one line there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol


class Reply(NamedTuple):
    """What came back: ``text`` is to be one JSON object; the ladder checks it. ``stderr`` is for audits."""

    text: str
    stderr: str = ""


class Decider(Protocol):
    """Decides once, from what the request shows and nothing else."""

    kind: str
    decided_by: Literal["code", "model"]
    must_cite: bool

    def decide(self, request: Mapping[str, Any], *, timeout_s: float) -> Reply:
        """One call, over within ``timeout_s`` seconds. Raises DeciderFailure."""
        ...


class DeciderFailure(Exception):
    """The call did not give an answer that can be looked at (exit code, timeout, too much output …).

    It is no crash: the session records it and tries again later, or asks a person at the limit. ``raw`` is what was
    said; ``retry_after_s`` what the other side asked for, if it did.
    """

    def __init__(self, message: str, *, raw: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.raw = raw
        self.retry_after_s = retry_after_s
