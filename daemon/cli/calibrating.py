"""``shiftwork calibrate``: how often the extractive decider would be right on labelled questions of one queue."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from daemon.cli import light, reach, screen, shapes
from store.errors import InputRefused, NotFound, UsageProblem
from store.text import shown

if TYPE_CHECKING:
    from daemon.config import Config
    from sessions.calibrate import Calibration, Labelled
    from sessions.extract import Passage
    from store.search import Kind
    from store.sqlite import SqliteStore

MAX_BYTES = 64 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """QUEUE --data --target --json."""
    parser.add_argument("queue", metavar="QUEUE", type=reach.utf8, help="whose sources are asked")
    parser.add_argument(
        "--data",
        metavar="FILE",
        required=True,
        help='JSON Lines: {"question", "answers": [] if none, "source"?}',
    )
    parser.add_argument("--target", metavar="P", type=_share, help="the precision to reach (default 0.92)")
    parser.add_argument("--json", action="store_true", help="for programs, with every threshold")


def run(args: argparse.Namespace) -> int:
    """Measure and propose a threshold. Exit 1 for data that cannot be read, 3 for no such queue."""
    from daemon.config import load
    from sessions.calibrate import TARGET, calibrate, render

    config = load(light.find(args.config))
    if args.queue not in config.queues:
        names = ", ".join(config.queues)
        raise NotFound(f'there is no queue "{shown(args.queue, 60)}"; there is: {names}')
    rows = _rows(args.data)
    with reach.writing(args, create=True) as (_, store):
        ask = _counted(_retrieving(store, config, args.queue), len(rows))
        found = calibrate(rows, ask, target=args.target or TARGET)
    if args.json:
        shapes.out(_json(args.queue, found))
        return 0
    screen.out(render(found))
    _hints(config, args.queue)
    return 0


def _rows(name: str) -> list[Labelled]:
    from sessions.calibrate import read_rows

    with open(name, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InputRefused(f"{shown(name)}: larger than 64 MiB", rule="size")
    try:
        return read_rows(data.decode("utf-8-sig").split("\n"))
    except UnicodeDecodeError as error:
        raise InputRefused(f"{shown(name)}: not UTF-8 at byte {error.start}", rule="utf-8") from None
    except InputRefused as refused:
        raise InputRefused(f"{shown(name)}:\n{refused}", rule=refused.rule) from None


def _retrieving(store: SqliteStore, config: Config, queue: str) -> Callable[[str], Sequence[Passage]]:
    """Questions to passages as a session finds them, over the sources as they are on disk now."""
    from memory.retrieval import retrieve
    from memory.sources import refresh
    from sessions.extract import Passage

    policy = config.queues[queue]
    if not policy.sources:
        raise UsageProblem(f"[queues.{queue}] has no sources, so there is nothing to ask")
    now = time.time()
    refresh(store, queue, policy.sources, config.folder, now=now)
    if not store.sources.counts(queue)[1]:
        raise UsageProblem(
            f"the sources of [queues.{queue}] hold no passage: no file matches, or none is text"
        )

    kinds: tuple[Kind, ...] = ("passage",)

    def found(question: str) -> list[Passage]:
        hits = retrieve(store.search, question, queue=queue, kinds=kinds, limit=policy.passages_max, now=now)
        rows = store.sources.passages([hit.ref for hit in hits])
        return [Passage(row.ref, row.text, row.path) for row in rows]

    return found


def _counted(found: Callable[[str], Sequence[Passage]], of: int) -> Callable[[str], Sequence[Passage]]:
    """The same, telling a terminal how far it is."""
    if sys.stderr is None or not sys.stderr.isatty():
        return found
    steps = _steps(of)

    def told(question: str) -> Sequence[Passage]:
        next(steps, None)
        return found(question)

    return told


def _steps(of: int) -> Iterator[None]:
    for number in range(1, of + 1):
        ends = "\r" if number < of else "\r\x1b[K"
        print(f"question {number} of {of}", end=ends, file=sys.stderr, flush=True)
        yield


def _hints(config: Config, queue: str) -> None:
    """What is in force now, and where to change it."""
    from sessions.config import ExtractiveDecider

    name = config.queues[queue].decider
    decider = config.deciders[name]
    if isinstance(decider, ExtractiveDecider):
        screen.note(f"In force for {queue}: [deciders.{name}] threshold = {decider.threshold:g}")
    else:
        screen.note(
            f"{queue} is decided by [deciders.{name}] of kind {decider.kind}, which has no threshold."
        )


def _json(queue: str, found: Calibration) -> dict[str, object]:
    levels = [
        {
            **level._asdict(),
            "precision": level.precision,
            "at_least": level.at_least,
            "coverage": level.coverage,
        }
        for level in found.levels
    ]
    return {
        "queue": queue,
        "target": found.target,
        "threshold": found.threshold,
        "flag_everything": found.proposed is None,
        "levels": levels,
    }


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError("must be more than 0 and at most 1, such as 0.92")
    return value
