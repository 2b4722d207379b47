"""Rules that reach over several tables, or out to the disk; they see the valid pieces of a bad file too.

``broken`` rules refuse the file; ``doubtful`` ones are warnings. Each is (key path, words).
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from daemon.config_words import did_you_mean
from daemon.sections import QueueSettings
from daemon.toml_lines import KeyPath
from memory import globs
from sessions.config import CommandDecider, ExtractiveDecider
from sessions.models import ModelDecider, OllamaDecider
from store import credentials
from store.settings import Section
from triggers.config import FilesTrigger, TimerTrigger, WebhookSettings
from triggers.ticks import cron_problem
from triggers.webhooks import hook

CHARS_A_TOKEN = 3
PROMPT_TOKENS = 1000
"""What text costs a model at most, roughly, and the rules with the shapes of the decisions."""

Finding = tuple[KeyPath, str]


class Parts(NamedTuple):
    """The valid pieces of a file, beside the parsed file itself."""

    file: Path
    data: Mapping[str, Any]
    state_dir: Path | None
    queues: Mapping[str, QueueSettings]
    deciders: Mapping[str, Section]
    triggers: Mapping[str, Section]
    webhooks: Mapping[str, WebhookSettings]
    sections: Mapping[str, Section | None]


def broken(parts: Parts) -> Iterator[Finding]:
    """What makes the file unusable."""
    yield from _missing_deciders(parts)
    yield from _missing_queues(parts)
    yield from _second_watchers(parts)
    yield from _overlapping_folders(parts)
    yield from _cramped_contexts(parts)
    yield from _missing_programs(parts)
    yield from _bad_cron_lines(parts)
    yield from _bad_webhook_secrets(parts)
    for path, file in secret_files(parts):
        rule = _unusable_secret(file)
        if rule:
            yield path, rule


def doubtful(parts: Parts) -> Iterator[Finding]:
    """What a person should look at."""
    for path, file in secret_files(parts):
        if _readable_by_all(file):
            yield path, f"everyone on this machine can read it:  chmod 600 {file}"
    yield from _doubtful_models(parts)
    for name, queue in parts.queues.items():
        if isinstance(parts.deciders.get(queue.decider), ExtractiveDecider) and not queue.sources:
            yield ("queues", name), "no sources, so every item will be flagged: extractive quotes sources"
        for index, pattern in enumerate(queue.sources):
            if globs.find([pattern]).empty:
                yield ("queues", name, "sources", index), "matches no file"


def _doubtful_models(parts: Parts) -> Iterator[Finding]:
    for name, decider in parts.deciders.items():
        if isinstance(decider, ModelDecider):
            url = urlsplit(getattr(decider, "base_url", ""))
            if url.scheme == "http" and not _is_loopback(url.hostname or ""):
                what = "and the key " if decider.api_key_file is not None else ""
                yield (
                    ("deciders", name, "base_url"),
                    f"what is sent {what}can be read on the way to {url.hostname}; use https",
                )
    for name, queue in parts.queues.items():
        model = parts.deciders.get(queue.decider)
        if isinstance(model, OllamaDecider):
            needed = queue.context_chars // CHARS_A_TOKEN + PROMPT_TOKENS + model.max_output_tokens
            words = f"context_chars / {CHARS_A_TOKEN} + the rules + max_output_tokens; what does not fit is not read"
            if needed > model.num_ctx:
                yield ("deciders", queue.decider, "num_ctx"), f"[queues.{name}] may need {needed}: {words}"


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def secret_files(parts: Parts) -> Iterator[tuple[KeyPath, Path]]:
    """Every ``*_file`` key with its file."""
    for section, model in parts.sections.items():
        if model is not None:
            yield from _files_in(model, (section,))
    for name, decider in parts.deciders.items():
        yield from _files_in(decider, ("deciders", name))
    for name, webhook in parts.webhooks.items():
        yield from _files_in(webhook, ("webhooks", name))


def _files_in(model: Section, path: KeyPath) -> Iterator[tuple[KeyPath, Path]]:
    for key in type(model).model_fields:
        value = getattr(model, key)
        if key.endswith("_file") and isinstance(value, Path):
            yield (*path, key), value
        elif isinstance(value, tuple):
            for index, inner in enumerate(value):
                if key.endswith("_file") and isinstance(inner, Path):
                    yield (*path, key, index) if len(value) > 1 else (*path, key), inner
                if isinstance(inner, Section):
                    yield from _files_in(inner, (*path, key, index))


def _table(parts: Parts, section: str) -> dict[str, Any]:
    tables = parts.data.get(section)
    return tables if isinstance(tables, dict) else {}


def _missing_deciders(parts: Parts) -> Iterator[Finding]:
    known = _table(parts, "deciders")
    for name, table in _table(parts, "queues").items():
        decider = table.get("decider") if isinstance(table, dict) else None
        if isinstance(decider, str) and decider not in known:
            hint = did_you_mean(decider, known)
            yield ("queues", name, "decider"), f"there is no [deciders.{decider}]{hint}"


def _missing_queues(parts: Parts) -> Iterator[Finding]:
    known = _table(parts, "queues")
    for name, table in _table(parts, "webhooks").items():
        queue = table.get("queue") if isinstance(table, dict) else None
        if isinstance(queue, str) and queue not in known:
            yield ("webhooks", name, "queue"), f"there is no [queues.{queue}]{did_you_mean(queue, known)}"
    for name, table in _table(parts, "triggers").items():
        queues = table.get("queues") if isinstance(table, dict) else None
        for index, queue in enumerate(queues if isinstance(queues, list) else ()):
            if isinstance(queue, str) and queue not in known:
                hint = did_you_mean(queue, known)
                yield ("triggers", name, "queues", index), f"there is no [queues.{queue}]{hint}"


def _second_watchers(parts: Parts) -> Iterator[Finding]:
    tuned: dict[str, str] = {}
    for name, trigger in parts.triggers.items():
        if not isinstance(trigger, FilesTrigger):
            continue
        for index, queue in enumerate(trigger.queues):
            path = ("triggers", name, "queues", index)
            if queue in tuned:
                yield path, f"[triggers.{tuned[queue]}] tunes this queue's inbox already"
            elif queue in parts.queues and parts.queues[queue].inbox is None:
                yield path, "this queue has no inbox to watch"
            tuned.setdefault(queue, name)


def _overlapping_folders(parts: Parts) -> Iterator[Finding]:
    """An inbox is scanned with its subfolders: nothing else of ours may lie in it."""
    inboxes = {name: queue.inbox for name, queue in parts.queues.items() if queue.inbox is not None}
    for name, inbox in inboxes.items():
        path = ("queues", name, "inbox")
        for other, queue in parts.queues.items():
            if queue.outbox is not None and _inside(queue.outbox, inbox):
                rule = f"lies in the inbox of [queues.{name}]: answers would come back as work"
                yield ("queues", other, "outbox"), rule
            if queue.inbox is None or other == name or not _inside(queue.inbox, inbox):
                continue
            if other > name or not _inside(inbox, queue.inbox):  # the same folder twice is said once
                yield ("queues", other, "inbox"), f"lies in the inbox of [queues.{name}]"
        if parts.state_dir is not None and _inside(parts.state_dir, inbox):
            yield path, "holds state_dir: the store would be taken as work"
        elif _inside(parts.file, inbox):
            yield path, "holds this configuration file: it would be taken as work"


def _inside(inner: Path, outer: Path) -> bool:
    real_inner, real_outer = os.path.realpath(inner), os.path.realpath(outer)
    return os.path.commonpath((real_inner, real_outer)) == real_outer


def _cramped_contexts(parts: Parts) -> Iterator[Finding]:
    for name, queue in parts.queues.items():
        if queue.notes_chars >= queue.context_chars:
            yield ("queues", name, "notes_chars"), f"must be less than context_chars ({queue.context_chars})"


def _missing_programs(parts: Parts) -> Iterator[Finding]:
    for name, decider in parts.deciders.items():
        if isinstance(decider, CommandDecider) and shutil.which(decider.argv[0]) is None:
            yield ("deciders", name, "argv", 0), "no such program, or it may not be executed"


def _bad_cron_lines(parts: Parts) -> Iterator[Finding]:
    for name, timer in parts.triggers.items():
        if isinstance(timer, TimerTrigger) and timer.cron is not None:
            rule = cron_problem(timer.cron, timer.timezone)
            if rule:
                yield ("triggers", name, "cron"), rule


def _bad_webhook_secrets(parts: Parts) -> Iterator[Finding]:
    """A secret that is there and is not one of its scheme. What cannot be read at all is said for every ``*_file``."""
    for name, webhook in parts.webhooks.items():
        for file in webhook.secret_file:
            try:
                hook.read_secret(file, webhook.scheme)
            except ValueError as problem:
                if _unusable_secret(file) is None:
                    yield ("webhooks", name, "secret_file"), str(problem)
            except OSError:
                continue


def _unusable_secret(file: Path) -> str | None:
    try:
        with open(file, "rb") as stream:
            empty = not stream.read(4096).strip()
    except OSError as error:
        given = os.environ.get(credentials.VARIABLE)
        if given and os.path.dirname(file) == os.path.normpath(given):
            return (
                f"{file} was not handed over by the service manager ({error.strerror}): put the file into the "
                "folder of credentials, then restart the service (a reload hands over nothing new)"
            )
        return f"cannot be read: {error.strerror}"
    return "is empty" if empty else None


def _readable_by_all(file: Path) -> bool:
    try:
        return bool(os.stat(file).st_mode & stat.S_IROTH)
    except OSError:
        return False
