"""A model's server on a real socket, in this process: it says what its script says, byte for byte.

A step of the script is an ``Act`` (or a function of the request that gives one); the last one stays for ever. Each
request is kept whole: method, path, headers and body.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Self


class Act(NamedTuple):
    """What to do with one request. ``drip_s``: a byte at a time with this pause; ``cut``: only so many bytes of it
    all, then the connection is dropped; ``head_drips``: the head drips too.
    """

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),)
    drip_s: float = 0.0
    cut: int | None = None
    head_drips: bool = False
    silent_s: float = 0.0


class Asked(NamedTuple):
    """One request as it came."""

    line: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self):
        return json.loads(self.raw)


def act(body, status=200, **more) -> Act:
    """An act with a JSON body, or the bytes as they are."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = tuple((name.replace("_", "-"), str(value)) for name, value in more.pop("headers", {}).items())
    if not any(name == "content-type" for name, _ in headers):
        headers = (("content-type", "application/json"), *headers)
    return Act(status, data, headers, **more)


class ModelServer:
    """``with ModelServer(act(...), ...) as server``: ``server.url``, ``server.asked``."""

    def __init__(self, *script: Act | Callable[[Asked], Act]) -> None:
        self.script = list(script)
        self.asked: list[Asked] = []
        self.came = threading.Semaphore(0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        with socket.socket() as knock:
            knock.connect_ex(("127.0.0.1", self.port))
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            conn, _ = self._listener.accept()
            if self._over.is_set():
                conn.close()
                return
            threading.Thread(target=self._one, args=(conn,), daemon=True).start()

    def _one(self, conn: socket.socket) -> None:
        with conn:
            try:
                asked = _read(conn)
                if asked is not None:
                    self._answer(conn, asked)
            except OSError:
                pass  # whoever asked is gone

    def _answer(self, conn: socket.socket, asked: Asked) -> None:
        with self._lock:
            self.asked.append(asked)
            step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        self.came.release()
        one = step if isinstance(step, Act) else step(asked)
        self._over.wait(one.silent_s)
        names = {name for name, _ in one.headers}
        length = () if "content-length" in names else (("content-length", str(len(one.body))),)
        lines = [
            f"HTTP/1.1 {one.status} Said",
            *(f"{name}: {value}" for name, value in (*one.headers, *length)),
        ]
        head = ("\r\n".join([*lines, "connection: close", "", ""])).encode("latin-1")
        data = head + one.body
        if one.cut is not None:
            data = data[: one.cut]
        if not one.drip_s:
            conn.sendall(data)
            return
        start = 0 if one.head_drips else len(head)
        conn.sendall(data[:start])
        for index in range(start, len(data)):
            if self._over.is_set():
                return
            conn.sendall(data[index : index + 1])
            time.sleep(one.drip_s)


def _read(conn: socket.socket) -> Asked | None:
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = conn.recv(65536)
        if not chunk:
            return None
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    line, *rest = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (one.partition(":") for one in rest)}
    while len(body) < int(headers.get("content-length", "0")):
        chunk = conn.recv(65536)
        if not chunk:
            return None
        body += chunk
    return Asked(line, headers, body)


def openai_reply(*calls, content=None, tokens=(120, 40), finish="tool_calls", usage=True):
    """A chat completion with these calls: (name, arguments); arguments that are no text become JSON."""
    message = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": name, "arguments": args if isinstance(args, str) else json.dumps(args)},
            }
            for number, (name, args) in enumerate(calls)
        ]
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_800_000_000,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }
    if usage:
        body["usage"] = {
            "prompt_tokens": tokens[0],
            "completion_tokens": tokens[1],
            "total_tokens": sum(tokens),
        }
    return body


def anthropic_reply(*calls, text=None, usage=(120, 40), cached=(0, 0), stop="tool_use"):
    """A message with these tool_use blocks: (name, input)."""
    content = [{"type": "text", "text": text}] if text else []
    content += [
        {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": args}
        for number, (name, args) in enumerate(calls)
    ]
    body = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
            "stop_reason": stop, "stop_sequence": None}  # fmt: skip
    if usage:
        body["usage"] = {
            "input_tokens": usage[0],
            "cache_creation_input_tokens": cached[0],
            "cache_read_input_tokens": cached[1],
            "output_tokens": usage[1],
        }
    return body


def ollama_reply(content, *, tokens=(120, 40), done="stop"):
    """A whole ``/api/chat`` reply; content that is no text becomes JSON."""
    body = {
        "model": "m",
        "created_at": "2026-01-05T13:02:11.000000Z",
        "message": {
            "role": "assistant",
            "content": content if isinstance(content, str) else json.dumps(content),
        },
        "done": True,
        "done_reason": done,
        "total_duration": 5_000_000,
    }
    if tokens:
        body |= {"prompt_eval_count": tokens[0], "eval_count": tokens[1]}
    return body
