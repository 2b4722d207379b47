"""Who may import what, beyond the layers that the import rules hold."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOMS = ("daemon", "memory", "notify", "sessions", "store", "triggers")
ONE_FILE_EACH = ("apprise", "apscheduler", "watchfiles", "rank_bm25", "Stemmer")


def imports():
    """(file, top-level module imported) of everything in the rooms."""
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Import):
                    yield from (
                        (file.relative_to(ROOT), alias.name.partition(".")[0]) for alias in node.names
                    )
                elif isinstance(node, ast.ImportFrom) and node.module:
                    yield file.relative_to(ROOT), node.module.partition(".")[0]


def test_each_outside_library_with_a_face_of_its_own_lives_in_one_file():
    users = defaultdict(set)
    for file, module in imports():
        if module in ONE_FILE_EACH:
            users[module].add(str(file))
    for module, files in users.items():
        assert len(files) == 1, f"{module} is used in {sorted(files)}"


def test_only_the_store_speaks_to_the_database():
    """``sqlite3`` elsewhere is for types, versions and errors; a connection is opened in the store alone."""
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.py")):
            if room != "store":
                text = file.read_text()
                assert "sqlite3.connect" not in text, file
                assert "sqlite_utils" not in text, file


def test_every_module_says_what_it_is_for_and_reads_annotations_lazily():
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.py")):
            tree = ast.parse(file.read_text())
            assert ast.get_docstring(tree), file
            if len(tree.body) > 1:
                assert "from __future__ import annotations" in file.read_text(), file
