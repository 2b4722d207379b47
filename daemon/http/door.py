"""The HTTP door as the service holds it: sockets, then server and accept thread, then their end; a reload between.

It is there when ``[http]`` is written or there is a webhook; a reload may open or close it, and cannot move it. The
libraries behind it cost 9 MB, and are imported only when it is there.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from daemon.config import Config
from daemon.http import limits, listening
from daemon.sections import host_of
from store.contract import Store
from store.errors import ConfigProblem, ShiftworkError

if TYPE_CHECKING:
    from daemon.http.app import Surface
    from daemon.http.server import Server
    from triggers.webhooks.accept import Accepting, Answer
    from triggers.webhooks.hook import Hook

QUIET_S = 60.0
"""A webhook that refuses says so once in this time: whoever calls it must not fill the terminal."""


class Door:
    """See the module's head. ``trouble`` says, in a few words each, why nothing can be stored now."""

    def __init__(
        self,
        store: Store,
        *,
        wake: Callable[[Sequence[str], str], None],
        fatal: Callable[[BaseException], object],
        said: Callable[[str], None],
        trouble: Callable[[], Sequence[str]],
        sockets: Sequence[socket.socket] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._wake, self._fatal, self._said, self._trouble, self._clock = wake, fatal, said, trouble, clock
        self._sockets = list(sockets)
        self._server: Server | None = None
        self._accepting: Accepting | None = None
        self._surface: Surface | None = None
        self._told_at: dict[str, float] = {}

    def url(self, config: Config) -> str | None:
        """Where clients call, None when nothing listens."""
        return listening.url_of(config.http, self._sockets) if self._sockets else None

    async def start(self, config: Config) -> None:
        """Serve what the configuration has to serve; again with a new one that ``admit`` let in."""
        if not config.listens:
            await self.stop()
        elif self._server is None:
            await self._begin(config)
        else:
            self._configure(config)

    def admit(self, before: Config, after: Config) -> None:
        """Open what ``after`` needs, or raise ConfigProblem: then nothing has changed."""
        if before.listens and after.listens and before.http.bind != after.http.bind:
            raise ConfigProblem(
                f"{after.file}: [http] bind cannot change while the daemon runs; stop it and start again"
            )
        if after.listens and not self._sockets:
            try:
                self._sockets = listening.listen(after.http)
            except ShiftworkError as error:
                raise ConfigProblem(f"{after.file}: {error}") from None

    async def stop(self) -> None:
        """No new requests, the running ones are answered, what waits is settled."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
        accepting, self._accepting = self._accepting, None
        if accepting is not None:
            await accepting.close()
        listening.close(self._sockets)
        self._sockets = []

    async def _begin(self, config: Config) -> None:
        from daemon.http.app import Surface
        from daemon.http.server import Server
        from triggers.webhooks.accept import Accepting

        bounds = limits.for_this_process()
        self._accepting = Accepting(
            self._store.intake,
            config.caps(),
            wake=self._wake,
            fatal=self._fatal,
            said=self._said,
            clock=self._clock,
        )
        self._surface = Surface(
            self._accepting,
            trouble=self._trouble,
            refused=self._refused,
            failed=self._failed,
            most_bytes=bounds.bodies,
            clock=self._clock,
        )
        self._configure(config)
        self._server = Server(self._surface.app(), self._sockets, bounds)
        await self._server.start()

    def _configure(self, config: Config) -> None:
        from daemon.http.guard import Rules
        from triggers.webhooks.hook import hooks

        if self._surface is None or self._accepting is None:
            return
        hosts = frozenset(map(host_of, config.http.allowed_hosts))
        self._surface.rules = Rules(hosts, self._token(config))
        self._surface.hooks = hooks(config.webhooks)
        self._accepting.caps = config.caps()
        for name in config.webhooks.keys() - self._surface.hooks.keys():
            self._said(f"webhook {name} is off: its secret cannot be read")

    def _token(self, config: Config) -> bytes:
        """Empty where none is asked for. One that cannot be read (any more) is a token that nobody knows."""
        if config.http.token_file is None:
            return b""
        try:
            return config.http.token_file.read_bytes().strip()
        except OSError as error:
            self._said(f"[http] token_file: {error.strerror}; what it guards is closed")
            return secrets.token_bytes(32)

    def _refused(self, hook: Hook, answer: Answer) -> None:
        now = time.monotonic()
        if now - self._told_at.get(hook.name, -QUIET_S) >= QUIET_S:
            self._told_at[hook.name] = now
            self._said(
                f"webhook {hook.name} refused a delivery ({answer.status} {answer.word}): {answer.message}"
            )

    def _failed(self, error: Exception) -> None:
        self._said(f"webhook: {type(error).__name__}: {error}")
