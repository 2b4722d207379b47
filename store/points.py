"""Crash points: the named places where the process may die, and the tests make it die.

Every commit, file move and call to the outside goes through a helper that wants a point's name
(``Database.write``, ``files.*``, ``outside``). Each name has two places, ``NAME.before`` and ``NAME.after``. They do
nothing unless ``SHIFTWORK_CRASH_AT`` names one of them:

    SHIFTWORK_CRASH_AT=checkpoint.before        SIGKILL the daemon, then this process
    SHIFTWORK_CRASH_AT=checkpoint.before@self   SIGKILL this process alone

Each fires once per daemon: a marker file in the folder ``SHIFTWORK_CRASH_DIR`` (set by the daemon for its
workers, with its pid in ``SHIFTWORK_DAEMON_PID``) is created exclusively before the kill.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

POINTS: dict[str, str] = {
    "backup.replace": "a finished backup gets its name",
    "backup.write": "the backup's pages are copied",
    "checkpoint": "a session's outcome is committed",
    "claim": "a node's lease is committed",
    "decider.call": "a decider is asked",
    "events.note": "an event of its own is committed",
    "extend": "a lease is extended before a call",
    "history": "raw prompts and replies are committed to history.db",
    "inbox.archive": "a taken file moves to archive/",
    "inbox.claim": "a dropped file moves into .work/",
    "inbox.copy": "a copy from another file system gets its name",
    "inbox.drop": "the original of a copied file is removed",
    "inbox.mark": "what an inbox is gets noted beside the store",
    "inbox.put-back": "a claimed file moves back to the inbox",
    "inbox.reason": "the reason for a refusal gets its name",
    "inbox.record": "refusals are committed as events",
    "inbox.reject": "a refused file moves to rejected/",
    "intake": "handed-in items are committed",
    "memory.constraints": "a queue's constraints from the configuration are committed",
    "memory.sources": "changed sources are committed as passages",
    "notify.ack": "an ack is committed",
    "notify.claim": "a message is taken by its sender",
    "notify.mark": "the mark of a page that needs no store is written",
    "notify.problem": "a problem is raised or cleared",
    "notify.record": "what became of a message is committed",
    "notify.send": "a message is handed to the sending child",
    "notify.step": "alerts move on, with the messages they owe",
    "papers.mark": "written files for people are marked",
    "papers.remove": "a file for people that is no longer true is removed",
    "papers.write": "a file for people gets its name",
    "people.abort": "an abort is committed",
    "people.pause": "a pause or a resume is committed",
    "people.resolve": "a person's answer is committed",
    "people.retry": "a retry is committed",
    "reclaim": "dead sessions' nodes are taken back",
    "release": "a session's claim is given back",
    "store.create": "a new store gets its name",
    "store.mark": "a note beside the store is replaced",
    "store.migrate": "a migration is committed",
    "timer.mark": "a timer's last tick is noted beside the store",
    "webhook.answer": "a delivery that was accepted is answered",
    "webhook.commit": "deliveries that waited together are committed",
}

_ARMED = "SHIFTWORK_CRASH_AT" in os.environ


def names() -> list[str]:
    """Every place that can be given in ``SHIFTWORK_CRASH_AT``, sorted."""
    return sorted(f"{name}.{side}" for name in POINTS for side in ("before", "after"))


def reach(place: str) -> None:
    """Die here if ``SHIFTWORK_CRASH_AT`` says so and nobody died here yet in this daemon's life."""
    if not _ARMED:
        return
    wanted = os.environ["SHIFTWORK_CRASH_AT"]
    if wanted.partition("@")[0] != place:
        return
    if _first_time(place):
        _die(alone=wanted.endswith("@self"))


@contextmanager
def outside(name: str) -> Iterator[None]:
    """Around a call that leaves the process: reaches ``NAME.before`` and, when it returned, ``NAME.after``."""
    reach(f"{name}.before")
    yield
    reach(f"{name}.after")


def _first_time(place: str) -> bool:
    folder = os.environ.get("SHIFTWORK_CRASH_DIR")
    if not folder:
        return True
    with suppress(FileExistsError):
        os.close(os.open(os.path.join(folder, f"crashed-{place}"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        return True
    return False


def _die(*, alone: bool) -> None:
    daemon = int(os.environ.get("SHIFTWORK_DAEMON_PID", "0"))
    if daemon and not alone and daemon != os.getpid():
        with suppress(ProcessLookupError):
            os.kill(daemon, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
