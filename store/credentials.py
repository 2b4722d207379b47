"""``credential:NAME`` in a key that ends in ``_file``: a secret that a service manager hands over.

    $CREDENTIALS_DIRECTORY/NAME             a credential of its own (LoadCredential=NAME:FILE)
    $CREDENTIALS_DIRECTORY/shiftwork_NAME   from the folder that the unit hands over whole
    credentials/NAME                        beside the configuration: where that folder lies, and without a manager

The first one that is there counts, so that one configuration serves the daemon under systemd, a command of root's, and
a laptop. What a manager handed over stays the same until the service is started again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

PREFIX = "credential:"
VARIABLE = "CREDENTIALS_DIRECTORY"
FOLDER = "credentials"
UNIT_ID = "shiftwork"
"""What the unit's LoadCredential= calls the folder; the manager puts it before each file's name."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}")


def place(value: str, folder: str, environ: Mapping[str, str] | None = None) -> str | None:
    """The path that ``credential:NAME`` stands for, None for any other value. ``folder`` is the configuration's.

    Raises ValueError for a name that is none.
    """
    if not value.startswith(PREFIX):
        return None
    name = value.removeprefix(PREFIX)
    if not _NAME.fullmatch(name):
        raise ValueError(f'"{PREFIX}" is followed by the name of a file: A-Z a-z 0-9 _ - . alone')
    given = (os.environ if environ is None else environ).get(VARIABLE, "")
    handed = [os.path.join(given, one) for one in (name, f"{UNIT_ID}_{name}")] if given else []
    beside = os.path.join(folder, FOLDER, name)
    return next(
        (path for path in (*handed, beside) if os.path.exists(path)), handed[-1] if handed else beside
    )
