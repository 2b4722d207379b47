"""What the daemon costs when nothing happens, with every trigger on, over all of its processes.

    python benchmarks/idle.py [--minutes 1]
    python benchmarks/idle.py --minutes 10 --settle 120       the long form

Two inboxes, a timer every minute, a cron timer, a webhook server, alerts and a heartbeat to a receiver outside the
service. CPU and wake-ups (voluntary context switches of every thread) are differences over the time; threads that came
and went in it count for CPU alone. The raw reference is an interpreter that imported the same libraries and sleeps.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from service_world import Figure, Service, folder_in, parser, question, report, spent

IMPORTS = "import asyncio, sqlite3, pydantic, apscheduler, watchfiles, starlette.applications, uvicorn"
EXTRA = """
[queues.second]
inbox = "inbox-2"
outbox = "outbox-2"
decider = "local"
[triggers.often]
kind = "timer"
queues = ["q"]
every = "60s"
[triggers.nightly]
kind = "timer"
queues = ["second"]
cron = "0 2 * * mon-fri"
timezone = "Europe/Berlin"
item = { title = "Nightly", body = "What changed today?" }
"""
WEBHOOK = """
[http]
bind = "127.0.0.1:0"
[webhooks.shop]
scheme = "github"
queue = "q"
secret_file = "hook.secret"
"""


class Receiver(BaseHTTPRequestHandler):
    """Takes pings."""

    def do_GET(self) -> None:
        """Taken."""
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        """Taken, too."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def log_message(self, *_words: object) -> None:
        """Silent."""


def notify(service: Service, port: int) -> str:
    for name, url in (("page.url", f"json://127.0.0.1:{port}/"), ("beat.url", f"http://127.0.0.1:{port}/")):
        (service.folder / name).write_text(url)
        (service.folder / name).chmod(0o600)
    return '[notify]\nservices = [{ url_file = "page.url" }]\nheartbeat_url_file = "beat.url"\n'


def measure(service: Service, settle_s: float, minutes: float) -> list[Figure]:
    """Start it, give it one item so that everything has been used, let it settle, look twice."""
    service.start()
    service.drop("first.md", question(1))
    service.until(lambda: service.value("SELECT count(*) FROM items WHERE state = 'done'") == 1)
    time.sleep(settle_s)
    commits = service.value("SELECT seq FROM commits")
    before = service.spent()
    time.sleep(60 * minutes)
    after = service.spent()
    commits = service.value("SELECT seq FROM commits") - commits
    raw = subprocess.Popen([sys.executable, "-c", f"{IMPORTS}, time; time.sleep(600)"])
    time.sleep(4)
    bare = spent([raw.pid])
    raw.kill()
    raw.wait()
    seconds = after.at - before.at
    return [
        Figure("CPU", 100 * (after.cpu_s - before.cpu_s) / seconds, "%", at_most=0.1),
        Figure("wake-ups a second", (after.wakes - before.wakes) / seconds, at_most=2),
        Figure("RSS of the daemon", after.rss_mib, "MiB", at_most=60),
        Figure("PSS of all processes", after.pss_mib, "MiB", at_most=90),
        Figure("processes (the daemon, and the one that starts workers)", after.processes, at_most=2),
        Figure("written to the disk", (after.written - before.written) / 1024, "KiB"),
        Figure("commits in the store", commits),
        Figure(
            "RSS of the daemon, of a bare interpreter with its libraries", after.rss_mib / bare.rss_mib, "×"
        ),
    ]


def main() -> int:
    words = parser(__doc__)
    words.add_argument("--minutes", type=float, default=1.0)
    words.add_argument("--settle", type=float, default=20.0, help="seconds before the first look")
    options = words.parse_args()
    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    with folder_in(options.folder) as folder:
        (folder / "inbox-2").mkdir()
        (folder / "outbox-2").mkdir()
        (folder / "hook.secret").write_text("a secret of no importance")
        (folder / "hook.secret").chmod(0o600)
        service = Service(folder)
        config = folder / "shiftwork.toml"
        config.write_text(config.read_text() + EXTRA + WEBHOOK + notify(service, receiver.server_port))
        try:
            found = measure(service, options.settle, options.minutes)
        finally:
            service.stop()
    print(f"{options.minutes:g} min, after {options.settle:g} s of rest")
    return report(found)


if __name__ == "__main__":
    sys.exit(main())
