"""What is wrong with an inbox, stored once and cleared when it is over (FIELD 1, 5, 9, 10).

    missing      the folder is gone                         page after 60 s
    disk         a disk is full or fails, and the store     page after 60 s
                 can still say so
    unusable     the folder, or ours in it, cannot be used  ticket
    permission   a file or folder may not be read or moved  ticket
    watch        the kernel gives no more watches           ticket
    unstable     a file is unfinished for over an hour      ticket
    rejected     something was refused; counted             ticket

Each has one key per queue, so each makes one alert at most. Writes happen only when something changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from store.text import shown
from triggers.inbox.reject import Refusal
from triggers.inbox.spec import InboxMemory, InboxSpec, InboxStore


class Problems:
    """Raises and clears the problems of one inbox. ``said``: lines for the terminal about what changed."""

    def __init__(self, store: InboxStore, queue: str, memory: InboxMemory) -> None:
        self._store = store
        self._queue = queue
        self._standing = memory.problems
        self.said: list[str] = []

    def tell(self, kind: str, detail: str, *, now: float) -> None:
        """``detail`` says what is wrong; empty: nothing is."""
        if detail:
            self.stand(kind, detail, now=now)
        else:
            self.settle(kind, now=now)

    def stand(self, kind: str, detail: str, *, now: float) -> None:
        """It is so. One event and one row, however often it is seen."""
        if self._standing.get(kind) == detail:
            return
        key = f"inbox:{self._queue} {kind}"
        if self._store.alerts.raise_problem(key, queue=self._queue, kind=kind, detail=detail, now=now):
            self._store.events.note(
                now=now, kind="inbox", queue=self._queue, data={"problem": kind, "detail": detail}
            )
        self._standing[kind] = detail
        self.said.append(f"{self._queue}: inbox: {detail}")

    def settle(self, kind: str, *, now: float) -> None:
        """It is not, or no longer, so. A daemon that just started looks into the store once."""
        if self._standing.get(kind) == "":
            return
        if self._store.alerts.clear_problem(f"inbox:{self._queue} {kind}"):
            self._store.events.note(
                now=now, kind="inbox", queue=self._queue, data={"problem": kind, "over": True}
            )
            self.said.append(f"{self._queue}: inbox: no longer {kind}")
        self._standing[kind] = ""


def note_refusals(
    store: InboxStore, spec: InboxSpec, refused: Sequence[tuple[Refusal, Path]], *, now: float
) -> None:
    """One event per refused file and the queue's counted problem, in one commit."""
    if not refused:
        return
    with store.db.write(point="inbox.record") as conn:
        for one, place in refused:
            data = {
                "file": shown(one.file),
                "rule": one.why.rule,
                "reason": str(one.why),
                "rejected": shown(str(place)),
            }
            store.events.add(conn, now=now, kind="rejected", queue=spec.queue, data=data)
            detail = f"{shown(one.file, 80)}: {one.why}"
            store.alerts.note_problem(
                conn, f"rejected:{spec.queue}", queue=spec.queue, kind="rejected", detail=detail, now=now
            )
