"""Real receivers on loopback: an HTTP server and a mail server."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Web:
    """A loopback HTTP server that notes what it was sent; ``answer`` decides what it says."""

    def __init__(self) -> None:
        self.got: list[dict] = []
        self.paths: list[str] = []
        self.status = 200
        self.location = ""
        self.sleep_s = 0.0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.paths.append(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if body:
                    outer.got.append(json.loads(body))
                if outer.sleep_s:
                    time.sleep(outer.sleep_s)
                self.send_response(outer.status)
                if outer.location:
                    self.send_header("Location", outer.location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST  # noqa: N815 – the base class calls it so

            def log_message(self, *args) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]

    @property
    def ids(self) -> list[str]:
        """The visible ids of what arrived."""
        return [one["title"].rpartition("(")[2].rstrip(")") for one in self.got]


@contextmanager
def web():
    one = Web()
    thread = threading.Thread(target=one.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield one
    finally:
        one.server.shutdown()
        one.server.server_close()
        thread.join()
