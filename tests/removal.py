"""Removing a folder under whoever is writing into it."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path


def remove(folder: Path, *, seconds: float = 20.0) -> None:
    """Removes ``folder`` with all in it, again and again until it is gone.

    One pass over a folder that is in use can meet files that came or went since it listed them.
    """
    until = time.monotonic() + seconds
    while folder.exists():
        assert time.monotonic() < until, f"{folder} is made again and again"
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
