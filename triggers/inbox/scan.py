"""One scan of one inbox: the only thing that decides. Watchers merely say when to scan (FIELD 2).

    look     is the folder there?                      place.py
    recover  what a kill left in .work                 claim.py
    list     every entry, opened by nobody             walk.py
    judge    take, wait or refuse                      judge.py, stability.py, names.py
    settle   claim → hand in, one commit a batch → archive;  refuse → rejected/

``scan_once`` is synchronous and blocking: the daemon runs it in an executor, ``run --once`` calls it directly.
A full queue, a busy store or a full disk leaves the files in the inbox, is said once and tried again after a minute.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from store.errors import CapReached, InputRefused, NameTaken, StoreBusy
from store.intake import Taken
from store.text import shown
from triggers import intake
from triggers.inbox import judge, late, place, settle, walk
from triggers.inbox.claim import RECOVERED, REFUSED, Bench, BenchTaken, Claimed
from triggers.inbox.moves import StillWritten
from triggers.inbox.problems import Problems
from triggers.inbox.reject import Refusal
from triggers.inbox.spec import (
    BACKOFF_S,
    InboxMemory,
    InboxSpec,
    InboxStore,
    RefusedFile,
    ScanReport,
    TakenFile,
)
from triggers.inbox.stability import Look, Seen, is_overdue, observe
from triggers.inbox.walk import Found

MAX_BATCH_FILES = 1000
MAX_BATCH_BYTES = 16 * 1024 * 1024
MISSING_RETRY_S = 5.0
VANISHED_RETRY_S = 0.5
SAID_LINES = 20

_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


def scan_once(
    spec: InboxSpec,
    store: InboxStore,
    now: float,
    memory: InboxMemory | None = None,
    *,
    moved_in: frozenset[str] = frozenset(),
) -> ScanReport:
    """Scan one inbox and take what is finished. ``moved_in``: files that a watcher saw renamed into place.

    Without ``memory`` nothing is known of earlier scans: what is not stable by its ctime or a lease waits.
    Raises what makes the store unusable (StoreRefused and SQLite's own errors but a full disk or a busy file).
    """
    scan = _Scan(spec, store, now, memory if memory is not None else InboxMemory(), moved_in)
    return scan.run()


@dataclass
class _Scan:
    spec: InboxSpec
    store: InboxStore
    now: float
    memory: InboxMemory
    moved_in: frozenset[str]
    taken: list[TakenFile] = field(default_factory=list)
    refused: list[RefusedFile] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    due: list[float] = field(default_factory=list)
    kept: int = 0
    closed: str = ""
    trouble: str = ""
    watched_late: bool = False

    def run(self) -> ScanReport:
        if self.now < self.memory.resume_at <= self.now + BACKOFF_S:
            return ScanReport(self.spec.queue, next_at=self.memory.resume_at)
        problems = Problems(self.store, self.spec.queue, self.memory)
        listing, missing = None, ""
        try:
            self.store.db.refuse_if_gone()  # without the notes of what was seen, an inbox would be made anew
            found = place.look(self.spec.folder, self.store.state_dir, self.spec.queue)
            if isinstance(found, place.Missing):
                missing = found.why
                self.due.append(self.now + MISSING_RETRY_S)
                problems.stand("missing", f"{shown(os.fspath(self.spec.folder))} is {missing}", now=self.now)
            else:
                self.memory.place = found
                listing = self._settle_all()
                if self.watched_late:
                    late.remember(self.memory, self._late_note)
                problems.settle("missing", now=self.now)
                problems.settle("unusable", now=self.now)
                problems.settle("disk", now=self.now)
                problems.tell("permission", self.closed, now=self.now)
                problems.tell("unstable", self._overdue(), now=self.now)
                self.memory.said = self.memory.said if self.kept else ""
        except FileNotFoundError:
            self.due.append(
                self.now + VANISHED_RETRY_S
            )  # something vanished under the scan: the next look says what
        except BenchTaken:
            self._say_once("another Shiftwork is moving files here; waiting for it")
            self.due.append(self.now + MISSING_RETRY_S)
        except (StoreBusy, sqlite3.OperationalError, OSError) as error:
            self._back_off(error)
        self.said += problems.said
        return self._report(listing, missing)

    @property
    def _late_note(self) -> Path:
        return self.store.state_dir / "late" / self.spec.queue

    def _settle_all(self) -> walk.Listing:
        with Bench(self.spec.folder) as bench:
            if bench.open(create=False):
                self._settle(bench, bench.recover())
            listing = walk.walk(self.spec.folder, self.spec.ignore)
            if listing.closed:
                folder, why = listing.closed[0]
                self.closed = f"{shown(folder)}: {why}"
            take, refuse = self._judge_all(listing)
            late.recall(self.memory, self._late_note, now=self.now)
            again = late.changed(self.memory, now=self.now)
            self.due += late.due(self.memory)
            if not (take or refuse or again):
                return listing
            bench.open(create=True)
            settle.check_folders(self.spec.folder)
            self._refuse_all(bench, refuse)
            take = self._within_room(take)
            for batch in _batches(take):
                self._settle(bench, self._claim(bench, batch))
            self._settle(bench, late.claim_again(bench, again))
            self.due += late.due(self.memory)
        return listing

    def _judge_all(
        self, listing: walk.Listing
    ) -> tuple[list[tuple[Found, str]], list[tuple[Found, InputRefused]]]:
        take: list[tuple[Found, str]] = []
        refuse: list[tuple[Found, InputRefused]] = []
        seen_now: dict[str, Seen] = {}
        for found in listing.files:
            unseen = judge.refused_unseen(found)
            if unseen is not None:
                refuse.append((found, unseen))
                continue
            seen_now[found.file] = self._observe(found)
            match self._verdict(found, seen_now[found.file]):
                case judge.Take(ground):
                    take.append((found, ground))
                case judge.Wait(until_at):
                    self.waiting.append(found.file)
                    self.due.append(until_at)
                case judge.Denied(why):
                    self._keep_closed(found.file, why)
                case InputRefused() as why:
                    refuse.append((found, why))
        self.memory.seen = seen_now
        self.memory.returned &= seen_now.keys()
        return take, refuse

    def _observe(self, found: Found) -> Seen:
        # Only this machine's own clock makes a ctime comparable with ``now``.
        local = self.memory.place is not None and not self.memory.place.silent
        changed_at = found.status.st_ctime_ns / 1e9 if local else None
        before = self.memory.seen.get(found.file)
        return observe(before, Look.of(found.status), now=self.now, changed_at=changed_at)

    def _verdict(self, found: Found, seen: Seen) -> judge.Verdict:
        moved_in = found.file in self.moved_in and found.file not in self.memory.returned
        peek = judge.Peek()
        if seen.look.size:
            peek = judge.peek(found, want_lease=self.spec.immediate and not moved_in)
        return judge.judge(seen, peek, self.spec, now=self.now, moved_in=moved_in)

    def _within_room(self, take: list[tuple[Found, str]]) -> list[tuple[Found, str]]:
        if not take:
            return take
        room = max(self.store.intake.room(self.spec.queue, self.spec.cap), 0)
        if len(take) > room:
            self._keep_full(len(take) - room)
        return take[:room]

    def _claim(self, bench: Bench, batch: Sequence[tuple[Found, str]]) -> list[Claimed]:
        return [
            one
            for one in (self._claim_one(bench, found, ground) for found, ground in batch)
            if one is not None
        ]

    def _claim_one(self, bench: Bench, found: Found, ground: str) -> Claimed | None:
        try:
            return bench.claim(found, ground)
        except StillWritten:
            self._wait_again(found.file)
        except (FileNotFoundError, NameTaken):
            return None
        except OSError as error:
            if error.errno in _DISK:
                raise
            self._keep_closed(found.file, f"cannot be moved: {error.strerror}")
        return None

    def _settle(self, bench: Bench, claimed: Sequence[Claimed]) -> None:
        """Hand claimed files in, in one commit, and move each to where it belongs."""
        if not claimed:
            return
        try:
            good, bad = self._read_all(bench, claimed)
            for one, taken in self._hand_in(good):
                archived = bench.archive(one.claimed, taken, stamp=_stamp(self.now))
                self.watched_late |= late.watch(self.memory, one, archived, now=self.now)
                self.taken.append(TakenFile(one.claimed.file, taken))
                self.memory.seen.pop(one.claimed.file, None)
            self._refuse(bench, bad)
        finally:
            self._put_back(bench, claimed)

    def _put_back(self, bench: Bench, claimed: Sequence[Claimed]) -> None:
        """What is not settled goes back to the inbox; what cannot stays in .work, where the next scan begins."""
        for one in claimed:
            if one.path in bench.claimed:
                self.memory.returned.add(one.file)
                with suppress(OSError):
                    bench.put_back(one)

    def _read_all(self, bench: Bench, claimed: Sequence[Claimed]) -> tuple[list[settle.Read], list[Refusal]]:
        good: list[settle.Read] = []
        bad: list[Refusal] = []
        for one in claimed:
            try:
                good.append(settle.read(one, self.spec))
            except InputRefused as why:
                bad.append(Refusal(one.file, one.path, why, recovered=one.ground == RECOVERED))
            except settle.NotFinished:
                self._wait_again(one.file)
            except FileNotFoundError:
                bench.claimed.pop(one.path, None)
            except OSError as error:
                self._keep_closed(one.file, f"cannot be read: {error.strerror}")
        return good, bad

    def _hand_in(self, good: Sequence[settle.Read]) -> Iterator[tuple[settle.Read, Taken]]:
        """One commit for all, or for as many as the queue has room for (halves, until the rest is one too many)."""
        if not good:
            return
        caps = {self.spec.queue: self.spec.cap}
        try:
            batch = [one.handed for one in good]
            yield from zip(
                good, intake.hand_in(self.store.intake, batch, now=self.now, caps=caps), strict=True
            )
        except CapReached:
            if len(good) == 1:
                self._keep_full(1)
                return
            half = len(good) // 2
            yield from self._hand_in(good[:half])
            yield from self._hand_in(good[half:])

    def _refuse_all(self, bench: Bench, refuse: Sequence[tuple[Found, InputRefused]]) -> None:
        """Refuse what needs no reading, by way of .work: what cannot be moved is known before it is told."""
        claimed: list[Claimed] = []
        refusals: list[Refusal] = []
        for found, why in refuse:
            one = self._claim_one(bench, found, REFUSED)
            if one is not None:
                claimed.append(one)
                refusals.append(Refusal(one.file, one.path, why))
        try:
            self._refuse(bench, refusals)
        finally:
            self._put_back(bench, claimed)

    def _refuse(self, bench: Bench, refusals: Sequence[Refusal]) -> None:
        for one, moved in settle.refuse(self.store, self.spec, refusals, now=self.now):
            if moved is None:
                continue
            bench.claimed.pop(one.path, None)
            self.memory.seen.pop(one.file, None)
            self.refused.append(RefusedFile(one.file, one.why.rule, str(one.why), moved))
            self._say(f"rejected {shown(one.file)}: {one.why}")

    def _wait_again(self, file: str) -> None:
        self.waiting.append(file)
        self.due.append(self.now + max(self.spec.stable_for_s, 0.1))

    def _keep_closed(self, file: str, why: str) -> None:
        self.kept += 1
        self.closed = self.closed or f"{shown(file)} {why}"

    def _keep_full(self, count: int) -> None:
        self.kept += count
        self.due.append(self.now + BACKOFF_S)
        self._say_once("the queue holds as many open items as max_waiting lets it; files stay in the inbox")

    def _back_off(self, error: StoreBusy | sqlite3.OperationalError | OSError) -> None:
        """Try again in a minute; an error of a store that is neither busy nor full goes on up."""
        text = shown(str(error))
        if isinstance(error, OSError):
            text = f"{shown(str(error.filename or self.spec.folder))}: {error.strerror}"
            kind = "disk" if error.errno in _DISK else "unusable"
            with suppress(StoreBusy, sqlite3.OperationalError):  # the store's own trouble is told by itself
                Problems(self.store, self.spec.queue, self.memory).stand(kind, text, now=self.now)
        elif not intake.passes(error):
            raise error
        self.kept += 1
        self.trouble = text
        self.memory.resume_at = self.now + BACKOFF_S
        self.due = [self.memory.resume_at]
        self._say_once(f"{text}; files stay in the inbox, next try in 60 s")

    def _overdue(self) -> str:
        for file in self.waiting:
            seen = self.memory.seen.get(file)
            if seen is not None and is_overdue(seen, now=self.now):
                return f"{shown(file)} is still being written after more than an hour"
        return ""

    def _say(self, text: str) -> None:
        if len(self.said) < SAID_LINES:
            self.said.append(f"{self.spec.queue}: {text}")

    def _say_once(self, text: str) -> None:
        if self.memory.said != text:
            self.memory.said = text
            self._say(text)

    def _report(self, listing: walk.Listing | None, missing: str) -> ScanReport:
        return ScanReport(
            queue=self.spec.queue,
            taken=tuple(self.taken),
            refused=tuple(self.refused),
            waiting=tuple(self.waiting),
            ignored=dict(listing.ignored) if listing is not None else {},
            kept=self.kept,
            missing=missing,
            trouble=self.trouble,
            said=tuple(self.said),
            next_at=min(self.due, default=None),
            folders=tuple(listing.folders) if listing is not None else (),
        )


def _batches(take: Sequence[tuple[Found, str]]) -> Iterator[list[tuple[Found, str]]]:
    """Portions of one commit each: bounded in files and in bytes held in memory."""
    batch: list[tuple[Found, str]] = []
    size = 0
    for found, ground in take:
        if batch and (len(batch) == MAX_BATCH_FILES or size + found.status.st_size > MAX_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((found, ground))
        size += found.status.st_size
    if batch:
        yield batch


def _stamp(now: float) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
