"""The tables that are put together from several rooms' models, or belong to the process itself."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from sessions.config import QueuePolicy
from store.settings import Many, RelativePath, Section, Text
from triggers.config import InboxSettings


def _host_and_port(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError('must be HOST:PORT such as "127.0.0.1:8765"')
    return value


class HttpSettings(Section):
    """``[http]``. It is checked, and nothing listens in this version."""

    bind: Annotated[str, AfterValidator(_host_and_port)] = "127.0.0.1:8765"
    allowed_hosts: Annotated[Many[Text], Field(min_length=1)] = ("127.0.0.1", "localhost")
    token_file: RelativePath | None = None


class QueueSettings(QueuePolicy, InboxSettings):
    """``[queues.NAME]``: what sessions obey, what the inbox takes, and how much may wait."""

    max_waiting: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
