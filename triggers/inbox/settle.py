"""What becomes of judged files: read and parsed for the store, or refused with a reason and an event."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from store import files, moments
from store.errors import InputRefused
from store.intake import Handed
from triggers import intake
from triggers.inbox import claim, reject
from triggers.inbox.claim import Claimed, Content, NotFinished
from triggers.inbox.names import ARCHIVE, REJECTED, WORK, base_name, is_utf8
from triggers.inbox.problems import note_refusals
from triggers.inbox.reject import Refusal
from triggers.inbox.spec import InboxSpec, InboxStore

__all__ = ["NotFinished", "Read", "check_folders", "read", "refuse"]


class Read(NamedTuple):
    """A claimed file, its bytes, and what is handed in for it."""

    claimed: Claimed
    content: Content
    handed: Handed


def check_folders(folder: Path) -> None:
    """Make sure, before anything is claimed, that it can be moved on. Raises OSError."""
    for name in (ARCHIVE, REJECTED):
        target = folder / name
        target.mkdir(exist_ok=True)
        if not os.access(target, os.W_OK | os.X_OK):
            raise PermissionError(13, "cannot be written", os.fspath(target))


def read(claimed: Claimed, spec: InboxSpec) -> Read:
    """Read and parse a claimed file. Raises InputRefused, NotFinished, OSError."""
    if not is_utf8(claimed.file):
        raise InputRefused(
            "its name is not UTF-8; the bytes that are not are written as \\xNN", rule="name-not-utf8"
        )
    content = claim.read(claimed, max_bytes=spec.max_bytes)
    draft = intake.parse(content.data, name=claimed.file, max_bytes=spec.max_bytes)
    handed = draft.handed(queue=spec.queue, door="file", origin=claimed.file, name=base_name(claimed.file))
    claim_name = os.path.relpath(
        claimed.path, spec.folder / WORK
    )  # one claim's own, and what a kill leaves of it
    return Read(claimed, content, handed._replace(delivery=claim_name))


def refuse(
    store: InboxStore, spec: InboxSpec, refusals: Sequence[Refusal], *, now: float
) -> Iterator[tuple[Refusal, Path | None]]:
    """Move files to ``rejected/``, one commit for all of them; each with its new place (None: it was gone)."""
    fresh = []
    for one in refusals:
        place = reject.half_moved(spec.folder, one)
        if place is None:
            fresh.append(one)
        else:
            files.remove(one.path, point="inbox.drop")
            yield one, place
    at = moments.iso(now)
    placed = [(one, reject.write_reason(spec.folder, one, queue=spec.queue, at=at)) for one in fresh]
    note_refusals(store, spec, placed, now=now)
    for one, place in placed:
        yield one, reject.move_away(one, place)
