"""The plug-ins that a configuration uses: is each there, does it load, does it take its keys.

A kind that nobody offers, or a key that the plug-in does not take, is a wrong configuration. A plug-in that is there
and does not load is a warning: it is disabled, everything else runs, and it is tried again where it would be used.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError, create_model

from daemon import config_words
from sessions.config import PluginDecider
from store import plugins
from store.errors import PluginBroken
from store.settings import Section
from store.text import shown
from triggers.config import PluginTrigger

T = TypeVar("T")

IMPORT_S = 10.0
MODELS: dict[str, type[Section]] = {"triggers": PluginTrigger, "deciders": PluginDecider}
"""Section of the configuration → the keys that each plug-in's table has."""


class Use(NamedTuple):
    """A plug-in in use. ``broken`` says why it cannot be used now; empty: it can."""

    section: str
    name: str
    kind: str
    distribution: str
    version: str
    broken: str


class Looked(NamedTuple):
    """What loading came to. ``error`` is about the table's own keys; ``names`` is a model that knows all its keys."""

    use: Use
    error: ValidationError | None = None
    names: type[Section] = Section


def unusable(section: str, kind: str, ours: Iterable[str]) -> str | None:
    """The rule that a ``kind`` breaks which nobody offers, or several do; None when exactly one does."""
    offers = plugins.offers(section)
    found = [offer for offer in offers if offer.kind == kind]
    if not found:
        return config_words.unknown_kind(
            section, kind, ours, sorted({shown(offer.kind) for offer in offers}), sys.executable
        )
    if len(found) > 1:
        owners = " and ".join(shown(offer.distribution) for offer in found)
        return f"is offered by {owners}; uninstall all but one"
    return None


def look_at(section: str, name: str, table: Mapping[str, Any], folder: Path) -> Looked:
    """Load the plug-in of ``[SECTION.NAME]`` and let it read its own keys, in at most ``IMPORT_S`` seconds."""
    kind = str(table["kind"])
    offer = next(offer for offer in plugins.offers(section) if offer.kind == kind)
    use = Use(section, name, kind, offer.distribution, offer.version, "")
    shared = MODELS[section].model_fields
    own = {key: value for key, value in table.items() if key not in shared}

    def load() -> Looked:
        plugin = plugins.load(section, kind)
        try:
            plugins.settings_of(plugin, own, folder)
        except ValidationError as error:
            return Looked(use, error, _with(plugin.settings_model, shared))
        return Looked(use)

    try:
        return _within(IMPORT_S, load, offer)
    except PluginBroken as error:
        return Looked(use._replace(broken=f"disabled: {error}"))


def _with(model: type[Section], shared: Iterable[str]) -> type[Section]:
    """``model`` with the keys of every plug-in's table, so that a misspelt ``queues`` finds its nearest."""
    more: dict[str, Any] = {key: (Any, None) for key in shared if key not in model.model_fields}
    return create_model(model.__name__, __base__=model, **more)


def _within(seconds: float, work: Callable[[], T], offer: plugins.Offer) -> T:
    """Run foreign code in a thread that nobody waits for longer than so. Raises what it raises, or PluginBroken."""
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            failed.append(error)

    thread = threading.Thread(target=run, name=f"plug-in {offer.kind}", daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not done:
        raise PluginBroken(f"{offer.words()} took over {seconds:g} s to be imported")
    return done[0]
