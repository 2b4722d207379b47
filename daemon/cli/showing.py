"""``shiftwork show``: an item or a flag, whole."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from daemon.cli import cells, reach, screen, shapes, times
from store import moments
from store.errors import NotFound
from store.text import death_words, shown, shown_block

BODY_LINES = 15
NEWEST = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """ID --json."""
    parser.add_argument("id", metavar="ID", type=reach.utf8, help="an item (q-0001) or a flag (f-0001)")
    parser.add_argument("--json", action="store_true", help="for programs, with nothing cut")


def run(args: argparse.Namespace) -> int:
    """Print it. Exit 3 when there is none."""
    now = time.time()
    flag = args.id.startswith("f-")
    with reach.reading(args) as (places, store):
        if store is None:
            raise NotFound(f'there is no "{shown(args.id, 60)}": nothing was handed in yet')
        found = store.views.flag(args.id, now=now) if flag else store.views.item(args.id, now=now)
    if args.json:
        shapes.out(found)
        return 0
    if flag:
        from daemon.cli import flag_screen

        lines = flag_screen.lines(found, now, config=places.file)
    else:
        place = places.queues.get(found["queue"])
        outbox = place.outbox if place is not None else None
        lines = _item(found, now, config=str(places.file), outbox=outbox)
    for line in lines:
        screen.out(line)
    return 0


def _item(item: dict[str, Any], now: float, *, config: str, outbox: Path | None) -> Iterator[str]:
    state = item["state"] + (" · stale" if item["stale"] else "")
    tries = screen.count(item["attempts"], "attempt")
    yield f"{item['id']} · {shown(item['queue'])} · {state} · {moments.age(item['age_s'])} old · {tries}"
    yield from cells.labelled("TITLE", shown(item["title"]) or "-")
    yield from cells.labelled("FROM", _origin(item, now))
    yield from cells.labelled("BODY", _body(item["body"]))
    for number, rule in enumerate(item["constraints"]):
        yield from cells.labelled("RULES" if number == 0 else "", f"{shown(rule['text'])} ({rule['kind']})")
    yield from _result(item, now)
    for number, one in enumerate(one for one in item["conclusions"] if one["superseded_by"] is None):
        yield from cells.labelled(
            "FOUND" if number == 0 else "", f"{shown(one['subject'])}: {shown(one['value'])}"
        )
    for number, flag in enumerate(item["flags"][-NEWEST:]):
        yield from cells.labelled("FLAGS" if number == 0 else "", _flag(flag, now))
    for number, session in enumerate(item["sessions"][-NEWEST:]):
        yield from cells.labelled("SESSIONS" if number == 0 else "", _session(session, now))
    written = [file for file in item["files"] if file["state"] == "written" and file["path"]]
    for number, file in enumerate(written):
        yield ("FILES" if number == 0 else "").ljust(cells.LABEL) + shown(screen.quoted(file["path"]))
    if not written and outbox is not None and any(file["state"] == "due" for file in item["files"]):
        yield "FILES".ljust(cells.LABEL) + f"in {shown(screen.quoted(str(outbox)))}"
    yield "NEXT".ljust(cells.LABEL) + _next(item, config)


def _origin(item: dict[str, Any], now: float) -> str:
    parts = [
        f"{item['door']} {shown(item['origin'])}".strip(),
        times.moment(item["created_at"], now) + f" {screen.zone()}",
    ]
    if item["revision"] > 1:
        parts.append(
            f"revision {item['revision']} counts, {screen.count(item['revision'] - 1, 'earlier one')} kept"
        )
    if item["priority"]:
        parts.append(f"priority {item['priority']}")
    return " · ".join([*parts, f"key {shown(item['key'], 40)}", f"version {item['version']}"])


def _body(body: str) -> str:
    lines = shown_block(body.strip("\n")).split("\n")
    if len(lines) <= BODY_LINES:
        return "\n".join(lines)
    return "\n".join([*lines[:BODY_LINES], f"… {len(lines) - BODY_LINES} more lines (--json has them all)"])


def _result(item: dict[str, Any], now: float) -> Iterator[str]:
    result = item["result"]
    if result is None:
        return
    yield from cells.labelled("ANSWER", shown_block(result.get("text", "")))
    cited = ", ".join(shown(ref) for ref in result.get("citations", []))
    if cited:
        yield from cells.labelled("CITES", cited)
    done = f"{times.moment(item['finished_at'], now)}" if item["finished_at"] is not None else "-"
    by = f" by {shown(result['by'])}" if result.get("by") else ""
    yield from cells.labelled("DONE", done + by + (", unverified" if item["unverified"] else ""))
    if item["stale"]:
        yield from cells.labelled("STALE", shown(item["stale"]))


def _flag(flag: dict[str, Any], now: float) -> str:
    said = f"{flag['id']} {flag['state']} · {shown(flag['question'] or flag['stuck'])}"
    if flag["state"] == "resolved":
        from daemon.cli.flag_screen import answer_text

        at = times.moment(flag["resolved_at"], now)
        return f'{said} → "{answer_text(flag)}", {shown(flag["resolved_by"])}, {at}'
    return f"{said} ({moments.age(flag['age_s'])})"


def _session(session: dict[str, Any], now: float) -> str:
    ended = session["ended_at"]
    lasted = (now if ended is None else ended) - session["started_at"]
    at = times.moment(session["started_at"], now)
    cause = f": {shown(death_words(session['cause']))}" if session["cause"] else ""
    return f"{session['id']} {session['outcome']} {at}, {max(lasted, 0.0):.1f} s{cause}"


def _next(item: dict[str, Any], config: str) -> str:
    waiting = [flag for flag in item["flags"] if flag["state"] in ("waiting", "parked")]
    if waiting:
        return screen.command("show", waiting[0]["id"], config=config)
    if item["state"] == "done" and item["stale"]:
        return screen.command("retry", item["id"], config=config)
    if item["state"] in ("done", "aborted"):
        return screen.command("log", item["id"], config=config)
    return screen.command("why", item["id"], config=config)
