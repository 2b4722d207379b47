"""The heartbeat: a dead daemon cannot page, so somebody else must notice that it went silent.

While progress holds, the main loop calls ``beat``; at most once a minute that asks for the URL in
``heartbeat_url_file`` (Healthchecks style: a GET that is answered with 2xx). When the loop hangs, dies, or work waits
and nothing moves, no ping goes out and the other side pages.

The request runs in a daemon thread: it costs the loop nothing, and neither a slow server nor a dead resolver keeps the
process from ending. Redirects are not followed. No process is started, so an idle daemon stays one process.
"""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from notify.urls import read_url

EVERY_S = 60.0
TIMEOUT_S = 10.0
NO_PROGRESS_S = 30 * 60.0


class Ping(NamedTuple):
    """What the last ping came to. ``words`` never holds the URL."""

    ok: bool
    words: str


def progress_holds(*, ready: int, last_progress_at: float | None, now: float) -> bool:
    """False when work is ready and no session started, beat or ended for 30 min. What is paused is not ready.

    ``last_progress_at`` is the last of those, or when the daemon started; None counts as now.
    """
    if ready == 0 or last_progress_at is None:
        return True
    return now - last_progress_at < NO_PROGRESS_S


class Heartbeat:
    """See the module's head. ``last`` and ``failed_in_a_row`` are for ``status`` and the log."""

    def __init__(self, url_file: Path, *, every_s: float = EVERY_S) -> None:
        self._url_file = url_file
        self._every_s = every_s
        self._thread: threading.Thread | None = None
        self._beaten_at: float | None = None
        self.last: Ping | None = None
        self.failed_in_a_row = 0

    def due_at(self, now: float) -> float:
        """When ``beat`` has something to do next; never further away than the interval, whatever the clock did."""
        if self._beaten_at is None or self._beaten_at > now:
            return now
        return self._beaten_at + self._every_s

    def beat(self, *, progress: bool, now: float) -> bool:
        """Ping if it is time, progress holds, and no ping is still under way. True when one was started."""
        if not progress or now < self.due_at(now) or (self._thread is not None and self._thread.is_alive()):
            return False
        self._beaten_at = now
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()
        return True

    def _run(self) -> None:
        result = ping(self._url_file)
        self.failed_in_a_row = 0 if result.ok else self.failed_in_a_row + 1
        self.last = result


def ping(url_file: Path, *, timeout_s: float = TIMEOUT_S) -> Ping:
    """One GET of the URL in the file, here and now."""
    try:
        url = urlsplit(read_url(url_file))
        port = url.port
    except OSError as error:
        return Ping(ok=False, words=f"the heartbeat file cannot be read: {error.strerror}")
    except ValueError:
        return Ping(ok=False, words="the heartbeat file must hold one URL, http:// or https://")
    if url.scheme not in {"http", "https"} or not url.hostname:
        return Ping(ok=False, words="the heartbeat file must hold one URL, http:// or https://")
    import http.client

    maker = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    try:
        with closing(maker(url.hostname, port, timeout=timeout_s)) as connection:
            connection.request("GET", target, headers={"User-Agent": "shiftwork"})
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException, ValueError) as error:  # their texts may hold the URL
        return Ping(ok=False, words=f"no answer ({type(error).__name__})")
    if 200 <= status < 300:
        return Ping(ok=True, words="answered")
    return Ping(ok=False, words=f"answered with status {status}")
