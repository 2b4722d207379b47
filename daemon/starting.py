"""From a configuration file to an opened store that is ours alone, or a refusal that says why.

    configuration  78    state folder writable  78    lock  4    store  70 (or 78: a network file system)

A refused configuration or store pages once (``notify.start_alert``) until a start succeeds; a lock that is held does
not: somebody is at work. Nothing is created before the configuration is good.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from daemon import config as configuration
from daemon import platform
from daemon.config import Config
from daemon.lock import Lock
from notify.policy import policy_from
from notify.start_alert import Scene, forget, page_start_refused, salvage, services_of
from store import opening
from store.errors import ConfigProblem, ShiftworkError, StoreRefused
from store.sqlite import SqliteStore, open_store

LOSSES = "store:lost"


class Opened(NamedTuple):
    """A good start. ``told`` is what a person should know about the store."""

    config: Config
    lock: Lock
    store: SqliteStore
    told: list[str]


def open_up(file: Path, *, warn: Callable[[str], None], clock: Callable[[], float] = time.time) -> Opened:
    """See the module's head. Raises ConfigProblem, AlreadyRunning, StoreRefused, ShiftworkError.

    ``warn`` gets the words of a refusal before the page goes out, which may take a while.
    """
    platform.require_linux()
    try:
        config = configuration.load(file)
        opening.check_folder(config.state_dir)
    except ConfigProblem as refusal:
        _page(refusal, _salvaged_scene(file), warn, clock())
        raise
    lock = Lock.acquire(config.state_dir, now=clock())
    lock.note(config=str(config.file), digest=config.digest)
    try:
        told = opening.prepare(config.state_dir, allow_network=config.daemon.allow_network_store)
        store = open_store(config.state_dir)
    except (StoreRefused, ConfigProblem) as refusal:
        _page(refusal, scene_of(config), warn, clock())
        lock.release()
        raise
    except BaseException:
        lock.release()
        raise
    _arm_crash_points(config.state_dir)
    try:
        sync_constraints(store, config, now=clock())
        _tell_of_losses(store, told, now=clock())
    except BaseException:
        store.close()
        lock.release()
        raise
    forget("start", scene_of(config))
    return Opened(config, lock, store, told)


def sync_constraints(store: SqliteStore, config: Config, *, now: float) -> None:
    """Make the constraints that sessions are shown those of the configuration; no change, no write."""
    for name, queue in config.queues.items():
        store.memory.sync_constraints(name, [(one.text, one.kind) for one in queue.constraints], now=now)


def _tell_of_losses(store: SqliteStore, told: list[str], *, now: float) -> None:
    """Commits that went with a damaged log are worth a page: the store is whole, and older than it was."""
    lost = next((line for line in told if line.startswith(opening.LOST)), None)
    if lost is not None:
        store.alerts.raise_problem(LOSSES, queue=None, kind="lost", detail=lost, now=now)
    else:
        store.alerts.clear_problem(LOSSES)


def scene_of(config: Config) -> Scene:
    """Whom to tell when nothing else works."""
    return Scene(policy_from(config.notify).channels, config.file, config.state_dir)


def _salvaged_scene(file: Path) -> Scene:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return Scene(services_of(salvage(text), file.parent), file, None)


def _page(refusal: ShiftworkError, scene: Scene, warn: Callable[[str], None], now: float) -> None:
    """The refusal itself is the caller's last word; before a page that may take a while only its first line is said."""
    if scene.services:
        first = str(refusal).partition("\n")[0]
        warn(f"cannot start, paging about it: {first} …")
        page_start_refused(refusal, scene, now=now)


def _arm_crash_points(state_dir: Path) -> None:
    """For crash tests: each named point fires once in this daemon's life, in whichever process reaches it."""
    if "SHIFTWORK_CRASH_AT" in os.environ:
        os.environ["SHIFTWORK_DAEMON_PID"] = str(os.getpid())
        os.environ["SHIFTWORK_CRASH_DIR"] = tempfile.mkdtemp(prefix=".crash-", dir=state_dir)
