"""The one platform: Linux with a kernel from 5.13 on. Elsewhere one clear line and exit 1, first of all."""

from __future__ import annotations

import os
import re
import sys

from store.errors import ShiftworkError

OLDEST_KERNEL = (5, 13)


def require_linux() -> None:
    """Raises ShiftworkError (exit 1) where Shiftwork does not run."""
    uname = os.uname() if hasattr(os, "uname") else None
    problem = unfit(sys.platform, uname.release if uname else "")
    if problem:
        raise ShiftworkError(problem)


def unfit(platform: str, release: str) -> str | None:
    """One line on why this machine does not do; None when it does. A kernel without a number is let pass."""
    if platform != "linux":
        return f"Shiftwork runs on Linux only (a container or WSL2 will do); this is {platform}."
    version = re.match(r"(\d+)\.(\d+)", release)
    if version and (int(version[1]), int(version[2])) < OLDEST_KERNEL:
        return f"Shiftwork needs Linux 5.13 or later; this kernel is {release}."
    return None
