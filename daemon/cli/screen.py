"""How things are written on a screen: sizes, counts, JSON, and commands that can be copied as printed.

Data goes to stdout, everything else to stderr. No colour is ever needed, so there is none.
"""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Any

_ADVICE = re.compile(r"(?<=  )shiftwork(?= [a-z])")
_EVERYBODYS = ("/usr/local/bin", "/usr/bin", "/bin")


def out(text: str = "") -> None:
    """A line of data."""
    print(text)


def note(text: str) -> None:
    """A line about the data: progress, hints, warnings, errors."""
    print(text, file=sys.stderr)


def json_out(value: Any) -> None:
    """One JSON document on stdout, for programs. What a terminal could act on, or cannot show, is escaped in it."""
    import json

    text = json.dumps(value, ensure_ascii=False, indent=2)
    known = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
    if not known or not text.replace("\n", "").isprintable():
        text = json.dumps(value, indent=2)
    print(text)


def zone() -> str:
    """The name of the local time zone, said once per screen."""
    return time.strftime("%Z")


def size(count: float) -> str:
    """Bytes, short: ``38 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def count(number: int, one: str, many: str | None = None) -> str:
    """``1 error``, ``2 errors``, ``2 queries``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def quoted(path: str | os.PathLike[str]) -> str:
    """A path as a shell takes it, relative to the current folder where that is shorter and stays below it."""
    import shlex

    text = from_here(path) or absolute(path)
    return shlex.quote(text if not text.startswith("-") else f"./{text}")


def from_here(path: str | os.PathLike[str]) -> str | None:
    """A path as it is called from the current folder; None where it lies elsewhere, or that folder is gone."""
    try:
        whole, here = os.path.abspath(path), os.getcwd()
    except OSError:
        return None
    if whole == here:
        return "."
    return whole.removeprefix(f"{here}/") if here != "/" and whole.startswith(f"{here}/") else None


def absolute(path: str | os.PathLike[str]) -> str:
    """A path as it is called from anywhere."""
    try:
        return os.path.abspath(path)
    except OSError:  # the current folder is gone
        return os.fspath(path)


def command(*words: str, config: str | os.PathLike[str] | None = None) -> str:
    """A line that runs ``shiftwork WORDS`` when it is copied into a shell in this folder.

    ``config`` is added unless it is the file that would be found anyway. Words are taken as they are.
    """
    parts = [program()]
    if config is not None and not _found_anyway(config):
        parts += ["--config", quoted(config)]
    return " ".join([*parts, *words])


def copyable(text: str, *, config: str | os.PathLike[str] | None = None) -> str:
    """``text`` with every ``shiftwork VERB`` that stands after two blanks worded as ``command`` does it.

    Rooms that do not know how this program was called write their advice that way.
    """
    if "  shiftwork " not in text:
        return text
    prefix = command(config=config)
    return _ADVICE.sub(lambda _found: prefix, text)


def command_anywhere(config: str | os.PathLike[str]) -> tuple[str, str]:
    """What stands before and after the words of a line that somebody copies from a file, in whatever folder."""
    import shlex

    called = absolute(sys.argv[0] or "shiftwork")
    if os.path.basename(called) != "shiftwork":
        start = f"{shlex.quote(sys.executable)} -m daemon"
    elif os.path.dirname(called) in _EVERYBODYS:
        start = "shiftwork"
    else:
        start = shlex.quote(called)
    return start, f" --config {shlex.quote(absolute(config))}"


def program() -> str:
    """What to type to call this very program: ``shiftwork`` where PATH leads to it, else a path."""
    called = absolute(sys.argv[0] or "shiftwork")
    if os.path.basename(called) != "shiftwork":
        return f"{_to_run(sys.executable)} -m daemon"
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        candidate = os.path.join(folder, "shiftwork")
        if folder and os.access(candidate, os.X_OK):
            if os.path.realpath(candidate) == os.path.realpath(called):
                return "shiftwork"
            break
    return _to_run(called)


def _to_run(path: str) -> str:
    """A program of the current folder has its folder said: a bare word is looked for on PATH alone."""
    text = quoted(path)
    return text if "/" in text else f"./{text}"


def _found_anyway(config: str | os.PathLike[str]) -> bool:
    from daemon.cli import light

    if os.environ.get(light.VARIABLE):
        return os.path.realpath(os.environ[light.VARIABLE]) == os.path.realpath(config)
    for name in (light.LOCAL, light.SYSTEM):
        if os.path.exists(name):
            return os.path.realpath(name) == os.path.realpath(config)
    return False
