"""What the benchmarks of the service share: a real daemon in a folder, and what all of its processes cost.

A figure of the service counts every process of it (daemon, the process that starts workers, workers, deciders, senders)
and every thread of each, from /proc. Each line that is printed says its bound, and its raw reference where it has one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
READY = "Drop a file"
GUIDE = "# Walrus\n\nA walrus is answered by letter within three working days.\n"
QUESTION = "Within how many working days is a walrus answered?"


class Figure(NamedTuple):
    """A printed line. ``unit`` follows the value; a figure without a bound is only reported."""

    name: str
    value: float
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the figure is within its bound."""
        low = self.at_least is None or self.value >= self.at_least
        return low and (self.at_most is None or self.value <= self.at_most)

    def line(self) -> str:
        """The figure in words."""
        bounds = [
            f"{sign} {bound:g}"
            for sign, bound in (("at least", self.at_least), ("at most", self.at_most))
            if bound is not None
        ]
        mark = "   " if not bounds else "ok " if self.holds else "BAD"
        said = f"  ({', '.join(bounds)})" if bounds else ""
        return f"{mark} {self.value:10.3f} {self.unit:<5} {self.name}{said}"


def report(figures: Sequence[Figure]) -> int:
    """Print the lines; the exit code."""
    for figure in figures:
        print(figure.line())
    return 0 if all(figure.holds for figure in figures) else 1


def parser(text: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the script's own head, with the options that all scripts have."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--folder",
        type=Path,
        help="make the working folder in there, on a local disk (default: the temp folder)",
    )
    return made


@contextmanager
def folder_in(place: Path | None) -> Iterator[Path]:
    """A folder of our own, gone afterwards."""
    name = Path(tempfile.mkdtemp(prefix="shiftwork-bench-", dir=place))
    try:
        yield name
    finally:
        shutil.rmtree(name, ignore_errors=True)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that ``share`` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * share // 1).__int__() - 1))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


class Spent(NamedTuple):
    """What some processes had used up at one moment. Times in s, memory in MiB, ``written`` in bytes to the disk."""

    at: float
    cpu_s: float
    wakes: int
    written: int
    write_calls: int
    rss_mib: float
    pss_mib: float
    processes: int


class Service:
    """A real daemon on one queue that answers from one small document, with what configuration a benchmark adds."""

    def __init__(self, folder: Path, *, daemon: str = "", queue: str = "", extra: str = "") -> None:
        self.folder, self.state = folder, folder / "state"
        self.inbox, self.outbox = folder / "inbox", folder / "outbox"
        self.process: subprocess.Popen[bytes] | None = None
        for one in (self.inbox, self.outbox, folder / "docs"):
            one.mkdir(exist_ok=True)
        (folder / "docs" / "walrus.md").write_text(GUIDE)
        (folder / "shiftwork.toml").write_text(
            f"[daemon]\n{daemon}\n"
            f'[queues.q]\ninbox = "inbox"\noutbox = "outbox"\ndecider = "local"\nsources = ["docs/*.md"]\n{queue}\n'
            f'[deciders.local]\nkind = "extractive"\n{extra}'
        )

    def command(self, *words: str, body: str | None = None) -> str:
        """Run a verb to its end; what it printed."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "daemon", *words],
            cwd=self.folder, env=ENVIRONMENT, input=body, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise SystemExit(
                f"shiftwork {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def exec(self) -> float:
        """Exec the daemon; the moment it was done (UTC seconds)."""
        with (self.folder / "out.txt").open("w") as out, (self.folder / "err.txt").open("w") as err:
            at = time.time()
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "daemon", "run"],
                cwd=self.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            )  # fmt: skip
        return at

    def start(self) -> None:
        """Exec the daemon and wait until it serves."""
        self.exec()
        self.until(lambda: READY in self.said())

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Signal it and wait for its end."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(60)
            self.process = None

    def said(self) -> str:
        """All that this start printed."""
        return (self.folder / "out.txt").read_text() + (self.folder / "err.txt").read_text()

    def until(self, condition: Callable[[], object], seconds: float = 60.0, *, every_s: float = 0.01) -> None:
        """Wait for a condition."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end or (self.process is not None and self.process.poll() is not None):
                raise SystemExit(f"waited in vain\n{self.said()}")
            time.sleep(every_s)

    def drop(self, name: str, body: str) -> float:
        """A file renamed into the inbox; the moment before the rename (UTC seconds)."""
        ready = self.folder / f".{name}"
        ready.write_text(body)
        at = time.time()
        ready.rename(self.inbox / name)
        return at

    def value(self, sql: str, *values: object) -> float:
        """One number out of the store."""
        connection = sqlite3.connect(f"file:{self.state}/shiftwork.db?mode=ro", uri=True, timeout=10)
        try:
            return float(connection.execute(sql, values).fetchone()[0] or 0)
        finally:
            connection.close()

    def pids(self) -> list[int]:
        """The daemon and everything below it that lives now."""
        assert self.process is not None
        found = [self.process.pid]
        for pid in found:
            found += children(pid)
        return found

    def spent(self) -> Spent:
        """What the service has used up so far."""
        return spent(self.pids())


def children(pid: int) -> list[int]:
    """Living children of all threads of a process."""
    found = []
    for task in tasks(pid):
        try:
            found += [int(word) for word in (task / "children").read_text().split()]
        except OSError:
            continue
    return found


def tasks(pid: int) -> list[Path]:
    """The threads of a process, as folders."""
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def spent(pids: Sequence[int]) -> Spent:
    """What these processes have used up; children that ended count with their parents."""
    cpu_s, wakes, written, calls, pss_kib = 0.0, 0, 0, 0, 0
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            cpu_s += sum(map(int, stat[11:15])) / TICKS_PER_S
            io = numbers(f"/proc/{pid}/io")
            written, calls = written + io["write_bytes"], calls + io["syscw"]
            pss_kib += numbers(f"/proc/{pid}/smaps_rollup")["Pss"]
        except OSError:
            continue
        for task in tasks(pid):
            try:
                wakes += numbers(str(task / "status"))["voluntary_ctxt_switches"]
            except OSError:
                continue
    first = numbers(f"/proc/{pids[0]}/status")["VmRSS"]
    return Spent(time.monotonic(), cpu_s, wakes, written, calls, first / 1024, pss_kib / 1024, len(pids))


def numbers(file: str) -> dict[str, int]:
    """The lines ``name: number`` of a file in /proc."""
    found = {}
    for line in Path(file).read_text().splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[name] = int(words[0])
    return found


def question(number: int) -> str:
    """A file with the question that the one document answers, an item of its own for each number."""
    return f'+++\nkey = "question-{number}"\n+++\n{QUESTION}\n'
