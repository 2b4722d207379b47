"""What a store must do, as types: everything outside ``store/`` uses these parts and nothing behind them.

``SqliteStore`` is the implementation; ``tests/store_conformance.py`` is the suite that any implementation passes.
Each part's
promises stand at the head of the module that the type below is named after (``intake``, ``claims`` …).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from store.checkpoints import Committed, Outcome
from store.claims import Claim, Lease, Ready, Reclaimed
from store.intake import Handed, Taken
from store.loading import Loaded
from store.memory import NoteRow
from store.people import Answer, Resolved
from store.sources import PassageRow, SourceChange, SourceRow


class IntakePart(Protocol):
    """Handing work in; see ``store.intake``."""

    def hand_in(
        self, batch: Sequence[Handed], *, now: float, caps: Mapping[str, int], force: bool = False
    ) -> list[Taken]:
        """Take a batch in one commit."""
        ...

    def room(self, queue: str, cap: int) -> int:
        """How many more open items the queue may take."""
        ...


class ClaimsPart(Protocol):
    """Leases; see ``store.claims``."""

    def ready(self, queues: Sequence[str], *, now: float, limit: int = 16) -> Ready:
        """Is there work, and when is the next thing due: one read."""
        ...

    def claim(
        self,
        queues: Sequence[str],
        *,
        owner: str,
        daemon: str,
        trigger: str,
        now: float,
        lease_s: float,
        deadline_s: float,
    ) -> Claim | None:
        """Commit 1 of a session."""
        ...

    def extend(self, claim: Claim, *, now: float, until_at: float) -> None:
        """Hold the lease longer, or CheckpointConflict."""
        ...

    def release(self, held: Claim | Lease, *, now: float, why: str) -> bool:
        """Give a node back uncounted."""
        ...

    def leases(self) -> list[Lease]:
        """Every running node."""
        ...

    def reclaim(self, dead: Iterable[tuple[Lease, str]], *, now: float, crash_limit: int) -> list[Reclaimed]:
        """Take back the nodes of dead leases, counting a crash."""
        ...


class CheckpointsPart(Protocol):
    """Recording outcomes; see ``store.checkpoints``."""

    def commit(
        self,
        claim: Claim,
        outcome: Outcome,
        *,
        now: float,
        compact: Callable[[Sequence[NoteRow]], Sequence[tuple[int, str | None]]] | None = None,
    ) -> Committed:
        """Commit 2 of a session, or CheckpointConflict and nothing written."""
        ...

    def stored_decision(self, item_id: str, node_id: str, reuse_key: str) -> dict[str, Any] | None:
        """A decision of the same inputs."""
        ...


class LoadingPart(Protocol):
    """Claimed items, whole; see ``store.loading``."""

    def load(self, node_id: str) -> Loaded:
        """The node and its item, or Unreadable."""
        ...


class PeoplePart(Protocol):
    """What people do; see ``store.people``."""

    def resolve(self, flag_id: str, answer: Answer, *, now: float) -> Resolved:
        """Answer a flag, once."""
        ...

    def park_flag(self, flag_id: str, *, until_at: float, by: str, reason: str, now: float) -> Resolved:
        """Ask again later."""
        ...

    def pause(self, item_id: str, *, by: str, now: float) -> bool:
        """Hold an item."""
        ...

    def resume(self, item_id: str, *, by: str, now: float) -> bool:
        """Let it go on."""
        ...

    def stop_sessions(self, item_ids: list[str], *, by: str, now: float) -> list[str]:
        """End running sessions, leave the items paused."""
        ...

    def retry(self, item_id: str, *, by: str, now: float) -> str:
        """Try again now."""
        ...

    def abort(self, item_id: str, *, by: str, reason: str, now: float) -> bool:
        """End an item without a result."""
        ...


class MemoryPart(Protocol):
    """What survives a session; see ``store.memory``."""

    def notes(self, queue: str, item_id: str = "") -> list[NoteRow]:
        """The queue's live notes, and the item's own."""
        ...

    def conclusions(self, item_id: str) -> list[dict[str, Any]]:
        """What an item came to."""
        ...


class SourcesPart(Protocol):
    """Sources and passages; see ``store.sources``."""

    def known(self, queue: str) -> list[SourceRow]:
        """Known sources."""
        ...

    def change(self, queue: str, changes: Sequence[SourceChange], *, now: float) -> dict[str, int]:
        """Record changed sources."""
        ...

    def passages(self, ids: Sequence[int]) -> list[PassageRow]:
        """Live passages by id."""
        ...


class ViewsPart(Protocol):
    """What people and programs look at; see ``store.views``."""

    def status(self, queues: Sequence[str], *, now: float) -> dict[str, Any]:
        """Counts per queue."""
        ...

    def item(self, item_id: str, *, now: float) -> dict[str, Any]:
        """One item whole."""
        ...

    def flags(self, *, queue: str | None = None, now: float) -> list[dict[str, Any]]:
        """What waits for a person."""
        ...


class Database(Protocol):
    """Commits and snapshots, each at a named crash point."""

    def close(self) -> None:
        """Close every connection."""
        ...

    def read(self) -> AbstractContextManager[Any]:
        """One consistent snapshot."""
        ...

    def write(self, *, point: str, wait_s: float | None = None) -> AbstractContextManager[Any]:
        """One transaction."""
        ...


class Store(Protocol):
    """The whole store of one state folder."""

    state_dir: Path

    @property
    def db(self) -> Database:
        """Commits and snapshots."""
        ...

    @property
    def intake(self) -> IntakePart:
        """Handing work in."""
        ...

    @property
    def claims(self) -> ClaimsPart:
        """Who works on what."""
        ...

    @property
    def checkpoints(self) -> CheckpointsPart:
        """Recording outcomes."""
        ...

    @property
    def loading(self) -> LoadingPart:
        """Claimed items."""
        ...

    @property
    def people(self) -> PeoplePart:
        """What people do."""
        ...

    @property
    def memory(self) -> MemoryPart:
        """What survives a session."""
        ...

    @property
    def sources(self) -> SourcesPart:
        """Sources and passages."""
        ...

    @property
    def views(self) -> ViewsPart:
        """What people look at."""
        ...

    def close(self) -> None:
        """Close every file."""
        ...
