"""Plug-ins: kinds of triggers and deciders that other distributions bring, found by their entry points.

    group shiftwork.triggers    KIND = "module:Class"        [triggers.NAME]  kind = "KIND"
    group shiftwork.deciders    KIND = "module:Class"        [deciders.NAME]  kind = "KIND"

Finding reads the metadata of everything installed and imports nothing of theirs; it is done only for a kind that is
none of ours. Loading runs foreign code: whatever that does (raises, exits, is of another type) is one error,
PluginBroken, with its words. Where loading happens is the caller's business: a thread with a deadline, or a worker.
"""

from __future__ import annotations

import importlib
import json
import os
import traceback
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from store.errors import PluginBroken
from store.text import shown

GROUPS = {"triggers": "shiftwork.triggers", "deciders": "shiftwork.deciders"}
"""Section of the configuration → group of entry points."""
WORDS = 300
_HOME = Path(__file__).resolve().parent.parent
_OURS = tuple(f"{_HOME}/{room}/" for room in ("daemon", "memory", "notify", "sessions", "store", "triggers"))


class Offer(NamedTuple):
    """One kind that an installed distribution offers. ``target`` is ``module:Class``."""

    kind: str
    target: str
    distribution: str
    version: str

    def words(self) -> str:
        """``mailbox from shiftwork-mailbox 1.2``."""
        return shown(f"{self.kind} from {self.distribution} {self.version}", WORDS)


class Plugin(NamedTuple):
    """A loaded one: ``make`` gives the trigger or decider, ``settings_model`` reads its own keys (a ``Section``)."""

    offer: Offer
    make: Callable[..., Any]
    settings_model: Any


def offers(section: str) -> list[Offer]:
    """Every kind that installed distributions offer for ``section`` of the configuration, sorted."""
    importlib.invalidate_caches()
    return sorted(_offer(entry) for entry in metadata.entry_points(group=GROUPS[section]))


def load(section: str, kind: str) -> Plugin:
    """Import the plug-in of this kind. Raises PluginBroken."""
    importlib.invalidate_caches()
    entries = list(metadata.entry_points(group=GROUPS[section], name=kind))
    if len(entries) != 1:
        how = "is not installed any more" if not entries else "is offered by several distributions"
        raise PluginBroken(f"{shown(kind, 80)} {how}")
    entry = entries[0]
    offer = _offer(entry)
    try:
        make = entry.load()
    except BaseException as error:
        raise PluginBroken(f"{offer.words()} cannot be imported: {said(error)}") from error
    if not callable(make):
        raise PluginBroken(f"{offer.words()}: {offer.target} is {_a(make)}, not a class to call")
    return Plugin(offer, make, _model(offer, make))


def settings_of(plugin: Plugin, options: Mapping[str, Any], folder: Path) -> Any:
    """The plug-in's own keys, read by its model; relative paths start at ``folder``.

    Raises pydantic's ValidationError about the keys, PluginBroken when the model itself fails.
    """
    from pydantic import ValidationError

    text = json.dumps(dict(options), default=lambda value: value.isoformat())
    try:
        return plugin.settings_model.model_validate_json(text, context={"folder": folder})
    except ValidationError:
        raise
    except BaseException as error:
        raise PluginBroken(f"{plugin.offer.words()} cannot read its settings: {said(error)}") from error


def said(error: BaseException) -> str:
    """An error of foreign code on one line: its type, its words, and where in its own files it was raised."""
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = _frames(error)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return shown(words, WORDS) + shown(where, 80)


def told(error: BaseException) -> list[str]:
    """Where foreign code raised ``error``: its own frames alone, a line each, the innermost last."""
    return [shown(f"{one.filename}:{one.lineno} in {one.name}: {one.line}", WORDS) for one in _frames(error)]


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Without those of Python's own library and of ours, which stand around every one of theirs."""
    stdlib = f"{os.path.dirname(os.path.realpath(os.__file__))}/"
    return [
        one
        for one in traceback.extract_tb(error.__traceback__)
        if not one.filename.startswith(("<", *_OURS))
        and (not os.path.realpath(one.filename).startswith(stdlib) or "-packages/" in one.filename)
    ]


def _model(offer: Offer, make: Callable[..., Any]) -> Any:
    from store.settings import Section

    model = getattr(make, "settings_model", Section)
    if not (isinstance(model, type) and issubclass(model, Section)):
        raise PluginBroken(
            f"{offer.words()}: settings_model of {offer.target} is {_a(model)}, not a subclass of Settings"
        )
    return model


def _offer(entry: metadata.EntryPoint) -> Offer:
    dist = entry.dist
    return Offer(entry.name, entry.value, dist.name if dist else "?", dist.version if dist else "?")


def _a(value: object) -> str:
    return shown(f"of type {type(value).__name__}" if not isinstance(value, type) else value.__name__, 80)
