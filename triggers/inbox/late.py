"""Bytes that come after a file was taken (FIELD 1): a writer that kept it open writes into the archived file.

Where a lease showed that nobody had the file open once it lay in ``.work``, there is nothing to watch. The others are
looked at for an hour, less and less often; what grew, and then stayed the same, is handed in again: as a revision if
it has a key, as a new item if not. The list is kept beside the store (``state/late/QUEUE``), written when a file
joins it, so that a restart in that hour forgets nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from store import files
from store.errors import NameTaken
from triggers.inbox import moves
from triggers.inbox.claim import LATE, Bench, Claimed
from triggers.inbox.settle import Read
from triggers.inbox.spec import InboxMemory, LateFile
from triggers.inbox.stability import Look

WATCH_FOR_S = 3600.0
FIRST_WAIT_S = 2.0
LONGEST_WAIT_S = 300.0
MOST = 1000
"""So many archived files are watched at most; the oldest are let go first."""


def recall(memory: InboxMemory, note: Path, *, now: float) -> None:
    """Take up the list of an earlier process, once."""
    if memory.recalled:
        return
    memory.recalled = True
    try:
        rows = json.loads(note.read_bytes().decode("utf-8", "surrogateescape"))
        known = [
            LateFile(Path(path), file, Look(*look), check_at=now, wait_s=FIRST_WAIT_S, until_at=until_at)
            for path, file, look, until_at in rows
        ]
    except (OSError, ValueError, TypeError):
        return
    memory.late += [one for one in known if now < one.until_at <= now + WATCH_FOR_S]


def remember(memory: InboxMemory, note: Path) -> None:
    """Write the list down. Raises OSError."""
    rows = [[str(one.path), one.file, one.look, one.until_at] for one in memory.late]
    note.parent.mkdir(exist_ok=True)
    data = json.dumps(rows, ensure_ascii=False).encode("utf-8", "surrogateescape")
    files.replace_own(note, data, point="inbox.mark")


def watch(memory: InboxMemory, read: Read, archived: Path, *, now: float) -> bool:
    """Watch an archived file whose writer may go on; whether it is one."""
    if not read.content.late:
        return False
    memory.late.append(
        LateFile(
            path=archived,
            file=read.claimed.file,
            look=read.content.look,
            check_at=now + FIRST_WAIT_S,
            wait_s=FIRST_WAIT_S,
            until_at=now + WATCH_FOR_S,
        )
    )
    del memory.late[:-MOST]
    return True


def due(memory: InboxMemory) -> list[float]:
    """When the watched files should be looked at again."""
    return [one.check_at for one in memory.late]


def changed(memory: InboxMemory, *, now: float) -> list[LateFile]:
    """Look at what is due; the files that grew and have stayed the same since the look before."""
    grown: list[LateFile] = []
    kept: list[LateFile] = []
    for one in memory.late:
        if now < one.check_at:
            kept.append(one)
            continue
        try:
            look = Look.of(os.lstat(one.path))
        except OSError:
            continue
        if (look.inode, look.device) != (one.look.inode, one.look.device):
            continue
        if look != one.look:
            later = one._replace(look=look, changed=True, wait_s=FIRST_WAIT_S)
            kept.append(later._replace(check_at=now + FIRST_WAIT_S, until_at=now + WATCH_FOR_S))
        elif one.changed:
            grown.append(one)
        elif now < one.until_at:
            wait_s = min(one.wait_s * 2, LONGEST_WAIT_S)
            kept.append(one._replace(wait_s=wait_s, check_at=now + wait_s))
    memory.late = kept
    return grown


def claim_again(bench: Bench, grown: Sequence[LateFile]) -> list[Claimed]:
    """Move grown files from the archive back to ``.work``, to be handed in once more."""
    claimed = []
    for one in grown:
        path = bench.path_for(one.file)
        try:
            moves.move(one.path, path, point="inbox.claim")
        except (OSError, NameTaken):
            continue
        again = bench.claimed[path] = Claimed(one.file, path, LATE)
        claimed.append(again)
    return claimed
