"""What the author of a plug-in decider imports. Stable: names are added here and never removed within a major version.

    from sessions.plugin import Decider, DeciderFailure, Given, Settings

A distribution names its class in the group ``shiftwork.deciders`` of its entry points; the entry's name is the
``kind`` of a table ``[deciders.NAME]``. A worker makes it once, with what the table says, and calls ``decide`` for each
decision.
``docs/plugins.md`` is the guide.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from sessions.decider import DeciderFailure, Reply
from store.settings import Duration, Many, RelativePath, Section, Size, Text

__all__ = [
    "Decider", "DeciderFailure", "Duration", "Given", "Many", "RelativePath", "Reply", "Settings", "Size", "Text",
]  # fmt: skip


class Settings(Section):
    """The plug-in's own keys: subclass it, a field a key. Unknown keys are refused with the nearest known one."""


S = TypeVar("S", bound=Section)


class Given(NamedTuple, Generic[S]):
    """What a decider is made with.

    ``name`` is the table's, ``settings`` what its keys say; ``folder`` is the configuration's, where relative paths
    start.
    """

    name: str
    settings: S
    folder: Path


class Decider(ABC, Generic[S]):
    """The base of a plug-in decider: set ``settings_model`` if it has keys of its own, write ``decide``.

    ``decided_by`` is what the log says: ``model``, or ``code`` for what needs none. With ``must_cite`` an answer in a
    queue with sources must cite one. With ``wants_text`` the request holds the context as text, too, in ``blocks``.
    """

    settings_model: ClassVar[type[Settings]] = Settings
    decided_by: Literal["code", "model"] = "model"
    must_cite: bool = False
    wants_text: bool = False

    def __init__(self, given: Given[S]) -> None:
        self.given = given

    @property
    def settings(self) -> S:
        """What the keys of the table say."""
        return self.given.settings

    @abstractmethod
    def decide(self, request: Mapping[str, Any], *, timeout_s: float) -> Reply | Mapping[str, Any] | str:
        """One decision about ``request``, over within ``timeout_s`` seconds; past the session's deadline it is killed.

        ``request`` is ``shiftwork.request/1`` of docs/deciders.md; the reply is a decision as a mapping or as JSON
        text. Raise DeciderFailure to be tried again later; any other exception counts as one.
        """
