"""Durable HTTP accepts at 16 connections, against the same server and handler without the commit.

    python benchmarks/accepts.py [--rounds 5] [--seconds 3]

Two real daemons, in turn: one as it is, and one in which the store's intake answers at once and writes nothing (put in
its place here, by a `sitecustomize`). The queue of the webhook is paused. Then the same beside one worker that is busy
with another queue. The sender is a process of its own with everything signed beforehand (hook_load.py). Syncs are
counted by strace in a run of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import service_world
from service_world import QUESTION, Figure, Service, folder_in, median, parser, report

from store.intake import Handed
from store.sqlite import open_store

NO_COMMIT = """
from store import intake
def hand_in_waiting(self, waiting, **_more):
    return [intake.Taken("q-none", "new", "open", handed.key or "") for handed in waiting()]
intake.Intake.hand_in_waiting = hand_in_waiting
"""
SECRET = "whsec_bm90IGEgc2VjcmV0IG9mIGFueWJvZHksIGp1c3QgYnl0ZXM="
LOAD = Path(__file__).with_name("hook_load.py")


def made(folder: Path) -> Service:
    """A daemon with a webhook for a queue that is paused, and another queue to be busy with."""
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "hook.secret").write_text(SECRET)
    (folder / "hook.secret").chmod(0o600)
    (folder / "outbox-2").mkdir()
    return Service(
        folder,
        queue="max_waiting = 10000000",
        extra=(
            f'[http]\nbind = "127.0.0.1:{port}"\n'
            '[webhooks.shop]\nqueue = "q"\nscheme = "standard"\nsecret_file = "hook.secret"\n'
            '[queues.busy]\noutbox = "outbox-2"\ndecider = "local"\nsources = ["docs/*.md"]\n'
            "max_waiting = 10000000\n"
        ),
    )


def port_of(service: Service) -> str:
    """Where it listens."""
    config: dict[str, Any] = tomllib.loads((service.folder / "shiftwork.toml").read_text())
    return str(config["http"]["bind"].rpartition(":")[2])


def fill(service: Service, count: int) -> None:
    """Work for the other queue."""
    store = open_store(service.state)
    for start in range(0, count, 2000):
        keys = [f"{time.time_ns()}.{start + number}" for number in range(min(2000, count - start))]
        batch = [Handed("busy", QUESTION, "cli", key=key, name=key) for key in keys]
        store.intake.hand_in(batch, now=time.time(), caps={"busy": 10**8})
    store.close()


def load(service: Service, seconds: float) -> dict[str, Any]:
    """One flood. Anything but an accept is an error."""
    words = [str(LOAD), "--port", port_of(service), "--path", "/hooks/shop", "--seconds", str(seconds)]
    words += ["--most", str(round(8000 * seconds))]
    sender = subprocess.Popen(
        [sys.executable, *words, "--secret-file", str(service.folder / "hook.secret")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert sender.stdout is not None
    assert sender.stdout.readline() == "ready\n"
    time.sleep(0.3)
    out, _ = sender.communicate("\n")
    found: dict[str, Any] = json.loads(out)
    if set(found["statuses"]) != {"202"}:
        raise SystemExit(f"statuses {found['statuses']}\n{service.said()[-2000:]}")
    return found


def syncs(service: Service, seconds: float) -> list[Figure]:
    """Syncs of the daemon a request."""
    if not shutil.which("strace"):
        print("syncs not counted: strace is not installed")
        return []
    assert service.process is not None
    trace = service.folder / "trace"
    words = ("strace", "-f", "-y", "-e", "trace=fsync,fdatasync", "-o", str(trace), "-p")
    tracer = subprocess.Popen([*words, str(service.process.pid)], stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    found = load(service, seconds)
    time.sleep(0.5)
    tracer.send_signal(signal.SIGINT)
    tracer.wait()
    count = sum("sync(" in line for line in trace.read_text().splitlines())
    return [Figure("syncs a request", count / sum(found["statuses"].values()), at_most=0.2)]


def main() -> int:
    words = parser(__doc__)
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--seconds", type=float, default=3.0, help="of each flood")
    options = words.parse_args()
    with folder_in(options.folder) as folder:
        hollow = folder / "hollow"
        hollow.mkdir()
        (hollow / "sitecustomize.py").write_text(NO_COMMIT)
        ours, raw = made(folder / "ours"), made(folder / "raw")
        try:
            ours.start()
            normal = service_world.ENVIRONMENT["PYTHONPATH"]
            service_world.ENVIRONMENT["PYTHONPATH"] = f"{hollow}{os.pathsep}{normal}"
            raw.start()
            service_world.ENVIRONMENT["PYTHONPATH"] = normal
            return report(measure(ours, raw, options.rounds, options.seconds))
        finally:
            for service in (ours, raw):
                with suppress(SystemExit):
                    service.stop()


def measure(ours: Service, raw: Service, rounds: int, seconds: float) -> list[Figure]:
    """All figures: free, then beside a busy worker."""
    for service in (ours, raw):
        service.command("pause", "q")
        service.command("pause", "busy")
    alone = [(load(ours, seconds), load(raw, seconds)) for _ in range(rounds)]
    synced = syncs(ours, seconds)
    for service in (ours, raw):
        fill(service, round(1500 * seconds * rounds))
    busy, sessions = [], []
    for _ in range(rounds):
        found, per_s = beside_a_worker(ours, seconds)
        sessions.append(per_s)
        busy.append((found, beside_a_worker(raw, seconds)[0]))
    free = median([other["rate"] for _, other in alone])
    return [
        Figure("accepts a second", median([one["rate"] for one, _ in alone])),
        Figure("the handler without the commit, a second", free),
        Figure("accepts, of the handler without the commit", ratio(alone), "×", at_least=0.5),
        Figure("p99 of an accept", median([one["p99_ms"] for one, _ in alone]), "ms"),
        *synced,
        Figure("beside one busy worker: accepts a second", median([one["rate"] for one, _ in busy])),
        Figure(
            "beside one busy worker: accepts, of the handler without the commit and without the worker",
            median([one["rate"] for one, _ in busy]) / free, "×", at_least=0.4,
        ),
        Figure("beside one busy worker: … and beside the same worker", ratio(busy), "×"),
        Figure(
            "beside one busy worker: p99 of an accept", median([one["p99_ms"] for one, _ in busy]), "ms", at_most=50
        ),
        Figure("beside one busy worker: longest accept", max(one["max_ms"] for one, _ in busy), "ms"),
        Figure("beside one busy worker: its sessions a second", median(sessions)),
    ]  # fmt: skip


def beside_a_worker(service: Service, seconds: float) -> tuple[dict[str, Any], float]:
    """A flood while one worker drains the other queue; its sessions a second meanwhile."""
    count = "SELECT count(*) FROM sessions"
    before = service.value(count)
    service.command("resume", "busy")
    service.until(lambda: service.value(count) > before)
    before, at = service.value(count), time.monotonic()
    found = load(service, seconds)
    per_s = (service.value(count) - before) / (time.monotonic() - at)
    service.command("pause", "busy")
    time.sleep(0.5)
    if not service.value("SELECT count(*) FROM items WHERE queue = 'busy' AND state = 'open'"):
        raise SystemExit("the worker ran out of work")
    return found, per_s


def ratio(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> float:
    return median([one["rate"] / other["rate"] for one, other in pairs])


if __name__ == "__main__":
    sys.exit(main())
