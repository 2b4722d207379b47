"""The tables that are put together from several rooms' models, or belong to the process itself."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from sessions.config import QueuePolicy
from store.settings import Many, RelativePath, Section
from triggers.config import InboxSettings

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_HOST = re.compile(r"[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]")


def host_of(address: str) -> str:
    """The host of ``HOST`` or ``HOST:PORT`` in lower case, without the brackets of an IPv6 address or a last dot.

    What is neither comes back whole: it is nobody's name.
    """
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
        return host.lower() if not rest or (rest[0] == ":" and rest[1:].isdecimal()) else address
    host, _, port = address.rpartition(":")
    return (host if host and ":" not in host and port.isdecimal() else address).lower().removesuffix(".")


def _host_and_port(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not colon or not _HOST.fullmatch(host) or not port.isdecimal() or not int(port) < 65536:
        raise ValueError('must be HOST:PORT such as "127.0.0.1:8765"')
    return value


def _a_host(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not _HOST.fullmatch(host if colon and port.isdecimal() else value):
        raise ValueError('must be a host name such as "hooks.example.org", without scheme and path')
    return value


class HttpSettings(Section):
    """``[http]``: where the daemon listens, and under which names it is called. It listens when this table is
    written or there is a webhook. Port 0 is any free one.
    """

    bind: Annotated[str, AfterValidator(_host_and_port)] = "127.0.0.1:8765"
    allowed_hosts: Annotated[Many[Annotated[str, AfterValidator(_a_host)]], Field(min_length=1)] = LOOPBACK
    token_file: RelativePath | None = None

    @model_validator(mode="before")
    @classmethod
    def _called_as_bound(cls, data: Any) -> Any:
        """Nothing said: the names of this machine to itself, and the address we listen on."""
        if not isinstance(data, dict) or "allowed_hosts" in data:
            return data
        host = str(data.get("bind", "")).rpartition(":")[0]
        more = [host] if _HOST.fullmatch(host) and host_of(host) not in map(host_of, LOOPBACK) else []
        return data | {"allowed_hosts": [*LOOPBACK, *more]}

    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        host, _, port = self.bind.rpartition(":")
        return host_of(host), int(port)


class QueueSettings(QueuePolicy, InboxSettings):
    """``[queues.NAME]``: what sessions obey, what the inbox takes, and how much may wait."""

    max_waiting: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
