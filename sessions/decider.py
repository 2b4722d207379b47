"""The one interface of everything that decides. A new decider is one file in ``deciders/`` and one line there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol


class Fault(NamedTuple):
    """Where a reply fell off the ladder, in words for the decider and for people."""

    rung: str
    words: str


class Wire(NamedTuple):
    """What went over the wire, for audits: ``kind`` is ``request``, ``reply`` or ``error``. No secret in it."""

    kind: str
    text: str


class Reply(NamedTuple):
    """What came back: ``text`` is to be one JSON object; the ladder checks it. ``stderr`` is for audits.

    ``usage``   what the call cost (``input_tokens``, ``output_tokens``, ``cost``; None is unknown), where the decider
                measures it; None: the decision itself says
    ``fault``   the decider's own rungs of the ladder: why this is no decision although it came back; ``text`` is then
                what was said instead
    ``wire``    what was sent and what came back, whole; empty: the request as it is and ``text``
    """

    text: str
    stderr: str = ""
    usage: Mapping[str, Any] | None = None
    fault: Fault | None = None
    wire: Sequence[Wire] = ()


class Decider(Protocol):
    """Decides once, from what the request shows and nothing else.

    ``must_cite``: in a queue with sources its answers cite a passage or a person's answer. A decider that also has
    ``wants_text = True`` gets the context as text in ``request["blocks"]``: ``{name, text, stable}``, in their order.
    """

    kind: str

    @property
    def decided_by(self) -> Literal["code", "model"]:
        """What the log says."""
        ...

    @property
    def must_cite(self) -> bool:
        """See above."""
        ...

    def decide(self, request: Mapping[str, Any], *, timeout_s: float) -> Reply:
        """One call, over within ``timeout_s`` seconds. Raises DeciderFailure."""
        ...


class DeciderFailure(Exception):
    """The call did not give an answer that can be looked at (exit code, timeout, too much output …).

    It is no crash: the session records it and tries again later, or asks a person at the limit. ``raw`` is what was
    said; ``retry_after_s`` what the other side asked for, if it did; ``permanent``: another try cannot change it, so
    a person is asked at once; ``away``: nobody could be asked, whatever the item, so it does not count against the item
    and the decider's queues are left alone for a time; ``suspect``: away, but this very request may be what broke it,
    so it counts; ``wire`` what was sent and came back.
    """

    def __init__(
        self,
        message: str,
        *,
        raw: str = "",
        retry_after_s: float | None = None,
        permanent: bool = False,
        away: bool = False,
        suspect: bool = False,
        wire: Sequence[Wire] = (),
    ) -> None:
        super().__init__(message)
        self.raw = raw
        self.retry_after_s = retry_after_s
        self.permanent = permanent
        self.away = away
        self.suspect = suspect
        self.wire = wire
