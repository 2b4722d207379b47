"""What a scan is told, what it remembers from one scan to the next, and what it reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol

from store.contract import AlertsPart, Database, EventsPart, IntakePart
from store.intake import Taken
from triggers.inbox.place import Place
from triggers.inbox.stability import Look, Seen

BACKOFF_S = 60.0
"""After a full queue, a busy store or a full disk the next try comes so much later; nothing is moved meanwhile."""


class InboxSpec(NamedTuple):
    """One queue's drop folder. Bytes, seconds, and ``cap``: the most open items the queue may hold."""

    queue: str
    folder: Path
    cap: int = 100_000
    stable_for_s: float = 2.0
    immediate: bool = True
    ignore: tuple[str, ...] = ()
    max_bytes: int = 1024 * 1024


class InboxStore(Protocol):
    """The parts of the store that a scan writes to."""

    state_dir: Path

    @property
    def db(self) -> Database:
        """The file and its write gate."""

    @property
    def intake(self) -> IntakePart:
        """Takes batches of handed-in things."""

    @property
    def alerts(self) -> AlertsPart:
        """Keeps stored problems."""

    @property
    def events(self) -> EventsPart:
        """The decision log."""


class TakenFile(NamedTuple):
    """A file that is in the store now."""

    file: str
    taken: Taken


class RefusedFile(NamedTuple):
    """A file that can never be taken; ``moved`` is its place in ``rejected/``."""

    file: str
    rule: str
    reason: str
    moved: Path | None


class LateFile(NamedTuple):
    """An archived file whose writer may not be finished: looked at again at ``check_at``, until ``until_at``.

    ``changed``: later bytes were seen; it is handed in again when they are stable.
    """

    path: Path
    file: str
    look: Look
    check_at: float
    wait_s: float
    until_at: float
    changed: bool = False


@dataclass
class InboxMemory:
    """What a daemon remembers of one inbox between scans. Losing it costs waiting, never a file."""

    seen: dict[str, Seen] = field(default_factory=dict)
    late: list[LateFile] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)  # kind → what was raised; "": known to be over
    recalled: bool = False  # whether ``late`` holds what an earlier process left
    resume_at: float = 0.0
    said: str = ""
    place: Place | None = None
    returned: set[str] = field(
        default_factory=set
    )  # files our own hand put back: no sign of a finished write


class ScanReport(NamedTuple):
    """What one scan did and saw.

    ``next_at``: when a scan is due again without any event (None: nothing is waited for). ``folders``: what a watcher
    should watch. ``kept``: files that stay for a reason other than being unfinished (full queue, busy
    store, permissions). ``missing``: why there is no inbox to scan. ``trouble``: why nothing can be stored now.
    ``said``: lines for the daemon's terminal, escaped.
    """

    queue: str
    taken: tuple[TakenFile, ...] = ()
    refused: tuple[RefusedFile, ...] = ()
    waiting: tuple[str, ...] = ()
    ignored: Mapping[str, int] = MappingProxyType({})
    kept: int = 0
    missing: str = ""
    trouble: str = ""
    said: tuple[str, ...] = ()
    next_at: float | None = None
    folders: tuple[Path, ...] = ()

    @property
    def new(self) -> int:
        """How many files changed the store: new items and revisions."""
        return sum(one.taken.outcome != "duplicate" for one in self.taken)
