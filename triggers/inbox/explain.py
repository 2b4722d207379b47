"""``inbox explain FILE``: which rule applies to a file, from the same judges that a scan asks. Moves nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from store.errors import InputRefused
from store.text import shown
from triggers import intake
from triggers.inbox import claim, judge, place
from triggers.inbox.names import ARCHIVE, REJECTED, RESERVED, WORK, ignored
from triggers.inbox.reject import SUFFIX
from triggers.inbox.spec import InboxSpec
from triggers.inbox.stability import Look, observe, ready_at
from triggers.inbox.walk import Found


def explain(file: Path, specs: Sequence[InboxSpec], *, now: float) -> list[str]:
    """Lines for a person: where the file lies, which rule applies, and what happens next."""
    path = Path(os.path.realpath(file.parent), file.name)
    for spec in specs:
        root = Path(os.path.realpath(spec.folder))
        if root in path.parents:
            return _in_inbox(path, root, spec, now)
    folders = ", ".join(shown(str(spec.folder)) for spec in specs) or "none is configured"
    return [f"{shown(str(path))} lies in no inbox ({folders}). Only what lies there is taken."]


def _in_inbox(path: Path, root: Path, spec: InboxSpec, now: float) -> list[str]:
    name = os.path.relpath(path, root)
    head = f"{shown(name)} in the inbox of queue {spec.queue}"
    top = name.partition("/")[0]
    if top in RESERVED:
        return [head, *_settled(path, top)]
    rule = ignored(name, spec.ignore)
    if rule is not None:
        return [head, f'ignored: its name matches "{shown(rule.pattern)}", {rule.why}. It stays where it is.']
    try:
        found = Found(name, path, os.lstat(path))
    except FileNotFoundError:
        return [head, "not there. Its name alone is one that would be taken."]
    if os.path.isdir(path) and not os.path.islink(path):
        return [head, "a folder: what lies in it is scanned."]
    return [head, *_judged(found, spec, now), *_whereabouts(spec)]


def _settled(path: Path, top: str) -> list[str]:
    if top == ARCHIVE:
        return ["archived: it was taken. What became of it:  shiftwork list"]
    if top == WORK:
        return ["claimed: a scan is taking it, or was killed while it did; the next scan goes on with it."]
    reason = path.with_name(path.name + SUFFIX)
    if top == REJECTED and reason.is_file():
        text = reason.read_text(encoding="utf-8", errors="replace")
        return ["rejected:", *(f"  {shown(line)}" for line in text.splitlines())]
    return ["one of Shiftwork's own files; it is never taken."]


def _judged(found: Found, spec: InboxSpec, now: float) -> list[str]:
    unseen = judge.refused_unseen(found)
    if unseen is not None:
        return [_refused(unseen)]
    look = Look.of(found.status)
    seen = observe(None, look, now=now, changed_at=found.status.st_ctime_ns / 1e9)
    peek = judge.peek(found, want_lease=spec.immediate) if look.size else judge.Peek()
    match judge.judge(seen, peek, spec, now=now, moved_in=False):
        case judge.Take(ground):
            return [_content(found, spec) or f"to be taken at the next scan ({_sign(ground, spec)})."]
        case judge.Wait():
            wait_s = max(ready_at(seen, stable_for_s=spec.stable_for_s) - now, 0.0)
            why = {True: "", False: "a program has it open for writing; ", None: ""}[peek.no_writer]
            what = "empty: it is refused" if look.size == 0 else "not finished yet: it is taken"
            return [f"{why}{what} when nothing changes it for another {wait_s:.1f} s."]
        case judge.Denied(why):
            return [
                f"stays: {why} (mode {found.status.st_mode & 0o7777:04o}, owner uid {found.status.st_uid})."
            ]
        case InputRefused() as why:
            return [_refused(why)]


def _content(found: Found, spec: InboxSpec) -> str:
    """How its content would be refused; empty: it would not."""
    try:
        content = claim.read(claim.Claimed(found.file, found.path, claim.STABLE), max_bytes=spec.max_bytes)
        intake.parse(content.data, name=found.file, max_bytes=spec.max_bytes)
    except InputRefused as why:
        return _refused(why)
    except (OSError, claim.NotFinished):
        return "it changes just now."
    return ""


def _sign(ground: str, spec: InboxSpec) -> str:
    if ground == claim.STABLE:
        return f"unchanged for {spec.stable_for_s:g} s"
    return "no program has it open for writing"


def _refused(why: InputRefused) -> str:
    return f"to be rejected at the next scan, rule {why.rule}: {why}"


def _whereabouts(spec: InboxSpec) -> list[str]:
    now = place.look_only(spec.folder)
    return [f"the inbox itself: {now.why}"] if isinstance(now, place.Missing) else []
