"""The engine beside its peers: DBOS and LangGraph on SQLite, on comparable durable work, in one run.

    python benchmarks/peers.py [--envs FOLDER] [--items 200] [--sessions 600] [--rounds 5] [--kill]

The work is three steps an item (take it, decide at once, record the result), by one worker, each step durable before
the next. What each does for it:

    Shiftwork     benchmarks/engine.py: a worker process, items handed in before, whole sessions with an instant
                  decider; two commits at most, notes, the event log, and an answer file, which the peers do not write
    DBOS          a workflow of three steps, called directly (its queue polls and would cost more); five commits;
                  SQLite as DBOS ships it, and again with the write-ahead log switched on
    LangGraph     a graph of three nodes, a thread an item, its SQLite checkpointer, durability="sync"

All sync in full. Peers have worked off a few items before the clock starts, ours has not. They run in environments of
their own, made in --envs from the pinned files in benchmarks/peers/ and kept there: making them needs a package index,
later runs need nothing. Rounds take turns, another one first each time, on fresh stores; ratios are of the same round.
CPU is that of all threads of the worker. --kill adds DBOS after kill -9 with 1,000 pending. Exit code 1: a ratio does
not hold.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from engine import raw_per_s, sessions_per_s, syncs_and_bytes  # noqa: E402

from store.opening import prepare  # noqa: E402

PROGRAMS = ROOT / "benchmarks" / "peers"
_SCRATCH: list[tempfile.TemporaryDirectory[str]] = []
ENVS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shiftwork-benchmarks"


class Peer(NamedTuple):
    """Another engine: its environment, its program's flags, and how many times as fast we have to be."""

    name: str
    env: str
    flags: tuple[str, ...]
    target: float


class Pace(NamedTuple):
    """What one run came to."""

    per_s: float
    cpu_ms: float


DBOS = Peer("DBOS as shipped", "dbos", (), 8.0)
DBOS_WAL = Peer("DBOS with WAL", "dbos", ("--wal",), 5.0)
LANGGRAPH = Peer("LangGraph sync", "langgraph", (), 5.0)
PEERS = (DBOS, DBOS_WAL, LANGGRAPH)
MODES = {DBOS: "delete", DBOS_WAL: "wal", LANGGRAPH: "wal"}


def python_of(env: str, envs: Path) -> Path:
    """The Python of a peer's environment, made when it is not there or its pins changed."""
    pins = PROGRAMS / f"{env}.txt"
    stamp = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()
    folder = envs / env
    python, made = folder / "bin" / "python", folder / "made-from"
    if made.is_file() and made.read_text() == stamp:
        return python
    print(f"making {folder} from {pins.relative_to(ROOT)} (once) …", flush=True)
    venv.create(folder, clear=True, with_pip=True)
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", pins], check=False
    )
    if installed.returncode:
        sys.exit(f"{folder} could not be filled; the peers need a package index once (see above)")
    made.write_text(stamp)
    return python


def command(peer: Peer, envs: Path, folder: Path, count: int) -> list[str]:
    program = PROGRAMS / f"{peer.env}_program.py"
    return [str(python_of(peer.env, envs)), str(program), str(folder), str(count), *peer.flags]


def peer_pace(peer: Peer, envs: Path, count: int) -> Pace:
    """Items a second of a peer on a fresh store, from its own clock."""
    with scratch() as folder:
        done = subprocess.run(
            command(peer, envs, folder, count), check=True, stdout=subprocess.PIPE, text=True, timeout=600
        )
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["items"], found["mode"]) == (count, MODES[peer]), found
    return Pace(count / found["seconds"], found["cpu_s"] / count * 1000)


def our_pace(count: int) -> Pace:
    """Sessions a second of a worker process on a fresh store, its start included in the CPU."""
    with scratch() as folder:
        prepare(folder / "state")
        before = _cpu_of_children_s()
        per_s = sessions_per_s(folder, count)
        return Pace(per_s, (_cpu_of_children_s() - before) / count * 1000)


def raw_pace(count: int) -> float:
    """Commits of five rows a second, on a fresh file."""
    with scratch() as folder:
        return raw_per_s(folder, count)


def peer_syncs_and_bytes(peer: Peer, envs: Path) -> tuple[float, float]:
    """Syncs and KB an item in a peer's folder: the difference between a long and a short run, without its start."""
    few, many = (_traced(peer, envs, count) for count in (10, 60))
    return (many[0] - few[0]) / 50, (many[1] - few[1]) / 50 / 1024


def dbos_after_a_kill(envs: Path, count: int) -> tuple[int, float, float]:
    """After kill -9 of a process with `count` pending workflows: how many were left to its successor, and the seconds
    from its exec to the first and to the last of them.
    """
    with scratch() as folder:
        start = command(DBOS, envs, folder, count)
        with subprocess.Popen([*start, "--pending"], stdout=subprocess.PIPE, text=True) as killed:
            assert killed.stdout is not None
            killed.stdout.readline()
            killed.kill()
        started = time.perf_counter()
        with subprocess.Popen([*start, "--again"], stdout=subprocess.PIPE, text=True) as again:
            assert again.stdout is not None
            left = int(json.loads(again.stdout.readline())["first"])
            first = time.perf_counter() - started
            again.stdout.readline()
            return left, first, time.perf_counter() - started


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one run, on the disk of all others. It goes when all runs are over: ext4 gives the number of a file
    that was just removed to no other for five seconds, and looks past each of them whenever one is made.
    """
    if not _SCRATCH:
        _SCRATCH.append(tempfile.TemporaryDirectory())
    yield Path(tempfile.mkdtemp(dir=_SCRATCH[0].name))


def _traced(peer: Peer, envs: Path, count: int) -> tuple[int, int]:
    """Syncs and bytes written below the peer's folder, as the kernel saw them."""
    with scratch() as folder, tempfile.NamedTemporaryFile("r") as trace:
        subprocess.run(
            [
                *("strace", "-f", "-e", "trace=fsync,fdatasync,write,pwrite64", "-y", "-o", trace.name),
                *command(peer, envs, folder, count),
            ],
            check=True,
            capture_output=True,
        )
        lines = [line for line in trace.read().splitlines() if f"<{folder}" in line]
    written = [line for line in lines if "write" in line and "= " in line]
    return sum("sync(" in line for line in lines), sum(int(line.rsplit("= ", 1)[1]) for line in written)


def _cpu_of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _round(number: int, options: argparse.Namespace) -> tuple[Pace, float, dict[Peer, Pace]]:
    """Everybody once; who begins changes from round to round."""
    turns: list[Peer | None] = [None, *PEERS]
    shift = number % len(turns)
    ours, theirs = Pace(0, 0), {}
    for peer in turns[shift:] + turns[:shift]:
        if peer is None:
            ours = our_pace(options.sessions)
        else:
            theirs[peer] = peer_pace(peer, options.envs, options.items)
    raw = raw_pace(options.sessions)
    beside = " · ".join(
        f"{peer.name} {pace.per_s:.0f} ({ours.per_s / pace.per_s:.1f} ×)" for peer, pace in theirs.items()
    )
    print(f"round {number + 1}: Shiftwork {ours.per_s:.0f}/s · {beside} · raw {raw:.0f}", flush=True)
    return ours, raw, theirs


def _report(rounds: list[tuple[Pace, float, dict[Peer, Pace]]], envs: Path) -> bool:
    """The medians; whether every ratio holds."""
    traced = shutil.which("strace") is not None
    if not traced:
        print("syncs not counted: strace is not installed")
    held = True
    print(f"\nmedian of {len(rounds)}:  items/s  CPU ms/item  syncs  KB/item  Shiftwork is")
    mine = (
        statistics.median(ours.per_s for ours, _, _ in rounds),
        statistics.median(ours.cpu_ms for ours, _, _ in rounds),
    )
    counted = syncs_and_bytes(300)[:2] if traced else (float("nan"),) * 2
    share = statistics.median(ours.per_s / raw for ours, raw, _ in rounds)
    print(f"{'Shiftwork':16}{_numbers(*mine, *counted)}  {share:.2f} of raw commits")
    for peer in PEERS:
        paces = [theirs[peer] for _, _, theirs in rounds]
        ratio = statistics.median(ours.per_s / theirs[peer].per_s for ours, _, theirs in rounds)
        counted = peer_syncs_and_bytes(peer, envs) if traced else (float("nan"),) * 2
        numbers = _numbers(
            statistics.median(pace.per_s for pace in paces),
            statistics.median(pace.cpu_ms for pace in paces),
            *counted,
        )
        held = held and ratio >= peer.target
        verdict = "holds" if ratio >= peer.target else "DOES NOT HOLD"
        print(f"{peer.name:16}{numbers}  {ratio:.1f} ×, at least {peer.target:g}: {verdict}")
    return held


def _numbers(per_s: float, cpu_ms: float, syncs: float, kilobytes: float) -> str:
    return f"{per_s:8.0f}{cpu_ms:13.2f}{syncs:7.1f}{kilobytes:9.0f}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--envs", type=Path, default=ENVS)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--sessions", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kill", action="store_true")
    options = parser.parse_args()
    for env in sorted({peer.env for peer in PEERS}):
        python_of(env, options.envs)
    held = _report([_round(number, options) for number in range(options.rounds)], options.envs)
    if options.kill:
        left, first, last = dbos_after_a_kill(options.envs, 1000)
        print(
            f"DBOS as shipped, kill -9 with {left} pending: {first:.1f} s to the first, {last:.1f} s to all"
        )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
