"""``shiftwork doctor``: what is or may become wrong here, each with what to do. The daemon may run.

Nothing is changed; each folder is tried with a file of doctor's own that is gone again at once.

good   looked at, nothing to do          look   worth knowing, nothing is broken
bad    something is wrong now (exit 1)
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from daemon.cli import cells, light, reach, screen, shapes
from store.errors import ShiftworkError, StoreRefused
from store.text import shown

if TYPE_CHECKING:
    from store.sqlite import SqliteStore

LABEL = 12
CHECK_S = 60.0


class Finding(NamedTuple):
    """One thing looked at: ``good``, ``look`` or ``bad``, what about, the words, and a command that helps."""

    level: str
    about: str
    words: str
    command: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--json."""
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    """Look at everything. Exit 1 when something is bad, 78 without a configuration."""
    from daemon.cli import doctor_machine, doctor_store

    places = light.places(args.config)
    now = time.time()
    found = [
        *_configuration(places),
        *doctor_machine.findings(places),
        *_with_store(args, lambda store: doctor_store.findings(store, places, now)),
    ]
    bad = sum(one.level == "bad" for one in found)
    look_at = sum(one.level == "look" for one in found)
    if args.json:
        shapes.out({"bad": bad, "look": look_at, "findings": [one._asdict() for one in found]})
        return 1 if bad else 0
    for one in found:
        for line in lines(one):
            screen.out(line)
    screen.out(f"{bad} bad, {look_at} to look at" if bad or look_at else "all good")
    return 1 if bad else 0


def lines(one: Finding) -> Iterator[str]:
    """A finding, its words wrapped beside its label."""
    first = f"{one.level:<4}  {cells.pad(one.about, LABEL)}  "
    for number, part in enumerate(one.words.split("\n")):
        yield from cells.wrap(part, first=first if number == 0 else " " * len(first), rest=" " * len(first))
    if one.command:
        yield " " * len(first) + one.command


def _configuration(places: light.Places) -> Iterable[Finding]:
    """What ``check-config`` says, asked in a process of its own: an installation may be too broken to judge a file."""
    import json
    import subprocess

    check = screen.command("check-config", config=places.file)
    argv = [
        sys.executable,
        "-m",
        "daemon",
        "check-config",
        "--json",
        "--config",
        os.path.abspath(places.file),
    ]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=CHECK_S, check=False)
        said = json.loads(done.stdout)
        errors, warnings = len(said["errors"]), len(said["warnings"])
        plugins = [_plugin(use) for use in said.get("plugins", [])]
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired):
        return [Finding("bad", "config", "it could not be judged; see why", check)]
    if errors:
        return [Finding("bad", "config", screen.count(errors, "error"), check)]
    if warnings:
        return [Finding("look", "config", screen.count(warnings, "warning"), check), *plugins]
    return [Finding("good", "config", screen.quoted(places.file)), *plugins]


def _plugin(use: Mapping[str, str]) -> Finding:
    """A plug-in in use: which one, and whether it loads."""
    table = f"{use['section'].removesuffix('s')} {use['name']}"
    words = f"{table}: {use['kind']} from {use['distribution']} {use['version']}"
    if use["broken"]:
        why = use["broken"].replace(f"{use['kind']} from {use['distribution']} {use['version']} ", "")
        return Finding("bad", "plug-in", shown(f"{words}; {why}"))
    return Finding("good", "plug-in", shown(words))


def _with_store(args: argparse.Namespace, look: Callable[[SqliteStore], Iterable[Finding]]) -> list[Finding]:
    """What the store's own checks find; a store that is refused is a finding, too."""
    try:
        with reach.reading(args) as (places, store):
            if store is None:
                words = f"none yet in {shown(str(places.state_dir))}; the first run makes it"
                return [Finding("good", "store", words)]
            return list(look(store))
    except StoreRefused as refused:
        return [Finding("bad", "store", _words(refused))]


def _words(error: ShiftworkError) -> str:
    return "\n".join(shown(line) for line in str(error).split("\n"))
