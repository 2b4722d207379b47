"""``shiftwork add`` and ``shiftwork inbox explain``: handing work in by hand, and what a dropped file waits for."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon.cli import light, reach, screen
from store import moments
from store.errors import ConfigProblem, InputRefused, NotFound, UsageProblem
from store.text import shown

if TYPE_CHECKING:
    from store.intake import Taken
    from triggers.intake import Draft

DEFAULT_CAP = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """FILE and what may be said about it."""
    parser.add_argument("file", metavar="FILE|-", help="a text or .json file; - reads standard input")
    parser.add_argument("--queue", metavar="Q", help="which queue (needed where there are several)")
    parser.add_argument("--title", help="instead of the first line")
    parser.add_argument("--key", help="the same key again is the same item; other content revises it")
    parser.add_argument("--priority", type=int, metavar="N", help="higher goes first (default 0)")
    parser.add_argument(
        "--not-before", metavar="WHEN", help="a time such as 2026-03-29T08:00:00Z, or 2h from now"
    )
    parser.add_argument("--force", action="store_true", help="make a new item even if it is there already")
    parser.add_argument("--json", action="store_true", help="for programs")


def add(args: argparse.Namespace) -> int:
    """Hand one thing in; works with the daemon down, and creates the store if there is none."""
    from triggers import intake
    from triggers.inbox.names import base_name

    places = light.places(args.config)
    queue = _queue(places, args.queue)
    max_bytes, cap = _limits(places, queue)
    now = time.time()
    name = "" if args.file == "-" else os.path.basename(args.file)
    draft = _with_options(
        intake.parse(_read(args.file, max_bytes), name=name, max_bytes=max_bytes), args, now
    )
    origin = "" if args.file == "-" else args.file
    with reach.writing(args, create=True) as (_, store):
        handed = draft.handed(queue=queue, door="cli", origin=origin, name=base_name(name) if name else "")
        taken = intake.hand_in(store.intake, [handed], now=now, caps={queue: cap}, force=args.force)[0]
        item = store.views.item(taken.id, now=now)
    if args.json:
        screen.json_out({"id": taken.id, "duplicate": taken.outcome == "duplicate", "state": item["state"]})
    else:
        _tell(taken, item, places, handed.name or taken.id, args)
    return 0


def inbox_explain_arguments(parser: argparse.ArgumentParser) -> None:
    """FILE."""
    parser.add_argument("file", metavar="FILE", help="a file in an inbox, whether it is there or not")


def inbox_explain(args: argparse.Namespace) -> int:
    """Say which rule applies to a file."""
    from daemon.config import load
    from triggers.build import inbox_specs
    from triggers.inbox.explain import explain

    config = load(light.find(args.config))
    specs = inbox_specs(config.queues, config.caps())
    for line in explain(Path(os.path.abspath(args.file)), specs, now=time.time()):
        screen.out(screen.copyable(line, config=config.file))
    return 0


def _queue(places: light.Places, given: str | None) -> str:
    names = sorted(places.queues)
    if given is not None:
        if given not in places.queues:
            raise NotFound(f'there is no queue "{shown(given, 60)}"; there are: {", ".join(names) or "none"}')
        return given
    if len(names) != 1:
        raise UsageProblem(f"say which queue with --queue: {', '.join(names) or 'none is configured'}")
    return names[0]


def _limits(places: light.Places, queue: str) -> tuple[int, int]:
    """The queue's max_bytes and max_waiting, from a file that nobody judged yet."""
    from store.units import parse_size
    from triggers.intake import MAX_BYTES

    table = places.data["queues"][queue]
    try:
        size = parse_size(table["max_bytes"]) if "max_bytes" in table else MAX_BYTES
        cap = table.get("max_waiting", DEFAULT_CAP)
        if isinstance(cap, bool) or not isinstance(cap, int):
            raise TypeError
    except (ValueError, TypeError, AttributeError):
        check = screen.command("check-config", config=places.file)
        raise ConfigProblem(
            f"{places.file}: [queues.{queue}] cannot be used as it is. See why:  {check}"
        ) from None
    return size, cap


def _read(file: str, max_bytes: int) -> bytes:
    """At most one byte more than is taken, so that the size rule can speak."""
    if file == "-":
        if sys.stdin.isatty():
            screen.note("reading from the terminal; end with Ctrl-D on an empty line")
        return sys.stdin.buffer.read(max_bytes + 1)
    from triggers.intake import too_large

    with open(file, "rb") as source:
        size = os.fstat(source.fileno()).st_size
        if size > max_bytes:
            raise too_large(size, max_bytes)
        return source.read(max_bytes + 1)


def _with_options(draft: Draft, args: argparse.Namespace, now: float) -> Draft:
    """What the command line says goes before what the file says."""
    from triggers import intake

    given: dict[str, Any] = {
        name: value for name in ("title", "key", "priority") if (value := getattr(args, name)) is not None
    }
    if args.not_before is not None:
        given["not_before"] = _when(args.not_before, now)
    try:
        checked = intake.from_table(given, draft.body)
    except InputRefused as refusal:
        raise UsageProblem(f"--{str(refusal).replace('not_before', 'not-before', 1)}") from None
    return draft._replace(**{name: getattr(checked, name) for name in given})


def _when(text: str, now: float) -> str:
    """A duration counts from now; anything else is judged like a time in front matter. Raises UsageProblem."""
    from store.units import parse_duration

    try:
        return moments.iso(now + parse_duration(text))
    except OverflowError:
        raise UsageProblem(f"--not-before {shown(text, 40)}: lies too far ahead") from None
    except ValueError:
        pass
    if not text[:4].isdecimal():
        raise UsageProblem(
            f'--not-before "{shown(text, 40)}" is neither a time like 2026-03-29T08:00:00Z nor one from now like 2h'
        )
    return text


def _tell(
    taken: Taken, item: dict[str, Any], places: light.Places, name: str, args: argparse.Namespace
) -> None:
    stale = "done; the new text is stored and its answer marked stale"
    words = {
        "new": f"{taken.id} is {item['state']} in queue {item['queue']}",
        "revision": f"{taken.id} is {'revised: sessions see the newest text' if item['state'] != 'done' else stale}",
        "duplicate": f"{taken.id} is there already ({item['state']}); nothing new was stored",
    }
    screen.out(words[taken.outcome])
    screen.out(f"See it:   {screen.command('show', taken.id, config=places.file)}")
    answer = _answer_file(item, places, name)
    if answer is not None:
        screen.out(f"Answer:   {screen.quoted(answer)}")
    if taken.outcome == "revision" and item["state"] == "done":
        screen.out(f"Decide anew:  {screen.command('retry', taken.id, config=places.file)}")
    if taken.outcome == "duplicate":
        file = "-" if args.file == "-" else screen.quoted(args.file)
        screen.out(f"As a new one:  {screen.command('add', file, '--force', config=places.file)}")


def _answer_file(item: dict[str, Any], places: light.Places, name: str) -> Path | None:
    """Where the answer is, or will be."""
    for paper in item["files"]:
        if paper["kind"] == "answer" and paper["path"]:
            return Path(paper["path"])
    outbox = places.queues[item["queue"]].outbox
    if outbox is None:
        return None
    plain = outbox / f"{name}.answer.md"
    return outbox / f"{name}.{item['id']}.answer.md" if os.path.lexists(plain) else plain
