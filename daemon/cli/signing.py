"""``shiftwork sign FILE --webhook NAME``: the headers that a sender would send with FILE, to try a webhook with curl.

The headers go to stdout, quoted for a shell; the whole command goes to stderr. Nothing is sent and nothing is stored.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from daemon.cli import light, screen
from store import credentials
from store.errors import ConfigProblem, NotFound, UsageProblem
from store.text import shown
from triggers.webhooks import signatures

MAX_BYTES = 64 << 20
DEFAULT_BIND = "127.0.0.1:8765"
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - where it is called, not where it is bound


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """FILE, and what the sender would say beside it."""
    parser.add_argument("file", metavar="FILE|-", help="the body, byte for byte; - reads standard input")
    parser.add_argument("--webhook", metavar="NAME", required=True, help="whose secret signs it")
    parser.add_argument("--id", metavar="ID", help="the delivery's id (default: a fresh one)")
    parser.add_argument(
        "--at", metavar="TIME", help="signed when: 2026-03-29T08:00:00Z or seconds since 1970"
    )
    parser.add_argument("--event", metavar="E", help="the kind of event (scheme github), such as issues")


def run(args: argparse.Namespace) -> int:
    """Print the headers. Exit 3 when there is no such webhook, 78 when its table or secret cannot be used."""
    places = light.places(args.config)
    table = _table(places, args.webhook)
    scheme = table["scheme"]
    if args.event is not None and scheme != "github":
        raise UsageProblem(
            f'--event: webhook "{args.webhook}" has the scheme {scheme}, which has no event header'
        )
    delivery = args.id or ("msg_" if scheme == "standard" else "") + secrets.token_hex(12)
    for name, text in (("--id", delivery), ("--event", args.event or "")):
        if not (text.isascii() and text.isprintable() and len(text) <= 128):
            raise UsageProblem(f"{name}: at most 128 letters, digits and signs, no line ends")
    body = _read(args.file)
    made = signatures.signed_headers(
        scheme, _secret(places, table), body, delivery=delivery, now=_when(args.at), event=args.event or ""
    )
    headers = {"Content-Type": "application/json"} | made
    options = " ".join(f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items())
    screen.out(options)
    file = "@-" if args.file == "-" else f"@{args.file}"
    url = f"{_url(places)}/hooks/{args.webhook}"
    screen.note(f"Deliver it:  curl {options} --data-binary {shlex.quote(file)} {shlex.quote(url)}")
    return 0


def _table(places: light.Places, name: str) -> Mapping[str, Any]:
    tables = places.data.get("webhooks", {})
    if not isinstance(tables, dict) or name not in tables:
        known = ", ".join(sorted(tables)) if isinstance(tables, dict) else ""
        raise NotFound(f'there is no webhook "{shown(name, 60)}"; there are: {known or "none"}')
    table = tables[name]
    files = table.get("secret_file") if isinstance(table, dict) else None
    if isinstance(files, str):
        files = [files]
    first = files[0] if isinstance(files, list) and files else None
    if not isinstance(first, str) or table.get("scheme") not in signatures.SCHEMES:
        check = screen.command("check-config", config=places.file)
        raise ConfigProblem(
            f"{places.file}: [webhooks.{name}] cannot be used as it is. See why:  {check}"
        ) from None
    return {"scheme": table["scheme"], "secret_file": first}


def _secret(places: light.Places, table: Mapping[str, Any]) -> bytes:
    """The first secret, which is the one that senders are given."""
    folder, name = os.path.dirname(os.path.abspath(places.file)), table["secret_file"]
    file = name
    try:
        file = credentials.place(name, folder) or os.path.join(folder, name)
        with open(file, "rb") as stream:
            return signatures.secret_of(stream.read(signatures.MAX_SECRET_BYTES + 1), table["scheme"])
    except OSError as error:
        raise ConfigProblem(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError as problem:
        raise ConfigProblem(f"{file}: {problem}") from None


def _read(file: str) -> bytes:
    if file == "-":
        if sys.stdin.isatty():
            screen.note("reading from the terminal; end with Ctrl-D on an empty line")
        return sys.stdin.buffer.read(MAX_BYTES)
    with open(file, "rb") as source:
        return source.read(MAX_BYTES)


def _when(text: str | None) -> float:
    if text is None:
        return time.time()
    if text.isascii() and text.isdigit() and len(text) <= 12:
        return float(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise UsageProblem(
            f'--at "{shown(text, 40)}" is neither a time like 2026-03-29T08:00:00Z nor seconds'
        )
    return at.timestamp()


def _url(places: light.Places) -> str:
    http = places.data.get("http", {})
    bind = http.get("bind", DEFAULT_BIND) if isinstance(http, dict) else DEFAULT_BIND
    host, _, port = str(bind).rpartition(":")
    return f"http://{_ANYWHERE.get(host, host)}:{'PORT' if port == '0' else port}"
