"""The errors people and callers meet, drawn once.

    ShiftworkError                 exit 1
    ├── UsageProblem               exit 2    the call's words are off
    ├── NotFound                   exit 3    no such item, flag, queue or alert
    ├── AlreadyRunning             exit 4    another daemon holds the store
    ├── Conflict                   exit 5    the state is not the one this call needs
    │   ├── AlreadyResolved
    │   ├── CheckpointConflict     a session's checkpoint lost the race: nothing of it was written
    │   └── NameTaken              a file that would be overwritten
    ├── StoreRefused               exit 70   the store cannot be trusted; nothing was written
    │   └── StoreGone              its file is no longer the one that was opened
    ├── StoreBusy                  exit 75   another writer holds the gate (retryable)
    ├── CapReached                 exit 75   a queue holds as many open items as it may (retryable)
    ├── ConfigProblem              exit 78   the configuration is wrong
    ├── InputRefused               exit 1    something handed in that can never be taken
    └── PluginBroken               exit 1    a plug-in that cannot be used: it is disabled, the rest goes on

Messages say what, which thing, and what to do.
"""

from __future__ import annotations

from store.text import shown


class ShiftworkError(Exception):
    """Something went wrong that a person can act on."""

    exit_code = 1
    retryable = False


class UsageProblem(ShiftworkError):
    """The command was called with words it does not take."""

    exit_code = 2


class NotFound(ShiftworkError):
    """There is no such thing in the store."""

    exit_code = 3


def no_item(item_id: str) -> NotFound:
    """The error for an item that is not in the store."""
    return NotFound(f'there is no item "{shown(item_id, 60)}"; see them all:  shiftwork list')


def no_flag(flag_id: str) -> NotFound:
    """The error for a flag that is not in the store."""
    return NotFound(f'there is no flag "{shown(flag_id, 60)}"; see what waits:  shiftwork flags')


class AlreadyRunning(ShiftworkError):
    """Another daemon holds this store."""

    exit_code = 4


class Conflict(ShiftworkError):
    """The thing is not in the state that this call needs."""

    exit_code = 5


class AlreadyResolved(Conflict):
    """The flag was resolved before."""


class CheckpointConflict(Conflict):
    """The checkpoint on disk is not the one this session started from; nothing was written."""


class NameTaken(Conflict):
    """The file exists and is not overwritten."""


class StoreRefused(ShiftworkError):
    """The store cannot be trusted as it is; nothing was written."""

    exit_code = 70


class StoreGone(StoreRefused):
    """The store's file is no longer the one that was opened: writes would go nowhere."""


class StoreBusy(ShiftworkError):
    """Another writer held the store for too long; try again."""

    exit_code = 75
    retryable = True


class CapReached(ShiftworkError):
    """The queue holds as many open items as it may; try again when some are finished."""

    exit_code = 75
    retryable = True

    def __init__(self, message: str, *, queue: str) -> None:
        super().__init__(message)
        self.queue = queue


class ConfigProblem(ShiftworkError):
    """The configuration cannot be used."""

    exit_code = 78


class InputRefused(ShiftworkError):
    """Something handed in that can never be taken; ``rule`` is the short name of the broken rule."""

    def __init__(self, message: str, *, rule: str) -> None:
        super().__init__(message)
        self.rule = rule


class PluginBroken(ShiftworkError):
    """A plug-in cannot be used: its import fails, it is of the wrong type, it raises, hangs, or hands in rubbish."""
