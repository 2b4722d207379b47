"""How verbs reach the store: for reading nothing is created, for writing the daemon is told.

Also what all people's verbs share: who it is, words that the store can hold, and the files that an answer ends.
"""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.cli import light, screen
from store.errors import NotFound, UsageProblem
from store.text import shown

if TYPE_CHECKING:
    from store.sqlite import SqliteStore

MAX_WORDS = 200_000


@contextmanager
def reading(args: argparse.Namespace) -> Iterator[tuple[light.Places, SqliteStore | None]]:
    """The configuration's places and the store, None before the first run. Raises ConfigProblem, StoreRefused."""
    from store.sqlite import open_for_reading

    places = light.places(args.config)
    store = open_for_reading(places.state_dir)
    try:
        yield places, store
    finally:
        if store is not None:
            store.close()


@contextmanager
def writing(args: argparse.Namespace, *, create: bool = False) -> Iterator[tuple[light.Places, SqliteStore]]:
    """The same for a verb that changes something; ``create`` makes a new store. Raises NotFound without one."""
    from store.sqlite import open_for_command

    places = light.places(args.config)
    _arm_crash_point(places.state_dir)
    _share_like(places.state_dir)
    store = open_for_command(places.state_dir, create=create)
    if store is None:
        raise NotFound(f"there is nothing yet: no store in {shown(str(places.state_dir))}")
    try:
        yield places, store
    finally:
        store.close()


def _share_like(state_dir: Path) -> None:
    """What a command makes in a folder that a group shares is the group's, too, whatever the person's umask says."""
    try:
        mode = state_dir.stat().st_mode
    except OSError:
        return
    if mode & stat.S_IWGRP and mode & stat.S_ISGID:
        os.umask(0o007)


def _arm_crash_point(state_dir: Path) -> None:
    """For crash tests: whoever reaches the named place takes the daemon along, a command too."""
    if "SHIFTWORK_CRASH_AT" in os.environ and "SHIFTWORK_DAEMON_PID" not in os.environ:
        from daemon.lock import read_daemon

        daemon = read_daemon(state_dir)
        if daemon.running:
            os.environ["SHIFTWORK_DAEMON_PID"] = str(daemon.pid)


def utf8(text: str) -> str:
    """An argument's type: words the store can hold. Others end with exit 2."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("is not UTF-8") from None
    if len(text) > MAX_WORDS:
        raise argparse.ArgumentTypeError(f"is longer than {MAX_WORDS} characters")
    return text


def some(text: str) -> str:
    """An argument's type: the same, and not blank."""
    if not text.strip():
        raise argparse.ArgumentTypeError("must not be blank")
    return utf8(text)


def number(text: str) -> int:
    """An argument's type: a whole number from 1 on."""
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise argparse.ArgumentTypeError("must be a whole number from 1 on")
    return int(text)


def by_argument(parser: argparse.ArgumentParser) -> None:
    """--by."""
    parser.add_argument("--by", metavar="NAME", type=some, help="who does it (default: your login name)")


def person(given: str | None) -> str:
    """Who does it: the name given, else the login name, which sudo does not change."""
    if given is not None:
        return given.strip()
    import pwd

    try:
        return os.getlogin()
    except OSError:
        pass
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def settle(places: light.Places, store: SqliteStore, item_id: str, now: float) -> None:
    """Remove and write the item's files for people now, with the daemon up or down; failing costs only a word."""
    from sessions import papers
    from store.errors import StoreBusy

    outboxes = {name: queue.outbox for name, queue in places.queues.items()}
    try:
        papers.settle_and_mark(
            store, outboxes, now=now, item_id=item_id, command=screen.command_anywhere(places.file)
        )
    except (OSError, StoreBusy) as error:
        screen.note(f"The files of {item_id} will be written or removed by the daemon: {error}")


def known_queue(places: light.Places, store: SqliteStore | None, queue: str) -> str:
    """``queue``, if it is configured or holds items. Raises NotFound."""
    if queue in places.queues:
        return queue
    known = sorted({*places.queues, *(store.views.queues() if store is not None else ())})
    if queue not in known:
        names = ", ".join(shown(name) for name in known) or "none"
        raise NotFound(f'there is no queue "{shown(queue, 60)}"; there is: {names}')
    return queue


def no_daemon_hint(places: light.Places) -> None:
    """Say so when nobody will go on with what was just allowed to go on."""
    from daemon.cli.running_info import running_info

    if not running_info(places.state_dir).running:
        screen.note(f"No daemon is running. Start it:  {screen.command('run', config=places.file)}")


def exactly_one(**given: object) -> str:
    """The name of the one option that was given. Raises UsageProblem when there is none or several."""
    names = [f"--{name}" for name, value in given.items() if value not in (None, False)]
    if len(names) != 1:
        forms = ", ".join(f"--{name}" for name in given)
        said = "none was given" if not names else f"{' and '.join(names)} were given"
        raise UsageProblem(f"give exactly one of {forms} ({said})")
    return names[0][2:]
