"""What a store must do, as types: all that the other rooms use of it, and nothing behind that.

``SqliteStore`` is the implementation (``store/sqlite.py`` has the type checker hold it to this file);
``tests/store_conformance.py`` is the suite that any implementation passes. Each part's promises stand at the head of
the module that the type below is named after (``intake``, ``claims`` …). ``conn`` is what ``Database.write`` gave:
the caller's own transaction.

Only ``daemon/``, which opens and tends the store, knows more: that it is a file with a log, a gate and a lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # types alone: who names this file loads nothing for it
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from store.alert_rows import Alert, Change, Claimed, Facts, Live
    from store.checkpoints import Committed, Outcome
    from store.claims import Claim, Lease, Order, Ready, Reclaimed
    from store.counting import Glance
    from store.errors import CapReached
    from store.history import Raw
    from store.intake import Handed, Taken
    from store.loading import Loaded
    from store.memory import ConstraintRow, EpisodeRow, NoteRow
    from store.papers import Mark, Paper
    from store.people import Answer, Resolved
    from store.search import Kind, SearchView
    from store.sources import PassageRow, SourceChange, SourceRow


class Database(Protocol):
    """Commits and snapshots, each commit at a named crash point; see ``store.database``."""

    def read(self) -> AbstractContextManager[Any]:
        """One consistent snapshot."""

    def write(self, *, point: str, wait_s: float | None = None) -> AbstractContextManager[Any]:
        """One transaction."""

    def refuse_if_gone(self) -> None:
        """Raise StoreGone when the store is no longer the one that was opened."""

    def ride_along(self, rider: Callable[[Any], None]) -> None:
        """Let ``rider`` write in this process's next commit."""

    @property
    def riders(self) -> int:
        """How many riders wait for a commit."""


class IntakePart(Protocol):
    """Handing work in; see ``store.intake``."""

    def hand_in(
        self, batch: Sequence[Handed], *, now: float, caps: Mapping[str, int], force: bool = False
    ) -> list[Taken]:
        """Take a batch in one commit."""

    def hand_in_waiting(
        self, waiting: Callable[[], Sequence[Handed]], *, now: float, caps: Mapping[str, int], wait_s: float
    ) -> list[Taken | CapReached]:
        """Take what waits once the store may be written, in one commit, each with its own outcome."""

    def room(self, queue: str, cap: int) -> int:
        """How many more open items the queue may take."""


class ClaimsPart(Protocol):
    """Leases; see ``store.claims``."""

    def ready(self, queues: Sequence[str], *, now: float, limit: int = 16) -> Ready:
        """Is there work, and when is the next thing due: one read."""

    def claim(self, order: Order, *, now: float) -> Claim | None:
        """Commit 1 of a session."""

    def extend(self, claim: Claim, *, now: float, until_at: float) -> None:
        """Hold the lease longer, or CheckpointConflict."""

    def release(self, held: Claim | Lease, *, now: float, why: str) -> bool:
        """Give a node back uncounted."""

    def leases(self) -> list[Lease]:
        """Every running node."""

    def overtaken(self, session_ids: Sequence[int]) -> set[int]:
        """Those of these sessions that lost their node."""

    def reclaim(self, dead: Iterable[tuple[Lease, str]], *, now: float, crash_limit: int) -> list[Reclaimed]:
        """Take back the nodes of dead leases, counting a crash."""


class LoadingPart(Protocol):
    """Claimed items, whole; see ``store.loading``."""

    def load(self, node_id: str) -> Loaded:
        """The node and its item, or Unreadable."""


class CheckpointsPart(Protocol):
    """Recording outcomes; see ``store.checkpoints``."""

    def commit(
        self,
        claim: Claim,
        outcome: Outcome,
        *,
        now: float,
        compact: Callable[[Sequence[NoteRow]], Sequence[tuple[int, str | None]]] | None = None,
        then: Order | None = None,
    ) -> Committed:
        """Commit 2 of a session and, with ``then``, commit 1 of the next; or CheckpointConflict and nothing written."""

    def stored_decision(self, item_id: str, node_id: str, reuse_key: str) -> dict[str, Any] | None:
        """A decision of the same inputs."""


class PeoplePart(Protocol):
    """What people do; see ``store.people``."""

    def resolve(self, flag_id: str, answer: Answer, *, now: float) -> Resolved:
        """Answer a flag, once."""

    def park_flag(self, flag_id: str, *, until_at: float, by: str, reason: str, now: float) -> Resolved:
        """Ask again later."""

    def wake_flags(self, *, now: float) -> int:
        """Parked flags whose time came wait again; how many."""

    def next_flag_due_at(self) -> float | None:
        """When the next parked flag comes back."""

    def pause(self, item_id: str, *, by: str, now: float) -> bool:
        """Hold an item."""

    def resume(self, item_id: str, *, by: str, now: float) -> bool:
        """Let it go on."""

    def pause_queue(self, queue: str, *, by: str, now: float) -> bool:
        """Hold a queue."""

    def resume_queue(self, queue: str, *, by: str, now: float) -> bool:
        """Let it go on, with those of its items that ``stop_sessions`` left paused."""

    def stop_sessions(self, item_ids: list[str], *, by: str, now: float) -> list[str]:
        """End running sessions, leave the items paused."""

    def retry(self, item_id: str, *, by: str, now: float) -> str:
        """Try again now."""

    def abort(self, item_id: str, *, by: str, reason: str, now: float) -> bool:
        """End an item without a result."""


class MemoryPart(Protocol):
    """What survives a session; see ``store.memory``."""

    def sync_constraints(self, queue: str, wanted: Sequence[tuple[str, str]], *, now: float) -> None:
        """Make the queue's constraints those of the configuration."""

    def constraints(self, queue: str) -> list[ConstraintRow]:
        """The queue's constraints, in order."""

    def notes(self, queue: str, item_id: str = "") -> list[NoteRow]:
        """The queue's live notes, and the item's own."""

    def past_notes(self, queue: str, *, limit: int) -> list[NoteRow]:
        """The queue's notes, newest first, also those that left."""

    def conclusions(self, item_id: str) -> list[dict[str, Any]]:
        """What an item came to."""

    def episodes(self, ids: Sequence[int]) -> list[EpisodeRow]:
        """Episodes by id."""


class SourcesPart(Protocol):
    """Sources and passages; see ``store.sources``."""

    def known(self, queue: str) -> list[SourceRow]:
        """Known sources."""

    def counts(self, queue: str) -> tuple[int, int]:
        """How many sources and passages there are now."""

    def change(self, queue: str, changes: Sequence[SourceChange], *, now: float) -> dict[str, int]:
        """Record changed sources."""

    def touch(self, queue: str, seen: Sequence[tuple[str, int]]) -> None:
        """Remember new times of unchanged files."""

    def passages(self, ids: Sequence[int]) -> list[PassageRow]:
        """Live passages by id."""


class SearchPart(Protocol):
    """Finding episodes and passages; see ``store.search``."""

    def view(self, queue: str, kinds: Collection[Kind]) -> AbstractContextManager[SearchView]:
        """The documents of a queue, as of one moment."""


class OutboxPart(Protocol):
    """Messages to send, and what became of them; see ``store.outbox``."""

    def due(self, *, owner: str, now: float) -> list[Live]:
        """Messages to send now."""

    def claim(self, number: int, *, owner: str, mark: int, now: float) -> Claimed | None:
        """Take one message to send it."""

    def record_delivered(self, message: Live, *, owner: str, now: float) -> bool:
        """It arrived."""

    def record_failed(
        self, message: Live, *, owner: str, failure: str, now: float, retry_at: float | None
    ) -> bool:
        """It did not; again at ``retry_at``, or never."""


class AlertsPart(Protocol):
    """Alerts and the problems some come from; see ``store.alerts``."""

    @property
    def outbox(self) -> OutboxPart:
        """What is to be sent."""

    def facts(self, *, now: float, flag_age_s: float) -> Facts:
        """Everything an evaluation needs, in one snapshot."""

    def apply(self, changes: Sequence[Change], *, now: float) -> list[Change]:
        """Commit steps with their messages; those that were written."""

    def ack(self, alert: str, *, by: str, for_s: float = ..., now: float) -> Alert:
        """Quiet a firing alert for a time."""

    def raise_problem(self, key: str, *, queue: str | None, kind: str, detail: str, now: float) -> bool:
        """Store that something is wrong; False when that is known."""

    def note_problem(
        self, conn: Any, key: str, *, queue: str | None, kind: str, detail: str, now: float
    ) -> None:
        """The same inside a transaction, counted each time."""

    def clear_problem(self, key: str) -> bool:
        """Store that it is over; False when there was none."""


class EventsPart(Protocol):
    """The decision log; see ``store.events``."""

    def add(
        self, conn: Any, *, now: float, kind: str, queue: str | None = None, item_id: str | None = None,
        session_id: int | None = None, data: Mapping[str, object] | None = None,
    ) -> None:  # fmt: skip
        """Append one event inside a transaction."""

    def note(self, *, now: float, kind: str, queue: str | None = None, data: Mapping[str, object]) -> None:
        """Append one event in a commit of its own."""


class PapersPart(Protocol):
    """Files for people, as rows; see ``store.papers``."""

    def due(self, *, item_id: str | None = None) -> Iterator[Paper]:
        """Papers to write or to remove."""

    def mark(self, conn: Any, marks: Sequence[Mark], *, now: float) -> None:
        """Record what was done inside a transaction."""

    def mark_now(self, marks: Sequence[Mark], *, now: float) -> None:
        """The same in a commit of its own."""


class HistoryPart(Protocol):
    """Raw prompts and replies, for audits; see ``store.history``."""

    def add(self, batch: Sequence[Raw]) -> str:
        """Keep a batch; why it could not be kept, or nothing."""

    def of_session(self, session_id: int) -> list[Raw]:
        """The raw texts of one session."""


class ViewsPart(Protocol):
    """What people and programs look at; see ``store.views``."""

    def status(self, queues: Sequence[str], *, now: float, history: bool = True) -> dict[str, Any]:
        """Counts per queue."""

    def queues(self) -> list[str]:
        """The queues that hold or held items, or are paused."""

    def items(self, *, queue: str | None, state: str | None, limit: int, now: float) -> list[dict[str, Any]]:
        """Items, newest first."""

    def item(self, item_id: str, *, now: float) -> dict[str, Any]:
        """One item whole."""

    def flags(self, *, queue: str | None = None, now: float) -> list[dict[str, Any]]:
        """What waits for a person."""

    def flag(self, flag_id: str, *, now: float) -> dict[str, Any]:
        """One flag whole."""

    def log(self, item_id: str | None, *, limit: int) -> list[dict[str, Any]]:
        """What happened, oldest first."""

    def why(self, item_id: str, *, now: float) -> dict[str, Any]:
        """What an item waits for, and what ends the wait."""

    def problem(self, key: str) -> dict[str, Any] | None:
        """What is wrong under this key."""

    def would_abort(self, item_id: str, *, now: float) -> dict[str, Any]:
        """What an abort would change."""

    def running_items(self, target: str) -> list[str]:
        """Items with a running session."""

    def open_by_queue(self) -> dict[str, int]:
        """Open items per queue."""

    def glance(self, *, now: float) -> Glance:
        """Open items by state, cheaply."""

    def left(self) -> dict[str, int]:
        """Open items, and those that wait for a person."""


class Store(Protocol):
    """The whole store of one state folder."""

    state_dir: Path

    @property
    def db(self) -> Database:
        """Commits and snapshots."""

    @property
    def intake(self) -> IntakePart:
        """Handing work in."""

    @property
    def claims(self) -> ClaimsPart:
        """Who works on what."""

    @property
    def loading(self) -> LoadingPart:
        """Claimed items."""

    @property
    def checkpoints(self) -> CheckpointsPart:
        """Recording outcomes."""

    @property
    def people(self) -> PeoplePart:
        """What people do."""

    @property
    def memory(self) -> MemoryPart:
        """What survives a session."""

    @property
    def sources(self) -> SourcesPart:
        """Sources and passages."""

    @property
    def search(self) -> SearchPart:
        """Finding episodes and passages."""

    @property
    def alerts(self) -> AlertsPart:
        """Alerts and problems."""

    @property
    def events(self) -> EventsPart:
        """The decision log."""

    @property
    def papers(self) -> PapersPart:
        """Files for people."""

    @property
    def history(self) -> HistoryPart:
        """Raw prompts and replies."""

    @property
    def views(self) -> ViewsPart:
        """What people look at."""

    def close(self) -> None:
        """Close every file."""
