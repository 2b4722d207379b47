"""What the store remembers that bears on one node: the reads behind a context, in one snapshot.

Retrieval is driven by the state, not by the model: item, node, open questions and people's answers make the query, the
queue is its scope.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from memory.notes import newest_stages, stays
from memory.tokens import tokens
from store.contract import Store
from store.loading import Loaded
from store.memory import ConstraintRow, EpisodeRow, NoteRow
from store.search import Kind
from store.sources import PassageRow

if TYPE_CHECKING:
    from memory.retrieval import Hit

QUERY_CHARS: Final = 12_000
"""How much of an item's body makes the query."""

_ROUNDING_S: Final = 3600.0  # recency moves by the hour, so that two builds in a row rank alike


class Limits(Protocol):
    """The keys of ``[queues.NAME]`` that bound a context."""

    @property
    def notes_max(self) -> int:
        """Most notes shown."""

    @property
    def notes_chars(self) -> int:
        """Most characters of notes shown, and of conclusions."""

    @property
    def episodes_max(self) -> int:
        """Most episodes shown."""

    @property
    def passages_max(self) -> int:
        """Most passages shown."""

    @property
    def context_chars(self) -> int:
        """Most characters of a whole context."""


class Recalled(NamedTuple):
    """What the store gave, as of one moment. ``has_passages``: the queue has sources to look in."""

    constraints: Sequence[ConstraintRow]
    notes: Sequence[NoteRow]
    conclusions: Sequence[Mapping[str, Any]]
    episodes: Sequence[EpisodeRow]
    passages: Sequence[PassageRow]
    has_passages: bool


def recall(store: Store, loaded: Loaded, limits: Limits, *, now: float) -> Recalled:
    """All that a decision about this node may rest on, within the limits. Writes nothing."""
    with store.db.read():
        return _recall(store, loaded, limits, now)


def _recall(store: Store, loaded: Loaded, limits: Limits, now: float) -> Recalled:
    memory = store.memory
    notes = _notes(memory.notes(loaded.queue, loaded.item_id), loaded.item_id, limits)
    conclusions = _newest(memory.conclusions(loaded.item_id), limits)
    with store.search.view(loaded.queue, ("episode", "passage")) as view:
        searchable = view.docs > 0
    episodes: Sequence[EpisodeRow] = ()
    passages: Sequence[PassageRow] = ()
    has_passages = False
    if searchable:
        query = tokens(_query(loaded, notes))
        episodes = _episodes(store, loaded.queue, query, notes, most=limits.episodes_max, now=now)
        hits = _hits(store, loaded.queue, query, "passage", most=limits.passages_max, now=now)
        passages = store.sources.passages([hit.ref for hit in hits])
        has_passages = bool(passages) or (
            limits.passages_max > 0 and store.sources.counts(loaded.queue)[1] > 0
        )
    return Recalled(memory.constraints(loaded.queue), notes, conclusions, episodes, passages, has_passages)


def _notes(live: Sequence[NoteRow], item_id: str, limits: Limits) -> list[NoteRow]:
    """The notes this item is shown, oldest first: its own, what is pinned, and what other items came to."""
    stages = newest_stages(live)
    first: list[NoteRow] = []
    own: list[NoteRow] = []
    others: list[NoteRow] = []
    for note in reversed(live):
        if note.item_id != item_id:
            (first if note.pinned else others).append(note)
        else:
            (first if stays(note, stages) else own).append(note)
    first.sort(key=lambda note: note.item_id != item_id)  # the item's own before what is pinned of others
    rest = own + others
    chosen: list[NoteRow] = []
    chars = 0
    for note in (*first, *rest):
        if len(chosen) == limits.notes_max or chars + len(note.text) > limits.notes_chars:
            break
        chosen.append(note)
        chars += len(note.text)
    return sorted(chosen, key=lambda note: note.id)


def _newest(conclusions: Sequence[Mapping[str, Any]], limits: Limits) -> list[Mapping[str, Any]]:
    """The newest conclusions within the size of the notes, oldest first."""
    chosen: list[Mapping[str, Any]] = []
    chars = 0
    for row in reversed(conclusions):
        chars += len(row["subject"]) + len(row["value"])
        if chars > limits.notes_chars:
            break
        chosen.append(row)
    return chosen[::-1]


def _query(loaded: Loaded, notes: Sequence[NoteRow]) -> str:
    """The state as a query: item, node, open questions, what people answered. The queue is the scope of the search."""
    body = loaded.body[:QUERY_CHARS]
    parts = [loaded.title] if loaded.title not in body else []
    parts.append(body)
    if loaded.node_title != loaded.title:
        parts.append(loaded.node_title)
    about = f"{loaded.item_id}: "
    for note in notes:
        if note.item_id == loaded.item_id and note.kind == "question":
            said = note.text.removeprefix(about)
            parts.append(
                said.replace(loaded.title, "") if loaded.title else said
            )  # what is asked, not again of what
    parts += [f"{answer.option or ''} {answer.text}" for answer in loaded.answers]
    return "\n".join(parts)


def _episodes(
    store: Store, queue: str, query: Sequence[str], notes: Sequence[NoteRow], *, most: int, now: float
) -> list[EpisodeRow]:
    """The best episodes, one of them a failed attempt, without those that the notes say already."""
    if most < 1:
        return []
    from memory.retrieval import keep_one_failed

    hits = _hits(store, queue, query, "episode", most=most + len(notes), now=now)
    said = {" ".join(note.text.removeprefix(f"{note.item_id}: ").split()) for note in notes}
    rows = {row.id: row for row in store.memory.episodes([hit.ref for hit in hits]) if row.text not in said}
    return [rows[hit.ref] for hit in keep_one_failed([hit for hit in hits if hit.ref in rows], most)]


def _hits(store: Store, queue: str, query: Sequence[str], kind: Kind, *, most: int, now: float) -> list[Hit]:
    from memory.retrieval import retrieve  # brings numpy: only where there is something to rank

    return retrieve(store.search, query, queue=queue, kinds=(kind,), limit=most, now=_rounded(now))


def _rounded(now: float) -> float:
    return now // _ROUNDING_S * _ROUNDING_S
