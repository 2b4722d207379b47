"""Benchmarks run, with tiny numbers: that they still fit the code they measure, not what they measure."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks"


def ran(name, *arguments):
    """What a benchmark prints; whether its bounds hold is not asked of so few sessions on any machine."""
    command = [sys.executable, str(FOLDER / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.stderr == ""
    assert done.returncode in (0, 1), done.stdout
    return done.stdout


def test_the_engine_is_measured_beside_raw_commits():
    said = ran("engine.py", "--sessions", "5", "--rounds", "1", "--behind", "10")
    assert re.search(r"^round 1: \d+ sessions/s \(\d+\.\d\d of raw \d+/s\)", said)
    assert re.search(r"\d\.\d{3} × +sessions, of raw commits of five rows +\(at least 0\.15\)", said)


def test_the_engine_with_a_memory_shows_where_its_cpu_goes_and_finds_every_step_it_times():
    said = ran(
        "engine_memory.py",
        "--alone",
        "--sessions",
        "5",
        "--rounds",
        "1",
        "--episodes",
        "30",
        "--passages",
        "12",
    )
    episodes, passages = map(int, re.match(r"(\d+) episodes, (\d+) passages", said).groups())
    assert episodes >= 30
    assert passages >= 12
    assert "without a clock" not in said, said
    for part in ("search in the index", "ranking", "tokenising", "checkpoint: commit 2", "all"):
        assert re.search(rf"^{part} +\d+\.\d\d", said, re.MULTILINE), part


SERVICE = [
    ("idle.py", "--minutes 0.03 --settle 0.5", ["CPU", "wake-ups a second", "PSS of all processes"]),
    ("pickup.py", "--files 2 --rest 0.2", ["rename to session start, p99", "raw inotify, fork and commit, p99"]),
    ("restart.py", "--items 40 --rounds 1", ["exec to the first session", "exec to all 40 done"]),
    ("coldstart.py", "--items 50 --rounds 1", ["cold status, 50 items: CPU, of import sqlite3"]),
    ("accepts.py", "--seconds 0.3 --rounds 1", ["accepts, of the handler without the commit"]),
]  # fmt: skip


@pytest.mark.parametrize(("script", "words", "lines"), SERVICE, ids=[one[0] for one in SERVICE])
def test_the_service_is_measured_over_all_of_its_processes(script, words, lines):
    said = ran(script, *words.split())
    for line in lines:
        assert re.search(rf"^(ok |BAD|   ) +\d+\.\d+ .* {re.escape(line)}", said, re.MULTILINE), said


@pytest.mark.parametrize("pins", sorted((FOLDER / "peers").glob("*.txt")), ids=lambda path: path.stem)
def test_a_peer_is_pinned_down_to_the_last_package(pins):
    lines = pins.read_text().splitlines()
    assert [line for line in lines if re.fullmatch(r"[\w.-]+==[\w.]+", line)] == lines
    assert any(line.startswith(f"{pins.stem}==") for line in lines)


def test_every_benchmark_is_in_the_table_of_figures():
    table = (FOLDER / "README.md").read_text()
    scripts = {path.name for path in FOLDER.glob("*.py")} - {"service_world.py", "hook_load.py"}
    assert {name for name in scripts if f"`{name}" not in table} == set()
