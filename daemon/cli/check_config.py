"""``shiftwork check-config``: all that is wrong at once, and what the good rest means. Needs no running daemon.

It tries each folder (FIELD 10), gives the next three times of each timer and the services per tag (FIELD 49), and
sees that nobody else owns our package names. ``--show`` prints every value in force, secrets masked (FIELD 50).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from daemon import folders, packages
from daemon.banner import http_lines
from daemon.cli import light, screen, times
from daemon.config import Config, lines_of, read
from daemon.config_words import Problem, key_text, report, without_secrets
from daemon.http import listening
from daemon.toml_lines import KeyPath, line_of
from memory import globs
from store import moments
from store.errors import ConfigProblem
from store.text import shown
from triggers.config import TimerTrigger
from triggers.ticks import next_times

NEXT_TIMES = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--show, --json."""
    parser.add_argument("--show", action="store_true", help="print every value in force, secrets masked")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    """Exit 0 when the daemon could start with this file, else 78."""
    file = light.find(args.config)
    reading = read(file)
    problems = list(reading.problems)
    warnings = list(reading.warnings)
    meaning: dict[str, Any] = {}
    if reading.config is not None:
        lines = lines_of(file)
        services, silent = _services(reading.config)
        meaning = _meaning(reading.config, services, time.time())
        meaning["plugins"] = [use._asdict() for use in reading.plugins]
        problems += [_problem(lines, path, rule) for path, rule in folder_problems(reading.config)]
        warnings += [_problem(lines, path, rule) for path, rule in (*folder_doubts(reading.config), *silent)]
        problems += [Problem(1, "installation", None, line) for line in packages.strangers()]
    if args.json:
        _print_json(file, problems, warnings, meaning, reading.config if args.show else None)
    else:
        _print(file, problems, warnings, meaning, reading.config, show=args.show)
    return ConfigProblem.exit_code if problems else 0


def folder_problems(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """Folders in which the daemon could not do its work, each tried for real."""
    problem = folders.trial(config.state_dir)
    if problem:
        yield ("state_dir",), problem
    for name, queue in config.queues.items():
        for key, folder in (("inbox", queue.inbox), ("outbox", queue.outbox)):
            problem = folders.trial(folder) if folder is not None else None
            if problem:
                yield ("queues", name, key), problem


def folder_doubts(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """Folders that work for us and may not work for those who drop files."""
    for name, queue in config.queues.items():
        if queue.inbox is not None and folders.foreign_files_stay(queue.inbox):
            yield ("queues", name, "inbox"), "sticky folder: files of other users cannot be taken from it"


def _problem(lines: Mapping[KeyPath, int], path: KeyPath, rule: str) -> Problem:
    return Problem(line_of(dict(lines), path), key_text(path), None, rule)


def _meaning(config: Config, services: Mapping[str, int], now: float) -> dict[str, Any]:
    """What the file comes to: queues, next times, services."""
    return {
        "state_dir": str(config.state_dir),
        "queues": {
            name: {
                "inbox": None if queue.inbox is None else str(queue.inbox),
                "outbox": None if queue.outbox is None else str(queue.outbox),
                "decider": queue.decider,
                "kind": config.deciders[queue.decider].kind,
                "sources": globs.count(queue.sources),
            }
            for name, queue in config.queues.items()
        },
        "timers": {
            name: next_times(trigger, now=now, count=NEXT_TIMES)
            for name, trigger in config.triggers.items()
            if isinstance(trigger, TimerTrigger)
        },
        "http": listening.url_of(config.http) if config.listens else None,
        "webhooks": {
            name: {"queue": hook.queue, "scheme": hook.scheme} for name, hook in config.webhooks.items()
        },
        "services": services,
    }


def _services(config: Config) -> tuple[dict[str, int], list[tuple[KeyPath, str]]]:
    """Tag → how many services Apprise really makes of the files that name it, and why others do not count."""
    if not config.notify.services:
        return {}, []
    from notify.policy import policy_from
    from notify.services import look_at

    places = {str(service.url_file): index for index, service in enumerate(config.notify.services)}
    states = look_at(policy_from(config.notify))
    tags = sorted({tag for state in states for tag in state.tags})
    return (
        {tag: sum(state.loads and tag in state.tags for state in states) for tag in tags},
        [
            (("notify", "services", places[state.url_file]), f"reaches nobody: {state.words}")
            for state in states
            if not state.loads
        ],
    )


def _print_json(
    file: Path,
    problems: list[Problem],
    warnings: list[Problem],
    meaning: Mapping[str, Any],
    shown_config: Config | None,
) -> None:
    timers = meaning.get("timers", {})
    document: dict[str, Any] = {
        "file": str(file),
        "ok": not problems,
        "errors": [problem._asdict() for problem in problems],
        "warnings": [problem._asdict() for problem in warnings],
        **meaning,
        "timers": {name: [moments.iso(at) for at in ticks] for name, ticks in timers.items()},
    }
    if shown_config is not None:
        document["config"] = without_secrets(json.loads(shown_config.to_json()))
    screen.json_out(document)


def _print(
    file: Path,
    problems: list[Problem],
    warnings: list[Problem],
    meaning: Mapping[str, Any],
    config: Config | None,
    *,
    show: bool,
) -> None:
    for warning in warnings:
        screen.note(f"{warning.text(file)}  (warning)")
    if problems:
        screen.out(report(file, problems))
    elif show and config is not None:
        screen.out("\n".join(toml_lines(without_secrets(json.loads(config.to_json())))))
    else:
        for line in _meaning_lines(file, meaning, len(warnings), config):
            screen.out(line)


def _meaning_lines(
    file: Path, meaning: Mapping[str, Any], warnings: int, config: Config | None
) -> Iterator[str]:
    doubts = f", {screen.count(warnings, 'warning')}" if warnings else ""
    yield f"{screen.quoted(file)} is good{doubts} · state {screen.quoted(meaning['state_dir'])}"
    for name, queue in meaning["queues"].items():
        inbox = screen.quoted(queue["inbox"]) if queue["inbox"] else "none"
        outbox = screen.quoted(queue["outbox"]) if queue["outbox"] else "none"
        decider = (
            queue["decider"] if queue["decider"] == queue["kind"] else f"{queue['decider']} ({queue['kind']})"
        )
        sources = screen.count(queue["sources"], "source")
        yield f"{name}  inbox {inbox}  outbox {outbox}  decider {decider}  {sources}"
    for name, ticks in meaning["timers"].items():
        yield f"timer {name}  next {', '.join(times.stamp(at, dated=True) for at in ticks)} {screen.zone()}"
    for use in meaning["plugins"]:
        what = f"{use['section'].removesuffix('s')} {use['name']}"
        broken = "  disabled, see the warning" if use["broken"] else ""
        yield f"{what}  {shown(use['kind'])} from {shown(use['distribution'])} {shown(use['version'])}{broken}"
    if config is not None and config.listens:
        yield from http_lines(config, meaning["http"])
    services = meaning["services"]
    if services:
        yield f"services  {', '.join(f'{tag} {number}' for tag, number in sorted(services.items()))}"
    else:
        yield "services  none: nobody is paged"


def toml_lines(values: Mapping[str, Any]) -> Iterator[str]:
    """The configuration in force as TOML, without what has no value."""
    yield f"# {values['file']} (digest {values['digest']})"
    yield f"state_dir = {_toml(values['state_dir'])}"
    for section in ("daemon", "http", "queues", "deciders", "triggers", "webhooks", "notify"):
        many = section in ("queues", "deciders", "triggers", "webhooks")
        tables = values[section] if many else {"": values[section]}
        for name, table in tables.items():
            yield ""
            yield f"[{key_text((section, name) if many else (section,))}]"
            yield from (f"{key} = {_toml(value)}" for key, value in table.items() if value is not None)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{key_text((key,))} = {_toml(inner)}" for key, inner in value.items() if inner is not None)
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list):
        return f"[{', '.join(_toml(inner) for inner in value)}]"
    return json.dumps(value, ensure_ascii=False)
