"""Runs a plug-in trigger: foreign code, in a thread and an event loop of its own, so that it blocks nobody.

    start   a new thread: import, settings, make, ``start``; over within ``START_S``
    run     ``hand_in`` and ``wake`` cross over to the daemon's loop; what is handed in is checked by ``intake``
    stop    ``stop`` and the cancelling of all it left, over within ``STOP_S``; then the thread is left behind

Whatever the plug-in does becomes one thing here: ``failed`` with PluginBroken and its words. Only a refused store is
passed on as it is, since the daemon must end with it. A thread that was left behind can neither wake nor hand in.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from store import plugins
from store.errors import InputRefused, PluginBroken, StoreRefused
from store.intake import Handed, Taken
from store.text import shown
from triggers import intake, protocol
from triggers.config import PluginTrigger
from triggers.intake import passes
from triggers.plugin import Given, Item

START_S = 15.0
STOP_S = 5.0
CANCEL_S = 1.0
RETRY_S = 60.0
BATCH_MAX = 1000
DELIVERY_MAX = 120
LINE_CHARS = 400


class Room(NamedTuple):
    """What a queue takes: the most bytes of a body, the most open items."""

    max_bytes: int
    cap: int


class HostedTrigger:
    """One table ``[triggers.NAME]`` of a plug-in's kind. ``room``: what each of its queues takes.

    ``folder`` is the configuration's, ``state`` the trigger's own, made when it is needed.
    """

    def __init__(
        self,
        name: str,
        table: PluginTrigger,
        *,
        folder: Path,
        state: Path,
        room: Mapping[str, Room],
        said: Callable[[str], None],
        earlier: threading.Thread | None = None,
    ) -> None:
        self.name = name
        self._table, self._folder, self._room, self._said = table, folder, room, said
        self._state, self._earlier = state, earlier
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # the plug-in's
        self._home: asyncio.AbstractEventLoop | None = None  # the daemon's
        self._main: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()
        self._closed = self._started = False
        self._held_back = False
        self._failed: asyncio.Future[None] | None = None
        self._wake: protocol.Wake | None = None
        self._hand_in: protocol.HandIn | None = None
        self.proved = asyncio.Event()
        """Set when it handed something in: it does what it is for."""

    @property
    def failed(self) -> asyncio.Future[None]:
        """Done with PluginBroken when it cannot go on."""
        if self._failed is None:
            self._failed = asyncio.get_running_loop().create_future()
        return self._failed

    @property
    def left_behind(self) -> threading.Thread | None:
        """Its thread, when that did not end in time."""
        return self._thread if self._thread is not None and self._thread.is_alive() else None

    async def start(self, wake: protocol.Wake, hand_in: protocol.HandIn) -> None:
        """Returns when the plug-in has started, or cannot: then ``failed`` is done. Raises nothing."""
        self._wake, self._hand_in = wake, hand_in
        self._home = asyncio.get_running_loop()
        if self._earlier is not None and self._earlier.is_alive():
            self._fail(
                PluginBroken("it did not stop when it was told to, and still runs; restart the daemon")
            )
            return
        started: asyncio.Future[None] = self._home.create_future()
        self._thread = threading.Thread(
            target=self._live, args=(started,), name=f"trigger {self.name}", daemon=True
        )
        self._thread.start()
        await asyncio.wait({started, self.failed}, timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
        if not started.done() and not self.failed.done():
            self._fail(PluginBroken(f"it did not start within {START_S:g} s"))
        self._started = started.done()
        started.cancel()

    async def stop(self) -> None:
        """Nothing is handed in and nobody is woken after this. Raises nothing, waits no longer than it must."""
        self._there(self._asked.set)
        if not (self._started and await self._ended_within(STOP_S)):
            self._there(self._cancel)
            if not await self._ended_within(CANCEL_S):
                self._said(f"trigger {self.name} does not stop; it is left behind and can do nothing more")
        self._closed = True
        if not self.failed.done():
            self.failed.cancel()

    # ---------------------------------------------------------------- on the daemon's side

    async def _ended_within(self, seconds: float) -> bool:
        home, thread = asyncio.get_running_loop(), self._thread
        end = home.time() + seconds
        while thread is not None and thread.is_alive():
            if home.time() >= end:
                return False
            await asyncio.sleep(0.01)
        return True

    def _there(self, call: Callable[[], object]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # its loop has ended
                self._loop.call_soon_threadsafe(call)

    def _cancel(self) -> None:
        if self._main is not None:
            self._main.cancel()

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)

    def _woken(self, queues: Sequence[str], why: str) -> None:
        if not self._closed and self._wake is not None:
            self._wake(queues, why=why)

    async def _store(self, batch: Sequence[Handed]) -> list[Taken]:
        if self._closed or self._hand_in is None:
            raise PluginBroken("it was stopped")
        try:
            taken = await self._hand_in(batch)
        except StoreRefused as refused:
            self._fail(refused)
            raise
        self.proved.set()
        fresh = {one.queue for one, got in zip(batch, taken, strict=True) if got.outcome != "duplicate"}
        if fresh:
            self._woken(sorted(fresh), f"trigger {self.name}")
        return taken

    # ---------------------------------------------------------------- on the plug-in's side

    def _home_calls(self, call: Callable[..., object], *arguments: Any) -> None:
        if self._home is not None:
            with suppress(RuntimeError):  # the daemon has ended
                self._home.call_soon_threadsafe(call, *arguments)

    def _live(self, started: asyncio.Future[None]) -> None:
        """The thread's whole life."""
        self._loop = loop = asyncio.new_event_loop()
        try:
            self._main = loop.create_task(self._host(started))
            loop.run_until_complete(self._main)
        except asyncio.CancelledError:
            pass
        except (StoreRefused, PluginBroken) as error:
            self._home_calls(self._fail, error)
        except BaseException as error:  # noqa: BLE001 - foreign code may do anything, sys.exit() too
            broken = PluginBroken(plugins.said(error))
            broken.__cause__ = error
            self._home_calls(self._fail, broken)
        finally:
            self._end(loop)

    async def _host(self, started: asyncio.Future[None]) -> None:
        trigger = self._made()
        await trigger.start(self._wake_from_there, self._hand_in_from_there)
        self._home_calls(_settle, started)
        failed = getattr(trigger, "failed", None)
        error = await self._asked_or(failed if isinstance(failed, asyncio.Future) else None)
        await trigger.stop()
        if error is not None:
            raise error

    async def _asked_or(self, failed: asyncio.Future[Any] | None) -> BaseException | None:
        """Wait until it is to stop, or has failed: with what."""
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait({asked, failed} if failed else {asked}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done() or failed is None:
                return None
            if failed.cancelled():
                return PluginBroken("it cancelled itself")
            if failed.exception() is None:
                await asked  # it has nothing more to do
            return failed.exception()
        finally:
            asked.cancel()

    def _made(self) -> Any:
        plugin = plugins.load("triggers", self._table.kind)
        try:
            settings = plugins.settings_of(plugin, self._table.options, self._folder)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise PluginBroken(f"{plugin.offer.words()} refuses {where}: {first['msg']}") from error
        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
        given = Given(self.name, self._table.queues, settings, self._folder, self._state, self._say)
        trigger = plugin.make(given)
        for call in ("start", "stop"):
            if not callable(getattr(trigger, call, None)):
                raise PluginBroken(
                    f"{plugin.offer.words()}: {plugin.offer.target} makes no trigger: no {call}()"
                )
        return trigger

    def _say(self, line: str) -> None:
        self._home_calls(self._said, f"trigger {self.name}: {shown(str(line), LINE_CHARS)}")

    def _wake_from_there(self, why: str = "") -> None:
        words = f"trigger {self.name}" + (f": {shown(str(why), 80)}" if why else "")
        self._home_calls(self._woken, self._table.queues, words)

    async def _hand_in_from_there(self, items: Sequence[Item]) -> list[Taken]:
        """See ``triggers.plugin.HandIn``."""
        batch = drafted(items, name=self.name, room=self._room)
        while True:
            try:
                taken = await self._across(batch) if batch else []
            except Exception as error:
                if not passes(error):
                    raise
                if not self._held_back:
                    self._held_back = True
                    self._say(f"{error}; tried again every minute")
                await asyncio.sleep(RETRY_S)
            else:
                self._held_back = False
                return taken

    async def _across(self, batch: Sequence[Handed]) -> list[Taken]:
        if self._home is None or self._closed:
            raise PluginBroken("it was stopped")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._store(batch), self._home))

    @staticmethod
    def _end(loop: asyncio.AbstractEventLoop) -> None:
        """Cancel all that the plug-in left in its loop. One that does not let go is the daemon's to leave behind."""
        with suppress(BaseException):
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        with suppress(BaseException):
            loop.close()


def drafted(items: Sequence[Item], *, name: str, room: Mapping[str, Room]) -> list[Handed]:
    """What a plug-in hands in, checked by the rules of every door. Raises InputRefused that names the item."""
    if not isinstance(items, list | tuple) or not all(isinstance(one, Item) for one in items):
        raise InputRefused("hand_in takes a list of Item", rule="bad-value")
    if len(items) > BATCH_MAX:
        raise InputRefused(f"{len(items)} items at once; at most {BATCH_MAX}", rule="bad-value")
    batch = []
    for number, item in enumerate(items, start=1):
        try:
            batch.append(_handed(item, name, room))
        except InputRefused as refused:
            raise InputRefused(f"item {number} of {len(items)}: {refused}", rule=refused.rule) from None
    for queue, count in Counter(one.queue for one in batch).items():
        if count > room[queue].cap:  # all or none: it would wait for ever
            raise InputRefused(
                f'{count} items at once for queue "{queue}", which holds at most {room[queue].cap} '
                "(max_waiting); hand in fewer at once",
                rule="bad-value",
            )
    return batch


def _handed(item: Item, name: str, room: Mapping[str, Room]) -> Handed:
    queue = item.queue or (next(iter(room)) if len(room) == 1 else "")
    if not isinstance(queue, str) or queue not in room:
        raise InputRefused(
            f'queue "{shown(str(queue), 60)}" is none of the trigger\'s: {", ".join(room)}',
            rule="bad-value",
        )
    if not isinstance(item.body, str) or not isinstance(item.delivery, str):
        raise InputRefused("body and delivery must be strings", rule="bad-value")
    if len(item.delivery) > DELIVERY_MAX or not item.delivery.isprintable():
        raise InputRefused(f"delivery: at most {DELIVERY_MAX} printable characters", rule="bad-value")
    try:
        body = intake.decoded(item.body.encode(), max_bytes=room[queue].max_bytes)
    except UnicodeEncodeError as error:
        raise InputRefused(
            f"not UTF-8: a lone surrogate at character {error.start}", rule="not-utf8"
        ) from None
    key = item.key if item.key is not None or not item.delivery else f"{name}:{item.delivery}"
    table = {
        "key": key,
        "title": item.title,
        "priority": item.priority,
        "not_before": item.not_before,
        "constraints": list(item.constraints),
    }
    draft = intake.from_table(table, body)
    return draft.handed(queue=queue, door=f"trigger {name}", name=name)._replace(delivery=item.delivery)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
