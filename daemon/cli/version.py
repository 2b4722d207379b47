"""``shiftwork version``."""

from __future__ import annotations

import argparse

from daemon.cli import screen

VERSION = "0.1.0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--json."""
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    """Shiftwork's own version, and those that matter when something is reported."""
    import sqlite3
    import sys

    python = ".".join(str(part) for part in sys.version_info[:3])
    if args.json:
        screen.json_out({"shiftwork": VERSION, "python": python, "sqlite": sqlite3.sqlite_version})
    else:
        screen.out(f"shiftwork {VERSION} (Python {python}, SQLite {sqlite3.sqlite_version})")
    return 0
