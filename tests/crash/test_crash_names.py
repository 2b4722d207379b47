"""The names of crash points: those that the code uses are those that are listed, and there is no way around them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from store.points import POINTS

ROOT = Path(__file__).parents[2]
ROOMS = ("daemon", "triggers", "sessions", "memory", "notify", "store")
HANDED_ON = {"store/files.py", "store/database.py", "triggers/inbox/moves.py"}
"""Helpers that take a point from their caller and hand it on."""
HELPERS = {"store/files.py", "store/database.py", "store/history.py", "store/points.py", "store/backup.py"}
"""Where the raw calls stand, each between the two places of a point."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def names_in(file: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        for keyword in node.keywords:
            if keyword.arg != "point":
                continue
            if isinstance(keyword.value, ast.Constant):
                yield keyword.value.value
            else:
                assert file in HANDED_ON, f"{file}:{node.lineno}: a point's name must be a literal"
        if called(node) in ("outside", "reach") and file != "store/points.py":
            argument = node.args[0]
            if isinstance(argument, ast.Constant):
                yield argument.value.removesuffix(".before").removesuffix(".after")
            else:
                assert file in HANDED_ON, f"{file}:{node.lineno}: a point's name must be a literal"


def test_the_names_used_are_the_names_listed():
    used = {name for file, tree in sources() for name in names_in(file, tree)}
    assert used == set(POINTS)


def test_each_point_that_is_reached_by_hand_is_reached_before_and_after():
    for file, tree in sources():
        by_hand = {
            node.args[0].value
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and called(node) == "reach"
            and isinstance(node.args[0], ast.Constant)
        }
        stems = {name.rpartition(".")[0] for name in by_hand}
        assert by_hand == {f"{stem}.{side}" for stem in stems for side in ("before", "after")}, file


def test_every_commit_goes_through_the_helper():
    """No other module opens a write transaction; ``begin`` of any kind stands in the helpers alone."""
    for file, tree in sources():
        if file in HELPERS:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not node.value.upper().startswith("BEGIN IMMEDIATE"), file


def test_every_move_goes_through_the_helper():
    """``os.rename``, ``os.replace``, ``os.link`` and ``Path.rename`` are called by the helpers alone.

    What else is named here never holds anything that could be lost: a quickstart that is written whole or not at all.
    """
    allowed = HELPERS | {"daemon/cli/init.py", "daemon/folders.py"}
    for file, tree in sources():
        if file in allowed:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                on_os = isinstance(node.func.value, ast.Name) and node.func.value.id in ("os", "shutil")
                moved = on_os and node.func.attr in ("rename", "replace", "renames", "link", "move")
                assert not moved, f"{file}:{node.lineno}"
                path_move = node.func.attr == "rename" and not any(
                    one.arg == "point" for one in node.keywords
                )
                assert not path_move or on_os, f"{file}:{node.lineno}"
