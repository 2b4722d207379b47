"""Pages that need no store: ``start`` when a start is refused, ``store`` when the store itself cannot be written.

A mark file says who was told, so that each is told once until a good start (or a mended store) takes the mark away:

    {"id": "E-s3f2a", "at": …, "told": [URL FILES]}     written before the first send, and after each that arrived

A kill in between repeats at most the message that was under way, under the same id. The mark lies in the state folder;
where that cannot be written, in the user's runtime folder or the folder for temporary files.

A configuration that is refused may still name its services: whatever can be read of it is enough (``salvage``).
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from notify.messages import Message
from notify.policy import PAGE, TICKET, Channel
from notify.sender import Outcome, by_child
from store import credentials, files
from store.errors import ShiftworkError
from store.keys import digest
from store.points import outside
from store.text import first_line, shown

TIMEOUT_S = 10.0
DEADLINE_S = 15.0
MARK_BYTES = 64 * 1024

_HEADER = re.compile(r"^\s*\[", re.MULTILINE)


def salvage(text: str) -> dict[str, Any]:
    """What can be read of a TOML text: all of it, or each table that is sound on its own. Never raises."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        pass
    starts = [0, *(match.start() for match in _HEADER.finditer(text)), len(text)]
    found: dict[str, Any] = {}
    for begin, end in pairwise(starts):
        try:
            part = tomllib.loads(text[begin:end])
        except (tomllib.TOMLDecodeError, RecursionError):
            continue
        for key, value in part.items():
            known = found.get(key)
            found[key] = {**known, **value} if isinstance(known, dict) and isinstance(value, dict) else value
    return found


def services_of(data: Mapping[str, Any], folder: Path) -> list[Channel]:
    """The services a parsed configuration names, as far as they make sense; the rest is passed over."""
    section = data.get("notify")
    services = section.get("services") if isinstance(section, dict) else None
    found: dict[str, tuple[str, ...]] = {}
    for service in services if isinstance(services, list) else []:
        url_file = service.get("url_file") if isinstance(service, dict) else None
        tags = service.get("tags", [PAGE, TICKET]) if isinstance(service, dict) else None
        if isinstance(url_file, str) and url_file and "\0" not in url_file and isinstance(tags, list):
            base = os.path.abspath(folder)
            try:
                name = os.path.normpath(credentials.place(url_file, base) or os.path.join(base, url_file))
            except ValueError:
                continue
            found[name] = tuple(dict.fromkeys((*found.get(name, ()), *(str(tag) for tag in tags))))
    return [Channel(name, tags) for name, tags in found.items()]


class Scene(NamedTuple):
    """Whom to tell, and where the mark may lie: all that is known when nothing else works."""

    services: Sequence[Channel]
    config: Path
    state_dir: Path | None


def page_start_refused(error: ShiftworkError, scene: Scene, *, now: float) -> list[Outcome]:
    """Page that a start was refused with ``error``; an outcome for each service tried now, none when all were told.

    Raises nothing a service, a file or a child could cause: the refusal itself must end the process, with its own
    exit code. Takes at most 15 s a service.
    """
    lines = [f"It ended with exit code {error.exit_code}; nothing runs until somebody looks."]
    if error.exit_code == 78:
        lines += [
            f"The configuration {shown(str(scene.config))} was refused.",
            "",
            "Look:    shiftwork check-config",
        ]
    else:
        lines += [shown(first_line(str(error), 200)), "", "Look:    shiftwork doctor"]
    lines.append("It is told once, until a start succeeds.")
    return _page("start", "did not start", lines, scene, now=now)


def page_store_problem(words: str, scene: Scene, *, now: float) -> list[Outcome]:
    """Page that the running daemon's store cannot be used; once until ``forget("store", …)``."""
    lines = [
        shown(words, 200),
        "",
        "Look:    shiftwork doctor",
        "It is told once, until the store works again.",
    ]
    return _page("store", "cannot use its store", lines, scene, now=now)


def standing(scene: Scene) -> list[tuple[str, float, str]]:
    """The pages that need no store and still stand: alert, since when, visible id."""
    found = []
    for alert in ("start", "store"):
        mark = next((one for place in _marks(alert, scene) if (one := _read(place)) is not None), None)
        if mark is not None:
            found.append((alert, mark["at"], mark["id"]))
    return found


def forget(alert: str, scene: Scene) -> None:
    """After a good start (``start``) or when the store works again (``store``): the next time is news again."""
    for mark in _marks(alert, scene):
        try:
            if mark.is_file():
                files.remove(mark, point="notify.mark")
        except OSError:
            continue  # a mark that cannot be removed could not be written either


def _page(alert: str, what: str, lines: Sequence[str], scene: Scene, *, now: float) -> list[Outcome]:
    marks = _marks(alert, scene)
    mark = next((found for place in marks if (found := _read(place)) is not None), None)
    if mark is None:
        mark = {"id": f"E-s{digest(alert, str(scene.config), now)[:4]}", "at": now, "told": []}
    where = shown(f"{os.uname().nodename} {os.path.dirname(os.path.abspath(scene.config))}", 100)
    message = Message(
        id=mark["id"],
        title=f"[Shiftwork] {what} on {where} ({mark['id']})",
        body="\n".join([f"{mark['id']} · page · {alert}", *lines]),
        type="failure",
    )
    outcomes = []
    for channel in dict.fromkeys(service.name for service in scene.services if PAGE in service.tags):
        if channel in mark["told"]:
            continue
        _write(marks, mark)
        with outside("notify.send"):
            outcome = by_child(channel, message, timeout_s=TIMEOUT_S, deadline_s=DEADLINE_S)
        outcomes.append(outcome)
        if outcome.delivered:
            mark["told"].append(channel)
            _write(marks, mark)
    return outcomes


def _marks(alert: str, scene: Scene) -> list[Path]:
    """The places for the mark, best first. The last two are told apart by user and configuration."""
    name = f"shiftwork-{os.geteuid()}-{digest(os.path.abspath(scene.config))}-{alert}-told.json"
    places = [scene.state_dir / f"{alert}-told.json"] if scene.state_dir is not None else []
    folders = [os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir()]
    return [*places, *(Path(folder) / name for folder in folders if folder)]


def _read(mark: Path) -> dict[str, Any] | None:
    try:
        fd = os.open(mark, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            if os.fstat(fd).st_uid != os.geteuid():  # somebody else's file must not silence a page
                return None
            data = json.loads(file.read(MARK_BYTES))
        told = [str(channel) for channel in data["told"]]
        return {"id": shown(str(data["id"]), 16), "at": float(data["at"]), "told": told}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(marks: Sequence[Path], mark: Mapping[str, Any]) -> None:
    """Write the mark in the first place that takes it; in none, the page goes out all the same."""
    for place in marks:
        try:
            files.replace_own(place, json.dumps(mark).encode(), point="notify.mark", mode=0o600)
        except OSError:
            continue
        return
