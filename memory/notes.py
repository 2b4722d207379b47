"""Which notes leave when a node is finished. Code alone decides; a note is kept word for word or dropped.

A queue shares conclusions and rejected paths. Stages and questions are their item's own and leave when it is finished.

    stays     whatever its age: pinned notes; of an open item its conclusions, its newest stage, its open questions
    folds     rejected paths: over a cap the oldest become one counted line
    leaves    oldest first, over a cap: overtaken stages, then what finished items came to

Two caps in count and in characters: what one open item holds, and what the queue holds of finished items and of
rejected paths together. What stays is not held against the queue: an item that waits for a person for a week must not
push out what the queue learned meanwhile; it is bounded by the item's own cap on decisions.
What leaves is only no longer shown: its row stays, ``shiftwork show`` and ``memory search`` find it, and what had
evidence is an episode (``memory.episodes``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from store.memory import NoteRow

Leaving = list[tuple[int, str | None]]


def compact(
    notes: Sequence[NoteRow], *, notes_max: int, notes_chars: int, per_item_max: int | None = None
) -> Leaving:
    """What to do with the queue's live notes (oldest first): ``(id, None)`` drops one, ``(id, text)`` rewrites one.

    `notes_max` and `notes_chars` bound what the queue holds; `per_item_max` (as many by default) what one open item
    holds. Nothing to do is an empty list. Applying it and asking again gives an empty list.
    """
    if all(note.kind == "conclusion" and not (note.pinned or note.cited) for note in notes):
        return _oldest_over(notes, notes_max, notes_chars)
    per_item = notes_max if per_item_max is None else per_item_max
    settled = _Settled(notes)
    settled.drop_finished(notes)
    for own in _by_item(notes).values():
        settled.shrink(own, most=per_item, chars=notes_chars)
    settled.shrink(
        [note for note in notes if not stays(note, settled.stages)], most=notes_max, chars=notes_chars
    )
    return settled.leaving


def _oldest_over(notes: Sequence[NoteRow], most: int, chars: int) -> Leaving:
    """The plain case, which nearly every session meets: all that is there is what finished items came to."""
    over, size = len(notes) - most, sum([len(note.text) for note in notes])
    leaving: Leaving = []
    for note in notes:
        if over <= 0 and size <= chars:
            break
        leaving.append((note.id, None))
        over, size = over - 1, size - len(note.text)
    return leaving


def stays(note: NoteRow, stages: dict[str, int]) -> bool:
    """Whether a note is kept whatever its age. `stages`: item → its newest stage note."""
    if note.pinned:
        return True
    if not note.cited or note.kind == "rejected":
        return False
    return note.kind != "stage" or stages.get(note.item_id) == note.id


def newest_stages(notes: Sequence[NoteRow]) -> dict[str, int]:
    """Item → the id of its newest stage note."""
    return {note.item_id: note.id for note in notes if note.kind == "stage"}


def counted_line(count: int) -> str:
    """The one line that stands for `count` rejected paths."""
    return f"{count} older rejected paths are no longer listed; look for them before you try something again"


class _Settled:
    """What has been decided so far."""

    def __init__(self, notes: Sequence[NoteRow]) -> None:
        self.stages = newest_stages(notes)
        self.leaving: Leaving = []
        self._gone: set[int] = set()
        rejected = [note for note in notes if note.kind == "rejected" and not note.pinned]
        self._counted = next((note for note in rejected if note.merged > 1), None)
        self._count = self._counted.merged if self._counted else 1

    def drop_finished(self, notes: Sequence[NoteRow]) -> None:
        """What only the item itself needed goes with it."""
        for note in notes:
            if note.kind in ("stage", "question") and not note.cited and not note.pinned:
                self._drop(note)

    def shrink(self, notes: Sequence[NoteRow], *, most: int, chars: int) -> None:
        """Let notes go until these fit, or only what stays is left. A counted line may be the longer one."""
        while True:
            here = [self._as_it_is(note) for note in notes if note.id not in self._gone]
            if len(here) <= most and sum(len(note.text) for note in here) <= chars:
                return
            leaver = next(iter(self._order(here)), None)
            if leaver is None:
                return
            if leaver.kind == "rejected":
                self._fold(leaver)
            else:
                self._drop(leaver)

    def _as_it_is(self, note: NoteRow) -> NoteRow:
        return self._counted if self._counted is not None and self._counted.id == note.id else note

    def _order(self, notes: Sequence[NoteRow]) -> list[NoteRow]:
        """Who leaves first: overtaken stages, what finished items left behind, rejected paths; each oldest first."""
        free = [note for note in notes if not stays(note, self.stages)]
        overtaken = [
            note for note in free if note.kind == "stage" and self.stages.get(note.item_id) != note.id
        ]
        left = [note for note in free if note.kind != "rejected" and note not in overtaken]
        rejected = [note for note in free if note.kind == "rejected" and note.id != self._carrier_id()]
        return [*overtaken, *left, *rejected]

    def _drop(self, note: NoteRow) -> None:
        self.leaving.append((note.id, None))
        self._gone.add(note.id)

    def _fold(self, note: NoteRow) -> None:
        """Into the counted line, which the first one of all becomes."""
        if self._counted is None:
            self._counted = note
            return
        self._count += note.merged
        line = counted_line(self._count)
        self._counted = self._counted._replace(text=line)
        # the store counts one path up with each rewriting
        self.leaving += [(note.id, None), *[(self._counted.id, line)] * note.merged]
        self._gone.add(note.id)

    def _carrier_id(self) -> int | None:
        return self._counted.id if self._counted else None


def _by_item(notes: Sequence[NoteRow]) -> dict[str, list[NoteRow]]:
    found: dict[str, list[NoteRow]] = defaultdict(list)
    for note in notes:
        if note.cited:
            found[note.item_id].append(note)
    return found
