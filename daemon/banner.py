"""The first lines of ``shiftwork run``: what was read, where things are, what to do next."""

from __future__ import annotations

from collections.abc import Iterator

from daemon.cli import cells, screen
from daemon.cli.version import VERSION
from daemon.config import Config
from daemon.sections import QueueSettings
from daemon.terminal import path_words
from memory import globs
from store.opening import KNOWN_VERSION
from store.sqlite import SqliteStore
from store.text import shown


def banner(config: Config, store: SqliteStore, url: str | None = None) -> Iterator[str]:
    """Lines for the terminal, at most 80 columns where paths allow it. ``url``: where we listen, if we do."""
    yield (
        f"shiftwork {VERSION} · {path_words(config.file)} · state {path_words(config.state_dir)} "
        f"(schema {KNOWN_VERSION})"
    )
    width = max(len(name) for name in config.queues)
    for name, queue in config.queues.items():
        yield f"{name:{width}}  {_queue_words(queue, config)}"
    if url is not None:
        yield from http_lines(config, url)
    for name, trigger in config.triggers.items():
        yield f"trigger {name}  {trigger.kind}  → {', '.join(trigger.queues)}"
    open_items = store.views.left()["open"]
    if open_items:
        yield f"{screen.count(open_items, 'open item')} from before"
    for name, count in store.views.open_by_queue().items():
        if name not in config.queues:
            yield f"{shown(name)}  not in the configuration: nothing takes its {screen.count(count, 'open item')}"
    inbox = next((queue.inbox for queue in config.queues.values() if queue.inbox is not None), None)
    add = screen.command("add", "-", config=config.file)
    if len(config.queues) > 1:
        add += " --queue NAME"
    drop = f"Drop a file into {screen.quoted(inbox)}, or:  " if inbox is not None else "Hand something in:  "
    line = f'{add} <<< "How do I resolve a flagged item?"'
    if len(drop) + len(line) > cells.WIDTH:
        yield drop.rstrip()
        drop = "  "
    yield drop + line


def http_lines(config: Config, url: str) -> Iterator[str]:
    """Where deliveries are taken, or that only health is told."""
    for name, hook in config.webhooks.items():
        yield f"webhook {name}  POST {url}/hooks/{name}  → {hook.queue}  ({hook.scheme})"
    if not config.webhooks:
        yield f"http  {url}  health only: there is no webhook"


def _queue_words(queue: QueueSettings, config: Config) -> str:
    inbox = f"inbox {path_words(queue.inbox)}" if queue.inbox is not None else "no inbox"
    parts = [inbox, f"decider {config.deciders[queue.decider].kind}"]
    if queue.sources:
        parts.append(screen.count(globs.count(queue.sources), "source"))
    return "   ".join(parts)
