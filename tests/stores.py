"""A fresh store for each test, copied from one that was made for real once in this process."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from store.opening import prepare


def new_state(folder: Path) -> Path:
    """``folder/state`` with an empty store in it."""
    state = folder / "state"
    state.mkdir(parents=True)
    shutil.copyfile(_template() / "shiftwork.db", state / "shiftwork.db")
    return state


@cache
def _template() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="shiftwork-template-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    prepare(folder / "state")
    return folder / "state"
