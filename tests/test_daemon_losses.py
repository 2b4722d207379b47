"""Commits that went with a damaged log: the daemon starts on the whole, older state, and pages about it."""

from __future__ import annotations

import os
import subprocess
import sys

from stores import new_state

from daemon import starting

CONFIG = """
state_dir = "state"
[queues.q]
decider = "local"
[deciders.local]
kind = "extractive"
"""


def opened(folder):
    return starting.open_up(folder / "shiftwork.toml", warn=print)


def test_lost_commits_are_one_store_problem_until_the_next_good_start(tmp_path):
    state = new_state(tmp_path)
    (tmp_path / "shiftwork.toml").write_text(CONFIG)
    script = (
        "import os, sys; from pathlib import Path\n"
        "from store.sqlite import open_store; from store.intake import Handed\n"
        "store = open_store(Path(sys.argv[1]))\n"
        "for n in range(9): store.intake.hand_in([Handed('q', f'item {n}', 'cli')], now=1.0, caps={'q': 99})\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(state)], check=False)
    wal = state / "shiftwork.db-wal"
    os.truncate(wal, wal.stat().st_size // 2)

    first = opened(tmp_path)
    kept = len(first.store.views.items(queue="q", state=None, limit=99, now=2.0))
    assert 0 < kept < 9
    problems = first.store.alerts.facts(now=2.0, flag_age_s=60).problems
    assert [(one.key, one.kind) for one in problems] == [("store:lost", "lost")]
    assert f"{9 - kept} of 9 commits are lost" in problems[0].detail
    first.store.close()
    first.lock.release()

    again = opened(tmp_path)
    assert again.store.alerts.facts(now=3.0, flag_age_s=60).problems == ()
    again.store.close()
    again.lock.release()
