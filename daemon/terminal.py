"""What ``shiftwork run`` prints: one line a session, and what a person should know. Pure words, then one printer.

Session lines go to stdout, notes and warnings to stderr. A terminal that went away never stops the daemon. The journal
dates lines itself, so there they carry no time; warnings carry their level.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from daemon import journal
from daemon.cli import screen, times
from store.claims import Reclaimed
from store.text import shown

WHY_CHARS = 90


class Terminal:
    """Prints lines with the local time. ``clock`` gives UTC epoch seconds."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        out: TextIO | None = None,
        err: TextIO | None = None,
    ) -> None:
        self._clock = clock
        self._out, self._err = out, err

    def say(self, line: str) -> None:
        """A line about the work, with the time before it."""
        self._dated(line, self._out or sys.stdout)

    def note(self, line: str) -> None:
        """A line about the daemon itself, with the time before it."""
        self._dated(line, self._err or sys.stderr)

    def warn(self, line: str) -> None:
        """A note about something that is not as it should be."""
        self._dated(line, self._err or sys.stderr, journal.WARNING)

    def plain(self, line: str) -> None:
        """A line of the first screen, without a time."""
        self._print(line, self._out or sys.stdout)

    def _dated(self, line: str, stream: TextIO, level: str = "") -> None:
        if journal.is_journal(stream):
            self._print(journal.marked(line, level), stream)
        else:
            self._print(f"{times.stamp(self._clock(), dated=False)}  {line}", stream)

    @staticmethod
    def _print(line: str, stream: TextIO) -> None:
        with suppress(OSError, ValueError):
            print(line, file=stream, flush=True)


def session_words(message: Mapping[str, Any], commands: Callable[..., str]) -> str:
    """One line about a session that ended; ``commands`` words a command line to copy."""
    what = _outcome_words(message, commands)
    return f"{shown(str(message['queue']))}  {message['item']}  {what}"


def crash_words(one: Reclaimed, how: str, limit: int, commands: Callable[..., str]) -> str:
    """One line about a node that was taken back from a dead session."""
    if one.flag_id:
        what = f"waits for you: crashed {_times(one.crashes)}   → {commands('show', one.flag_id)}"
    else:
        ended = f"ended with {how}" if how.startswith("exit ") else how or _cause_words(one.cause)
        what = f"session {ended} (crash {one.crashes} of {limit}); it is tried again"
    return f"{shown(one.queue)}  {one.item_id}  {what}"


def waiting_words(busy: Sequence[Mapping[str, Any]], grace_s: float) -> str:
    """What a stopping daemon waits for."""
    if not busy:
        return "stopping"
    names = ", ".join(str(session.get("item")) for session in busy[:3])
    more = f" and {len(busy) - 3} more" if len(busy) > 3 else ""
    return (
        f"stopping: waits up to {grace_s:g} s for {_count(len(busy), 'running session')} ({names}{more}). "
        "Once more ends it at once"
    )


def left_words(left: Mapping[str, int] | None, start_again: str) -> str:
    """The last line: what is left, and how to start again."""
    rest = f": {rest_words(left)}" if left is not None else ""
    return f"stopped{rest}. Start again:  {start_again}"


def rest_words(left: Mapping[str, int]) -> str:
    """What is open, from ``views.left``."""
    waiting, others = left["waiting"], left["open"] - left["waiting"]
    parts = []
    if waiting:
        parts.append("1 item waits for you" if waiting == 1 else f"{waiting} items wait for you")
    if others:
        parts.append(f"{_count(others, 'open item')} to go on with")
    return " and ".join(parts) or "nothing is left to do"


def path_words(path: str | Path) -> str:
    """A path as a person reads it best from the current folder."""
    below = screen.from_here(path)
    return shown(f"./{below}" if below not in {None, "."} else screen.absolute(path))


def _outcome_words(message: Mapping[str, Any], commands: Callable[..., str]) -> str:
    outcome = message["outcome"]
    why = shown(str(message.get("why") or ""), WHY_CHARS)
    if outcome == "answered":
        cited = int(message.get("cited") or 0)
        passages = f", {_count(cited, 'passage')} cited" if cited else ""
        files = message.get("files") or []
        where = f"   → {path_words(files[0])}" if files else f"   → {commands('show', message['item'])}"
        return f"answered in {float(message.get('seconds') or 0.0):.1f} s{passages}{where}"
    if outcome in {"flagged", "denied"}:
        flag = message.get("flag")
        return f"waits for you: {why}   → {commands('show', flag) if flag else commands('flags')}"
    if outcome == "failed":
        return f"{why}; it is tried again   → {commands('why', message['item'])}"
    if outcome == "released":
        return f"given back: {why}"
    if outcome == "conflict":
        return "changed meanwhile; this session's work was discarded"
    return f"{outcome}: {why}" if why else str(outcome)


def _cause_words(cause: str) -> str:
    return {
        "daemon": "died with an earlier daemon",
        "worker": "died",
        "deadline": "was killed past its deadline",
        "expired": "held its claim too long",
        "gate": "was killed: it hung while holding the store's write gate",
    }.get(cause, f"ended ({cause})")


def _times(count: int) -> str:
    return "1 session" if count == 1 else f"{count} sessions in a row"


def _count(number: int, one: str) -> str:
    return f"{number} {one}" if number == 1 else f"{number} {one}s"
