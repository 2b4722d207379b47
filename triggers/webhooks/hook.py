"""One webhook as the daemon holds it: its policy and its secrets, read once at the start and at each reload."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from triggers.config import WebhookSettings
from triggers.webhooks import signatures


class Hook(NamedTuple):
    """``title``, ``body`` and ``key`` are JSON pointers into a delivery's body; None takes the default."""

    name: str
    queue: str
    scheme: str
    secrets: tuple[bytes, ...]
    title: str | None = None
    body: str | None = None
    key: str | None = None
    max_bytes: int = 1 << 20

    @property
    def source(self) -> str:
        """Whose delivery ids are unique among themselves, whichever queue they go to."""
        return f"webhook:{self.name}"

    def __repr__(self) -> str:
        """Without the secrets: a traceback may show it."""
        return f"Hook({self.name!r}, queue={self.queue!r}, scheme={self.scheme!r})"


def hooks(tables: Mapping[str, WebhookSettings]) -> dict[str, Hook]:
    """Every webhook that has a secret, by name. One whose secret cannot be used (any more) is off (FIELD 13)."""
    found = {}
    for name, table in tables.items():
        try:
            secrets = tuple(read_secret(file, table.scheme) for file in table.secret_file)
        except (OSError, ValueError):
            continue
        found[name] = Hook(
            name=name,
            queue=table.queue,
            scheme=table.scheme,
            secrets=secrets,
            title=table.title,
            body=table.body,
            key=table.key,
            max_bytes=table.max_bytes,
        )
    return found


def read_secret(file: Path, scheme: str) -> bytes:
    """The key in ``file``. Raises OSError, or ValueError with words about what is wrong with it."""
    with open(file, "rb") as stream:
        return signatures.secret_of(stream.read(signatures.MAX_SECRET_BYTES + 1), scheme)
