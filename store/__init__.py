"""All durable state and all SQL. The contract and the error of a lost race are at hand here, loaded when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store.contract import Store
    from store.errors import CheckpointConflict

__all__ = ["CheckpointConflict", "Store"]


def __getattr__(name: str) -> object:
    """Import on first use: the read verbs of the command line pay for nothing they do not need."""
    if name == "CheckpointConflict":
        from store.errors import CheckpointConflict

        return CheckpointConflict
    if name == "Store":
        from store.contract import Store

        return Store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
