"""Accepting deliveries: one thread takes all that wait, checks and reads them, and stores them in one commit.

    waiting ──taken──▶ refused (401, 400)                       nothing was reserved for it
                └────▶ stored ──commit──▶ accepted (202), the same again (200)
                          └──cannot──▶ busy (503): nothing of it is stored, the sender tries again

While the thread waits for its turn to write, more deliveries come; it takes those, too, once the turn is its own, so
that waiting makes the batch larger instead of the queue longer. Checking a signature and parsing happen here, off the
event loop. Answers go back to the loop together. A delivery is only called accepted after its commit (FIELD 15).
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from store.contract import IntakePart
from store.errors import CapReached, InputRefused, StoreBusy, StoreRefused
from store.intake import Handed, Taken
from triggers import intake
from triggers.webhooks import reading, signatures
from triggers.webhooks.hook import Hook

MAX_WAITING = 1000
MAX_WAITING_BYTES = 64 << 20
MAX_BATCH = 256
MAX_BATCH_BYTES = 4 << 20
MAX_LATE_BYTES = 64 << 10
"""What joins a batch while the write gate is held must be read quickly."""
GATE_WAIT_S = 5.0
BUSY_AGAIN_S = 5
DISK_AGAIN_S = 60
FULL_AGAIN_S = 1

Wake = Callable[[Sequence[str], str], None]


class Delivery(NamedTuple):
    """A request's body and those of its headers that matter, names in lower case. ``came_at``: UTC epoch seconds."""

    hook: Hook
    headers: Mapping[str, str]
    body: bytes
    came_at: float


class Answer(NamedTuple):
    """What the sender is told. ``word``: accepted, duplicate, pong, or the broken rule. ``again_s``: try after."""

    status: int
    word: str
    message: str = ""
    item: str = ""
    again_s: int | None = None


class _Ticket(NamedTuple):
    delivery: Delivery
    future: asyncio.Future[Answer]


class Accepting:
    """See the module's head. Everything but the thread itself is called in the event loop.

    ``wake`` is told the queues that got something new, and which webhook brought it. ``fatal`` gets an error after
    which the store must not be written any more. ``caps``: as ``hand_in`` takes them, set anew by a reload.
    """

    def __init__(
        self,
        store: IntakePart,
        caps: Mapping[str, int],
        *,
        wake: Wake,
        fatal: Callable[[BaseException], object],
        said: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.caps = caps
        self._store = store
        self._wake, self._fatal, self._said, self._clock = wake, fatal, said, clock
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Ticket] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="accept", daemon=True)
        self._thread.start()

    async def answer(self, delivery: Delivery) -> Answer:
        """What became of one delivery; it is durable when this says accepted."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        with self._changed:
            full = len(self._waiting) >= MAX_WAITING or self._bytes + len(delivery.body) > MAX_WAITING_BYTES
            if self._closing or full:
                why = "stopping" if self._closing else "too many deliveries wait already"
                return Answer(503, "busy", f"{why}; nothing was stored", again_s=FULL_AGAIN_S)
            self._waiting.append(_Ticket(delivery, future))
            self._bytes += len(delivery.body)
            self._changed.notify()
        return await future

    async def close(self) -> None:
        """Settle what waits, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        await self._loop.run_in_executor(None, self._thread.join)

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
            batch = self._taken(MAX_BATCH, MAX_BATCH_BYTES, at_least=1)
            if not batch:
                return
            self._settle(batch)

    def _taken(self, count: int, size: int, *, at_least: int) -> list[_Ticket]:
        """The oldest that wait, at most ``count`` and ``size`` bytes of them, beyond ``at_least``."""
        found: list[_Ticket] = []
        with self._changed:
            while self._waiting and len(found) < count:
                size -= len(self._waiting[0].delivery.body)
                if size < 0 and len(found) >= at_least:
                    break
                found.append(self._waiting.popleft())
                self._bytes -= len(found[-1].delivery.body)
        return found

    def _settle(self, batch: Sequence[_Ticket]) -> None:
        good = self._read(batch)
        if not good:
            return

        def waiting() -> list[Handed]:
            good.extend(self._read(self._taken(MAX_BATCH - len(good), MAX_LATE_BYTES, at_least=0)))
            return [handed for _, handed in good]

        try:
            outcomes = self._commit(waiting)
        except Exception as error:  # noqa: BLE001 - whatever it was, everybody who waits is answered
            if _is_the_stores(error) or len(good) == 1:
                self._tell([(ticket, self._failed(error)) for ticket, _ in good])
            else:
                self._each_alone(good)
            return
        self._tell([(ticket, _outcome(one)) for (ticket, _), one in zip(good, outcomes, strict=True)])

    def _each_alone(self, good: Sequence[tuple[_Ticket, Handed]]) -> None:
        """One of them is poison: it must not take the others with it."""
        for ticket, handed in good:
            try:
                answer = _outcome(self._commit(partial(list, (handed,)))[0])
            except Exception as error:  # noqa: BLE001 - this one's own
                answer = self._failed(error)
            self._tell([(ticket, answer)])

    def _commit(self, waiting: Callable[[], list[Handed]]) -> list[Taken | CapReached]:
        return self._store.hand_in_waiting(waiting, now=self._clock(), caps=self.caps, wait_s=GATE_WAIT_S)

    def _read(self, batch: Sequence[_Ticket]) -> list[tuple[_Ticket, Handed]]:
        """The good ones, as they are handed in; the others are answered."""
        good: list[tuple[_Ticket, Handed]] = []
        answered: list[tuple[_Ticket, Answer]] = []
        for ticket in batch:
            try:
                one: Handed | Answer = read(ticket.delivery)
            except Exception as error:  # noqa: BLE001 - a fault of ours on one: the others do not wait for ever
                one = self._failed(error)
            if isinstance(one, Handed):
                good.append((ticket, one))
            else:
                answered.append((ticket, one))
        if answered:
            self._tell(answered)
        return good

    def _failed(self, error: Exception) -> Answer:
        if isinstance(error, StoreRefused):
            self._later(self._fatal, error)
            return Answer(503, "store", "the store cannot be used; nothing was stored", again_s=DISK_AGAIN_S)
        if isinstance(error, StoreBusy):
            return Answer(503, "busy", "the store is busy; nothing was stored", again_s=BUSY_AGAIN_S)
        if intake.passes(error) or isinstance(error, OSError):
            return Answer(
                503, "disk", "the store cannot be written; nothing was stored", again_s=DISK_AGAIN_S
            )
        self._later(self._said, f"webhook: {type(error).__name__}: {error}")
        return Answer(500, "fault", f"Shiftwork failed on it ({type(error).__name__}); nothing was stored")

    # ---------------------------------------------------------------- back to the loop

    def _tell(self, answered: Sequence[tuple[_Ticket, Answer]]) -> None:
        self._later(self._deliver, answered)

    def _deliver(self, answered: Sequence[tuple[_Ticket, Answer]]) -> None:
        fresh: dict[str, str] = {}
        for (delivery, future), answer in answered:
            if not future.done():
                future.set_result(answer)
            if answer.status == 202:
                fresh[delivery.hook.queue] = delivery.hook.name
        if fresh:
            self._wake(list(fresh), f"webhook {next(iter(fresh.values()))}")

    def _later(self, do: Callable[..., object], *args: object) -> None:
        with suppress(RuntimeError):  # the loop has ended, and everybody who waited with it
            self._loop.call_soon_threadsafe(do, *args)


def read(delivery: Delivery) -> Handed | Answer:
    """Check who sent it, then read it. Pure, but for the fresh key of a delivery that names nothing."""
    hook, headers = delivery.hook, delivery.headers
    try:
        signatures.verify(hook.scheme, hook.secrets, headers, delivery.body, now=delivery.came_at)
        event = signatures.event_of(hook.scheme, headers)
        if event == "ping":
            return Answer(200, "pong", f"webhook {hook.name} is set up; a ping is no work")
        return reading.read(
            hook,
            delivery.body,
            delivery=signatures.delivery_id(hook.scheme, headers),
            event=event,
            fresh=f"{hook.name}:-{secrets.token_hex(12)}",
        )
    except signatures.NotSigned as refusal:
        return Answer(401, refusal.rule, str(refusal))
    except InputRefused as refusal:
        return Answer(400, refusal.rule, str(refusal))


def _outcome(one: Taken | CapReached) -> Answer:
    if isinstance(one, CapReached):
        return Answer(503, "full", str(one), again_s=DISK_AGAIN_S)
    if one.outcome == "duplicate":
        return Answer(200, "duplicate", "it is there already", item=one.id)
    return Answer(202, "accepted", "" if one.outcome == "new" else "the item is revised", item=one.id)


def _is_the_stores(error: Exception) -> bool:
    """Whether no delivery of the batch can be at fault."""
    return isinstance(error, StoreRefused | StoreBusy | OSError | sqlite3.OperationalError)
