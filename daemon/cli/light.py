"""Where the configuration and the store are, found with ``tomllib`` alone: for verbs that must start fast.

Nothing here judges the file: ``daemon.config.load`` does. What cannot be read here ends with the advice to
run ``shiftwork check-config``.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from store.errors import ConfigProblem

VARIABLE = "SHIFTWORK_CONFIG"
LOCAL = "shiftwork.toml"
SYSTEM = "/etc/shiftwork/config.toml"
MAX_BYTES = 1 << 20


class QueuePlace(NamedTuple):
    """One queue's folders, absolute; None where the queue has none."""

    inbox: Path | None
    outbox: Path | None
    decider: str


class Places(NamedTuple):
    """What a verb needs to know of the configuration to read the store or hand something in."""

    file: Path
    state_dir: Path
    queues: Mapping[str, QueuePlace]
    data: Mapping[str, Any]  # the parsed file, unjudged


def find(given: str | None, *, environ: Mapping[str, str] | None = None, system: str = SYSTEM) -> Path:
    """The configuration file: ``--config``, ``SHIFTWORK_CONFIG``, ``./shiftwork.toml``, then the system's.

    Raises ConfigProblem that lists the places looked at when there is none. A place that was named and is not
    there is an error, never a reason to take the next one; so is the system's when it is there and closed to us.
    """
    environ = os.environ if environ is None else environ
    for origin, name in (("--config", given), (VARIABLE, environ.get(VARIABLE))):
        if name:
            why = _closed(name)
            if why is not None:
                raise ConfigProblem(f"{name}: {why or 'no such file'} (from {origin})")
            return Path(name)
    if os.path.exists(LOCAL):
        # a current folder that we may not look into, such as root's under sudo, holds nothing for us
        return Path(LOCAL)
    why = _closed(system)
    if why:
        raise ConfigProblem(f"{system}: {why}. It is for its group and for root; another one:  --config FILE")
    if why is None:
        return Path(system)
    raise ConfigProblem(
        "No configuration found. Looked at:\n"
        "  --config FILE              not given\n"
        f"  {VARIABLE:25}  not set\n"
        f"  {'./' + LOCAL:25}  not there\n"
        f"  {system:25}  not there\n"
        "Write one here:  shiftwork init"
    )


def _closed(name: str) -> str | None:
    """Why there is nothing to open at ``name``: empty where nothing is there, None where something is."""
    try:
        os.stat(name)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return ""
    except OSError as error:
        return error.strerror or "cannot be read"
    return None


def places(given: str | None) -> Places:
    """Find and read the configuration, as far as the light verbs need it."""
    return read_places(find(given))


def read_places(file: Path) -> Places:
    """State folder and queues of one configuration file."""
    data = read_toml(file)
    folder = os.path.dirname(os.path.abspath(file))
    try:
        queues = {
            name: QueuePlace(
                inbox=_path(folder, table.get("inbox")),
                outbox=_path(folder, table.get("outbox")),
                decider=str(table.get("decider", "")),
            )
            for name, table in data.get("queues", {}).items()
        }
        state_dir = _path(folder, data.get("state_dir", "state"))
    except (AttributeError, TypeError):
        state_dir = None
    if state_dir is None:
        raise ConfigProblem(f"{file} cannot be used as it is. See all that is wrong:  shiftwork check-config")
    return Places(file=file, state_dir=state_dir, queues=queues, data=data)


def read_toml(file: Path) -> dict[str, Any]:
    """The parsed file. Raises ConfigProblem with file and line when it cannot be read or is not TOML."""
    return parse_toml(file, read_bytes(file))


def read_bytes(file: Path) -> bytes:
    """The file's bytes, at most 1 MiB. Raises ConfigProblem."""
    try:
        with open(file, "rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigProblem(f"{file}: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise ConfigProblem(f"{file}: larger than 1 MiB, this is no configuration")
    return content


def parse_toml(file: Path, content: bytes) -> dict[str, Any]:
    """``content`` parsed; ``file`` is only named in errors."""
    try:
        return tomllib.loads(content.decode("utf-8-sig").replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        raise ConfigProblem(f"{file}: not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise ConfigProblem(f"{file}: nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        reason, _, place = str(error).rpartition(" (at ")
        line = place.removeprefix("line ").partition(",")[0]
        where = f"{file}:{line}" if line.isdecimal() else f"{file}:{_lines(content)}"
        raise ConfigProblem(f"{where}  not TOML: {_lowered(reason or str(error))}") from None


def _lines(content: bytes) -> int:
    return content.rstrip(b"\n").count(b"\n") + 1


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _path(folder: str, value: str | None) -> Path | None:
    return None if value is None else Path(os.path.normpath(os.path.join(folder, value)))
