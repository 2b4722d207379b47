"""The configuration: one TOML file, read whole, judged whole, frozen.

Each room owns the model of its section; this module composes them. ``read`` gives every problem at once, each
with its line, key, value and rule; ``load`` gives the configuration or raises them together (exit 78).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from daemon import config_rules, config_words, plugins
from daemon.cli import light
from daemon.config_words import Problem
from daemon.sections import HttpSettings, QueueSettings
from daemon.toml_lines import KeyPath, key_lines, line_of
from notify.config import NotifySettings
from sessions.config import DECIDERS, AnyDecider, DaemonLimits
from store.errors import ConfigProblem
from store.keys import bytes_digest
from store.settings import Name, RelativePath, Section
from triggers.config import TRIGGERS, AnyTrigger, WebhookSettings

S = TypeVar("S", bound=Section)


class Config(Section):
    """A whole, good configuration. Paths are absolute; ``digest`` is that of the file's bytes."""

    file: Path
    digest: str
    state_dir: Path
    daemon: DaemonLimits
    http: HttpSettings
    queues: dict[Name, QueueSettings]
    deciders: dict[Name, AnyDecider]
    triggers: dict[Name, AnyTrigger]
    webhooks: dict[Name, WebhookSettings]
    notify: NotifySettings
    listens: bool
    """Whether anything is to be served over HTTP: there is a webhook, or ``[http]`` is written."""

    @property
    def folder(self) -> Path:
        """The folder that relative paths start at."""
        return self.file.parent

    def caps(self) -> dict[str, int]:
        """Queue → how many open items it may hold."""
        return {name: queue.max_waiting for name, queue in self.queues.items()}

    def to_json(self) -> str:
        """Every value in force, for ``check-config --show``."""
        return self.model_dump_json()


class Reading(NamedTuple):
    """What became of a file: a configuration when there are no problems; warnings and plug-ins in use either way."""

    file: Path
    config: Config | None
    problems: Sequence[Problem]
    warnings: Sequence[Problem]
    plugins: Sequence[plugins.Use] = ()


def load(file: Path) -> Config:
    """The configuration in ``file``. Raises ConfigProblem with every problem, a line each."""
    reading = read(file)
    if reading.config is None:
        raise ConfigProblem(config_words.report(reading.file, reading.problems))
    return reading.config


def read(file: Path) -> Reading:
    """Read and judge ``file``. Raises ConfigProblem only when it cannot be read or is not TOML."""
    content = light.read_bytes(file)
    data = light.parse_toml(file, content)
    return _Reader(file, content, data).reading()


def lines_of(file: Path) -> dict[KeyPath, int]:
    """Where each key stands in ``file``."""
    return _lines(light.read_bytes(file))


def _lines(content: bytes) -> dict[KeyPath, int]:
    try:
        return key_lines(content.decode("utf-8-sig"))
    except (
        ValueError,
        IndexError,
    ):  # a spelling the scanner does not know costs the lines, never the problems
        return {}


class _Reader:
    """Judges one parsed file piece by piece, so that one bad table hides no problem of another."""

    def __init__(self, file: Path, content: bytes, data: dict[str, Any]) -> None:
        self.file = file
        self.absolute = Path(os.path.abspath(file))
        self.digest = bytes_digest(content)
        self.data = data
        self.lines = _lines(content)
        self.problems: list[Problem] = []
        self.plugins: list[plugins.Use] = []

    def reading(self) -> Reading:
        for key in self.data.keys() - set(config_words.TOP_LEVEL):
            self._say((key,), config_words.unknown_key(key, config_words.TOP_LEVEL, ()), self.data[key])
        state_dir = self._state_dir()
        daemon = self._section(DaemonLimits, ("daemon",), self.data.get("daemon", {}))
        http = self._section(HttpSettings, ("http",), self.data.get("http", {}))
        notify = self._section(NotifySettings, ("notify",), self.data.get("notify", {}))
        deciders = self._kinds("deciders", DECIDERS)
        triggers = self._kinds("triggers", TRIGGERS)
        queues = self._queues()
        webhooks = self._webhooks()
        parts = config_rules.Parts(
            file=self.absolute,
            data=self.data,
            state_dir=state_dir,
            queues=queues,
            deciders=deciders,
            triggers=triggers,
            webhooks=webhooks,
            sections={"http": http, "notify": notify},
        )
        for path, rule in config_rules.broken(parts):
            self._say(path, rule, config_words.value_at(self.data, path))
        warnings = [self._problem(path, rule, None) for path, rule in config_rules.doubtful(parts)]
        warnings += [
            self._problem((use.section, use.name), use.broken, None) for use in self.plugins if use.broken
        ]
        self.problems.sort(key=lambda problem: (problem.line, problem.key))
        if self.problems or state_dir is None or daemon is None or http is None or notify is None:
            return Reading(self.file, None, self.problems, warnings, self.plugins)
        config = Config.model_validate(
            {
                "file": self.absolute,
                "digest": self.digest,
                "state_dir": state_dir,
                "daemon": daemon,
                "http": http,
                "queues": queues,
                "deciders": deciders,
                "triggers": triggers,
                "webhooks": webhooks,
                "notify": notify,
                "listens": bool(webhooks) or "http" in self.data,
            }
        )
        return Reading(self.file, config, (), warnings, self.plugins)

    def _state_dir(self) -> Path | None:
        adapter: TypeAdapter[Path] = TypeAdapter(RelativePath)
        value = self.data.get("state_dir", "state")
        try:
            return adapter.validate_python(value, context={"folder": self.absolute.parent})
        except ValidationError as error:
            self._errors(error, ("state_dir",), Section, value)
            return None

    def _queues(self) -> dict[str, QueueSettings]:
        if not self.data.get("queues"):
            self._say(("queues",), "no queue: add a table such as [queues.questions]")
        queues = {}
        for name, table in self._tables("queues").items():
            queue = self._section(QueueSettings, ("queues", name), table)
            if queue is not None:
                queues[name] = queue
        return queues

    def _webhooks(self) -> dict[str, WebhookSettings]:
        tables = self._tables("webhooks").items()
        found = {name: self._section(WebhookSettings, ("webhooks", name), table) for name, table in tables}
        return {name: hook for name, hook in found.items() if hook is not None}

    def _kinds(self, section: str, models: Mapping[str, type[Section]]) -> dict[str, Section]:
        """The tables of a section whose model depends on their ``kind``."""
        found = {}
        for name, table in self._tables(section).items():
            path = (section, name)
            kind = table.get("kind") if isinstance(table, dict) else None
            if isinstance(kind, str) and kind not in models:
                part = self._plugin(section, name, table, models)
            else:
                model = models[kind] if isinstance(kind, str) else next(iter(models.values()))
                part = self._section(model, path, table)
            if part is not None:
                found[name] = part
        return found

    def _plugin(
        self, section: str, name: str, table: Mapping[str, Any], models: Mapping[str, type[Section]]
    ) -> Section | None:
        """A table whose kind is none of ours. A broken plug-in is a warning: the daemon runs without it."""
        path = (section, name)
        rule = plugins.unusable(section, table["kind"], models)
        if rule is not None:
            self._say((*path, "kind"), rule, table["kind"])
            return None
        part = self._section(plugins.MODELS[section], path, table)
        looked = plugins.look_at(section, name, table, self.absolute.parent)
        self.plugins.append(looked.use)
        if looked.error is not None:
            self._errors(looked.error, path, looked.names, table)
            return None
        return part

    def _tables(self, section: str) -> dict[str, Any]:
        tables = self.data.get(section, {})
        if not isinstance(tables, dict):
            self._say((section,), f"must be tables such as [{section}.NAME]", tables)
            return {}
        adapter: TypeAdapter[str] = TypeAdapter(Name)
        for name in tables:
            try:
                adapter.validate_python(name)
            except ValidationError as error:
                self._errors(error, (section, name), Section, None)
        return tables

    def _section(self, model: type[S], path: KeyPath, value: Any) -> S | None:
        try:
            return model.model_validate(value, context={"folder": self.absolute.parent})
        except ValidationError as error:
            self._errors(error, path, model, value)
            return None

    def _errors(self, error: ValidationError, path: KeyPath, model: type[Section], value: Any) -> None:
        for key, rule, shown_value in config_words.translated(error, path, model, value):
            line = line_of(self.lines, key)
            self.problems.append(Problem(line, config_words.key_text(key), shown_value, rule))

    def _say(self, path: KeyPath, rule: str, value: Any = None) -> None:
        self.problems.append(self._problem(path, rule, value))

    def _problem(self, path: KeyPath, rule: str, value: Any) -> Problem:
        shown_value = (
            None if value is None or isinstance(value, dict) else config_words.value_text(value, path)
        )
        return Problem(line_of(self.lines, path), config_words.key_text(path), shown_value, rule)
