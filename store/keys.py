"""Digests and row ids: the same input always lands on the same key, so a replay lands on the same row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, check_circular=False)


def canonical(value: object) -> str:
    """One spelling of a JSON value: sorted keys, no spaces, as UTF-8 text."""
    return _CANONICAL.encode(value)


def digest(*parts: object) -> str:
    """16 hexadecimal digits (64 bits) over the parts in order; each part is a JSON value."""
    text = canonical(list(parts)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:16]


def bytes_digest(data: bytes) -> str:
    """16 hexadecimal digits over raw bytes."""
    return hashlib.sha256(data).hexdigest()[:16]


def node_id(item_key: str, queue: str, path: str, generation: int) -> str:
    """A node's row id: digest of item, place in the plan and generation (DESIGN, keys and digests)."""
    return "n-" + digest("node", queue, item_key, path, generation)


def item_id(seq: int) -> str:
    """``q-0007``: short, unique in the store, in order of arrival."""
    return f"q-{seq:04d}"


def flag_id(seq: int) -> str:
    """``f-0192``."""
    return f"f-{seq:04d}"


def spread(key: str, span: float) -> float:
    """A share of ``span`` fixed by the key: keeps many waits from ending at once, without randomness."""
    return int(digest("spread", key)[:8], 16) / 0xFFFFFFFF * span
