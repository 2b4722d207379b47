"""Our package names are plain words; another distribution that installs one of them would overwrite our files.

Measured: python-daemon installs ``daemon/__init__.py`` over ours. So ``check-config`` looks.
"""

from __future__ import annotations

import importlib.util
import os
from importlib import metadata

DISTRIBUTION = "shiftwork"
NAMES = ("daemon", "memory", "notify", "sessions", "store", "triggers")


def strangers() -> list[str]:
    """What is wrong with who owns our package names, a line each; empty when each is ours alone."""
    return [*_other_owners(), *_scattered()]


def _other_owners() -> list[str]:
    found = set()
    for distribution in metadata.distributions():
        owner = distribution.metadata["Name"] or "?"
        if owner.lower() == DISTRIBUTION:
            continue
        for file in distribution.files or ():
            top = file.parts[0].removesuffix(".py")
            if top in NAMES:
                found.add((owner, top))
    return [
        f'{owner} installs "{name}" too and may have overwritten our files: give Shiftwork an environment of its own'
        for owner, name in sorted(found)
    ]


def _scattered() -> list[str]:
    """Packages that Python would import from elsewhere than ``daemon``, such as a folder ``memory`` lying around."""
    home = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    lines = []
    for name in NAMES:
        spec = importlib.util.find_spec(name)
        origin = os.path.realpath(spec.origin) if spec and spec.origin else "nowhere"
        if origin != os.path.join(home, name, "__init__.py"):
            lines.append(f'"{name}" is imported from {origin}, not from {home}')
    return lines
