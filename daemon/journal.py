"""Is a stream the journal's, and how a line says there what it is worth."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TextIO

ERROR, WARNING = "<3>", "<4>"


def is_journal(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Whether what is written to ``stream`` arrives in the journal, which dates each line itself.

    The variable alone says nothing: children and redirected streams inherit it.
    """
    given = (os.environ if environ is None else environ).get("JOURNAL_STREAM")
    if not given:
        return False
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return given == f"{status.st_dev}:{status.st_ino}"


def marked(text: str, level: str) -> str:
    """``text`` with its level before each line, since the journal takes lines one by one."""
    return "\n".join(f"{level}{line}" for line in text.split("\n"))
