"""``shiftwork debug crash-points``: the names that ``SHIFTWORK_CRASH_AT`` takes, for tests that kill."""

from __future__ import annotations

import argparse

from daemon.cli import screen
from store.points import names


def debug_crash_points_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing: it needs no configuration."""
    del parser


def debug_crash_points(args: argparse.Namespace) -> int:
    """One name a line."""
    del args
    for name in names():
        screen.out(name)
    return 0
