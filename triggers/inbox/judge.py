"""What is to be done with one dropped file: take it, wait for it, or refuse it. Pure, but for ``peek``."""

from __future__ import annotations

import os
from typing import NamedTuple

from store.errors import InputRefused
from triggers.inbox import claim
from triggers.inbox.names import is_utf8
from triggers.inbox.spec import InboxSpec
from triggers.inbox.stability import Seen, no_writer, ready_at
from triggers.inbox.walk import Found
from triggers.intake import too_large


class Peek(NamedTuple):
    """What opening a file told. ``denied``: it may not be read. ``no_writer``: see ``stability.no_writer``."""

    denied: bool = False
    no_writer: bool | None = None


class Take(NamedTuple):
    """It is finished, by this sign."""

    ground: str


class Wait(NamedTuple):
    """It may not be finished; unless it changes, it will count as such at ``until_at``."""

    until_at: float


class Denied(NamedTuple):
    """It may not be read by this user: it stays, and a person is told."""

    why: str


Verdict = Take | Wait | Denied | InputRefused


def refused_unseen(found: Found) -> InputRefused | None:
    """The refusal of what is refused whatever its content: no regular file, or a name that is not UTF-8."""
    if found.special is not None:
        return claim.special_refused(found.special)
    if not is_utf8(found.file):
        return InputRefused(
            "its name is not UTF-8; the bytes that are not are written as \\xNN", rule="name-not-utf8"
        )
    return None


def judge(seen: Seen, peek: Peek, spec: InboxSpec, *, now: float, moved_in: bool) -> Verdict:
    """The verdict on a regular file (FIELD 1, 5)."""
    size = seen.look.size
    stable_at = ready_at(seen, stable_for_s=spec.stable_for_s)
    stable = now >= stable_at
    if size == 0:
        return InputRefused("empty for 30 s", rule="empty") if stable else Wait(stable_at)
    at_once = spec.immediate and (moved_in or peek.no_writer is True)
    if not stable and not at_once:
        return Wait(stable_at)
    if size > spec.max_bytes:
        return too_large(size, spec.max_bytes)
    if peek.denied:
        return Denied("this user may not read it")
    if stable:
        return Take(claim.STABLE)
    return Take(claim.MOVED_IN if moved_in else claim.NO_WRITER)


def peek(found: Found, *, want_lease: bool) -> Peek:
    """Open the file for a moment to see whether it can be read and, if wanted, whether it has a writer."""
    try:
        fd = claim.open_plain(found.path)
    except (InputRefused, FileNotFoundError):
        return Peek()  # it changed or vanished since it was listed: the claim will tell
    except OSError:
        return Peek(denied=True)
    try:
        return Peek(no_writer=no_writer(fd) if want_lease else None)
    finally:
        os.close(fd)
