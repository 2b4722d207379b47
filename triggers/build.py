"""From the configuration to running triggers: the one place that knows both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from triggers import config
from triggers.files import FilesTrigger, Tuning
from triggers.inbox.spec import InboxSpec, InboxStore
from triggers.protocol import Trigger
from triggers.ticks import TimerSpec

if TYPE_CHECKING:
    from triggers.hosting import HostedTrigger

Tables = Mapping[str, object]
"""``[triggers.NAME]``: models of ``config.TRIGGERS``, by name."""


def inbox_specs(queues: Mapping[str, config.InboxSettings], caps: Mapping[str, int]) -> list[InboxSpec]:
    """The inbox of each queue that has one, in the order of the configuration; ``caps`` as ``hand_in`` takes them."""
    return [
        InboxSpec(
            queue=name,
            folder=queue.inbox,
            cap=caps[name],
            stable_for_s=queue.stable_for,
            immediate=queue.inbox_immediate,
            ignore=queue.ignore,
            max_bytes=queue.max_bytes,
        )
        for name, queue in queues.items()
        if queue.inbox is not None
    ]


def tunings(tables: Tables) -> dict[str, Tuning]:
    """Queue → how its inbox is watched, where a table of kind ``files`` says so."""
    return {
        queue: Tuning(watch=table.watch, poll_every_s=table.poll_every, rescan_every_s=table.rescan_every)
        for table in tables.values()
        if isinstance(table, config.FilesTrigger)
        for queue in table.queues
    }


def timer_specs(tables: Tables) -> list[TimerSpec]:
    """Every table of kind ``timer``."""
    return [
        TimerSpec(
            name=name,
            queues=table.queues,
            every=table.every,
            cron=table.cron,
            timezone=table.timezone,
            title=table.item.title if table.item is not None else None,
            body=table.item.body if table.item is not None else None,
        )
        for name, table in tables.items()
        if isinstance(table, config.TimerTrigger)
    ]


def triggers(
    queues: Mapping[str, config.InboxSettings],
    tables: Tables,
    *,
    caps: Mapping[str, int],
    store: InboxStore,
    executor: Executor,
    said: Callable[[str], None],
) -> list[Trigger]:
    """What a daemon starts: the files trigger if there is an inbox, the timers if there are some."""
    found: list[Trigger] = []
    tuned = tunings(tables)
    inboxes = [(spec, tuned.get(spec.queue, Tuning())) for spec in inbox_specs(queues, caps)]
    if inboxes:
        found.append(FilesTrigger(inboxes, store=store, executor=executor, said=said))
    timers = timer_specs(tables)
    if timers:
        from triggers.timer import TimerTrigger  # brings the scheduler's library in

        found.append(TimerTrigger(timers, state_dir=store.state_dir, executor=executor, said=said))
    return found


def hosted(
    name: str,
    queues: Mapping[str, config.InboxSettings],
    tables: Tables,
    *,
    caps: Mapping[str, int],
    folder: Path,
    state_dir: Path,
    said: Callable[[str], None],
    earlier: Thread | None = None,
) -> HostedTrigger:
    """The plug-in trigger of ``[triggers.NAME]``.

    ``caps`` as ``hand_in`` takes them; ``folder``: the configuration's; ``earlier``: its thread of before, left behind.
    """
    from triggers.hosting import HostedTrigger, Room  # only where there is a plug-in

    table = tables[name]
    if not isinstance(table, config.PluginTrigger):
        raise TypeError(f"[triggers.{name}] is no plug-in")
    room = {queue: Room(queues[queue].max_bytes, caps[queue]) for queue in table.queues}
    return HostedTrigger(
        name,
        table,
        folder=folder,
        state=state_dir / "triggers" / name,
        room=room,
        said=said,
        earlier=earlier,
    )


def plugin_names(tables: Tables) -> list[str]:
    """Every table whose kind a plug-in brings."""
    return [name for name, table in tables.items() if isinstance(table, config.PluginTrigger)]
