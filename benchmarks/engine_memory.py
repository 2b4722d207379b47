"""The engine with a memory: sessions a second with retrieval on, where their CPU goes, and DBOS beside it.

    python benchmarks/engine_memory.py [--episodes 1000] [--passages 200] [--sessions 300] [--rounds 5] [--alone]

Whole sessions in a worker process with an instant decider, as in benchmarks/engine.py, on a queue that has learned
episodes (by sessions that hand in lessons) and has source files on disk. Texts are sentences of this project's own
documents, drawn with a fixed seed; items ask with some words of one. DBOS as shipped works off three durable steps an
item, without any memory, in turn with it (benchmarks/peers.py, whose environments it uses); --alone leaves it out.
The parts are timed in a run of its own, by a clock around named steps: CPU of the thread and time on the wall, each
without what it calls of the other parts.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import multiprocessing
import random
import re
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from engine import Instant  # noqa: E402
from peers import DBOS, ENVS, peer_pace, python_of, scratch  # noqa: E402

import memory.retrieval  # noqa: E402, F401 – as a zygote does before it forks
from memory.sources import refresh  # noqa: E402
from sessions.config import DaemonLimits, QueuePolicy  # noqa: E402
from sessions.decider import Reply  # noqa: E402
from sessions.link import Link  # noqa: E402
from sessions.plan import Plan  # noqa: E402
from sessions.worker import drain  # noqa: E402
from store.intake import Handed  # noqa: E402
from store.opening import prepare  # noqa: E402
from store.sqlite import SqliteStore, open_store  # noqa: E402

SECTIONS_A_FILE = 10
LESSONS_A_SESSION = 18

PARTS = (
    ("look for work", "store.claims", "Claims.ready"),
    ("claim: commit 1", "store.claims", "Claims.claim"),
    ("verify, sources on disk", "sessions.session", "verify"),
    ("context: rows read", "memory.context", "recall"),
    ("context: built", "sessions.session", "build_context"),
    ("tokenising", "memory.recall", "tokens"),
    ("search in the index", "store.search", "SearchView.__init__"),
    ("search in the index", "store.search", "SearchView.frequencies"),
    ("search in the index", "store.search", "SearchView.candidates"),
    ("ranking", "memory.ranking", "scores"),
    ("ranking", "memory.retrieval", "retrieve"),
    ("decide, ladder", "sessions.session", "decide"),
    ("raw texts to history.db", "store.history", "History.add"),
    ("apply", "sessions.session", "apply"),
    ("checkpoint: commit 2", "store.checkpoints", "Checkpoints.commit"),
    ("answer file", "sessions.worker", "_settle"),
)


class Spent(NamedTuple):
    """Seconds of one part."""

    cpu_s: float
    wall_s: float


class Teacher(Instant):
    """Decides in no time, and says what it learned."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = itertools.cycle(texts)
        self._number = itertools.count(1)

    def decide(self, request: Mapping[str, Any], *, timeout_s: float) -> Reply:
        """An answer with lessons; every tenth is a failed attempt."""
        del timeout_s
        lessons = [
            {"text": text, "evidence": [request["item"]["id"]], "failed": next(self._number) % 10 == 0}
            for text in itertools.islice(self._texts, LESSONS_A_SESSION)
        ]
        said = {"decision": "answer", "reason": "it is so", "text": "forty-two", "lessons": lessons}
        return Reply(json.dumps(said))


class Clocks:
    """A clock around named functions: what each spends itself, without the named functions it calls."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self.missing: list[str] = []
        self._inner = [[0.0, 0.0]]

    def around(self, part: str, module: str, name: str) -> None:
        """Put the clock around a function or method, wherever it is looked up from now on."""
        place: Any = importlib.import_module(module)
        *owners, last = name.split(".")
        for owner in owners:
            place = getattr(place, owner, None)
        if not callable(getattr(place, last, None)):
            self.missing.append(f"{module}.{name}")
            return
        setattr(place, last, self._timed(part, getattr(place, last)))

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*args: Any, **named: Any) -> Any:
            self._inner.append([0.0, 0.0])
            before = time.thread_time(), time.perf_counter()
            try:
                return function(*args, **named)
            finally:
                took = time.thread_time() - before[0], time.perf_counter() - before[1]
                inner = self._inner.pop()
                for place in (0, 1):
                    self.spent[part][place] += took[place] - inner[place]
                    self._inner[-1][place] += took[place]

        return timed


def sentences() -> list[str]:
    """The sentences of this project's documents, tables and code left out."""
    files = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = []
    for file in files:
        text = re.sub(r"```.*?```", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        for paragraph in re.split(r"\n\s*\n", text):
            if not paragraph.startswith(("|", "#")):
                found += re.split(r"(?<=[.!?:])\s+", " ".join(paragraph.split()))
    return [sentence for sentence in found if 40 <= len(sentence) <= 400]


def write_sources(folder: Path, passages: int, draw: random.Random, texts: Sequence[str]) -> None:
    """Markdown files of ten sections each, every section long enough to be a passage of its own."""
    folder.mkdir()
    for number in range(-(-passages // SECTIONS_A_FILE)):
        lines = [f"# Document {number}"]
        for section in range(min(SECTIONS_A_FILE, passages - number * SECTIONS_A_FILE)):
            body = ""
            while len(body) < 500:
                body += f"{draw.choice(texts)} "
            lines += ["", f"## Part {section}", "", body.strip()]
        (folder / f"document-{number}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


class World:
    """A store with a memory, and items that ask."""

    def __init__(self, folder: Path, *, passages: int, episodes: int) -> None:
        self.folder = folder
        self._draw = random.Random(7)
        self._texts = sentences()
        prepare(folder / "state")
        write_sources(folder / "sources", passages, self._draw, self._texts)
        self.globs = (str(folder / "sources" / "*.md"),)
        store = open_store(folder / "state")
        refresh(store, "q", self.globs, folder, now=time.time())
        self._learn(store, episodes)
        self.passages = store.sources.counts("q")[1]
        self.episodes = _episodes(store)
        store.close()

    def ask(self, store: SqliteStore, count: int) -> None:
        """Hand in `count` questions: some words of a sentence each."""
        handed = []
        for number in range(count):
            words = self._draw.choice(self._texts).split()
            start = self._draw.randrange(max(1, len(words) - 12))
            title = f"{' '.join(words[start : start + 12])} ({time.time_ns()}-{number})"
            handed.append(Handed("q", title, "cli", title=title, name=title[:60]))
        store.intake.hand_in(handed, now=time.time(), caps={"q": 10**9})

    def _learn(self, store: SqliteStore, episodes: int) -> None:
        """Sessions with lessons until there are so many episodes; known ones are refused, so some are made twice."""
        while (missing := episodes - _episodes(store)) > 0:
            lessons = [" ".join(self._draw.sample(self._texts, 2)) for _ in range(missing)]
            self.ask(store, -(-missing // LESSONS_A_SESSION))
            self.drain(store, Teacher(lessons))

    def drain(self, store: SqliteStore, decider: Instant) -> int:
        """Work off what waits, in this process; how many sessions."""
        policy = QueuePolicy(decider="x", outbox=self.folder / "outbox", sources=self.globs)
        plan = Plan(
            state_dir=self.folder / "state",
            folder=self.folder,
            limits=DaemonLimits(),
            queues={"q": policy},
            deciders={},
        )
        link, other = Link.pair()
        threading.Thread(target=_swallow, args=(other,), daemon=True).start()
        return drain(plan, store, link, deciders={"x": decider})


class Worked(NamedTuple):
    """One worker's run: sessions, seconds and CPU seconds of all of it, and of each part when they were timed."""

    done: int
    wall_s: float
    cpu_s: float
    parts: dict[str, Spent]
    missing: tuple[str, ...]


def work(world: World, answers: Any, *, timed: bool) -> None:
    clocks = Clocks()
    for part in PARTS if timed else ():
        clocks.around(*part)
    store = open_store(world.folder / "state")
    before = time.perf_counter(), time.process_time()
    done = world.drain(store, Instant())
    took = time.perf_counter() - before[0], time.process_time() - before[1]
    store.close()
    parts = {name: Spent(*spent) for name, spent in clocks.spent.items()}
    answers.put(Worked(done, *took, parts, tuple(clocks.missing)))


def in_a_worker(world: World, count: int, *, timed: bool = False) -> Worked:
    store = open_store(world.folder / "state")
    world.ask(store, count)
    store.close()
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=work, args=(world, answers), kwargs={"timed": timed})
    child.start()
    worked: Worked = answers.get(timeout=600)
    child.join()
    assert worked.done == count, worked
    return worked


def show_parts(worked: Worked) -> None:
    """CPU and wall of each part of a session, the dearest first."""
    count = worked.done
    rest = Spent(
        worked.cpu_s - sum(part.cpu_s for part in worked.parts.values()),
        worked.wall_s - sum(part.wall_s for part in worked.parts.values()),
    )
    print(f"\n{'a session, by part':26}CPU ms   share  wall ms")
    rows = sorted(worked.parts.items(), key=lambda one: -one[1].cpu_s)
    for name, part in (*rows, ("the rest", rest), ("all", Spent(worked.cpu_s, worked.wall_s))):
        share = part.cpu_s / worked.cpu_s
        print(f"{name:26}{part.cpu_s / count * 1000:6.2f}{share:8.0%}{part.wall_s / count * 1000:9.2f}")
    if worked.missing:
        print(f"without a clock, in the part that calls them: {', '.join(worked.missing)}")


def _swallow(sock: Any) -> None:
    sock.setblocking(True)
    while sock.recv(65536):
        pass


def _episodes(store: SqliteStore) -> int:
    with store.db.read() as conn:
        return int(conn.execute("SELECT count(*) FROM episodes").fetchone()[0])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--passages", type=int, default=200)
    parser.add_argument("--sessions", type=int, default=300)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--envs", type=Path, default=ENVS)
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    if not options.alone:
        python_of(DBOS.env, options.envs)
    rates, ratios = [], []
    with scratch() as folder:
        world = World(folder, passages=options.passages, episodes=options.episodes)
        print(f"{world.episodes} episodes, {world.passages} passages", flush=True)
        for number in range(options.rounds):
            worked = in_a_worker(world, options.sessions)
            rates.append(worked.done / worked.wall_s)
            cpu_ms = worked.cpu_s / worked.done * 1000
            said = f"round {number + 1}: {rates[-1]:.0f} sessions/s, CPU {cpu_ms:.1f} ms each"
            if not options.alone:
                beside = peer_pace(DBOS, options.envs, options.items).per_s
                ratios.append(rates[-1] / beside)
                said += f" · {DBOS.name} {beside:.0f} ({ratios[-1]:.1f} ×)"
            print(said, flush=True)
        show_parts(in_a_worker(world, options.sessions, timed=True))
    print(f"\nmedian of {len(rates)}: {statistics.median(rates):.0f} sessions/s with retrieval on")
    if not ratios:
        return 0
    held = statistics.median(ratios) >= 1
    print(
        f"{statistics.median(ratios):.1f} × {DBOS.name}, at least 1: {'holds' if held else 'DOES NOT HOLD'}"
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
