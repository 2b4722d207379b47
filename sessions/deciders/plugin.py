"""Any other kind: a decider that another distribution brings (``sessions/plugin.py``), loaded in workers only.

Foreign code: what it raises is a decider failure with its words, tried again later and asked about at the limit, while
everything else runs. A hang is ended with its worker at the session's deadline.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from sessions.decider import DeciderFailure, Fault, Reply, Wire
from sessions.decisions import Usage
from sessions.plugin import Given
from store import plugins
from store.errors import PluginBroken


class PluginDecider:
    """Loads the plug-in when a session first needs it. One that cannot be made was asked about no item, so no item is
    blamed: it is ``away``, as a model's server is.
    """

    def __init__(self, kind: str, options: Mapping[str, Any], *, name: str, folder: Path) -> None:
        self.kind = kind
        self._options, self._name, self._folder = options, name, folder
        self._decider: Any = None
        self._failure: DeciderFailure | None = None

    @property
    def decided_by(self) -> Literal["code", "model"]:
        """As the plug-in says; ``model`` where it says nothing."""
        return "code" if self._said("decided_by", "model") == "code" else "model"

    @property
    def must_cite(self) -> bool:
        """As the plug-in says."""
        return bool(self._said("must_cite", False))

    @property
    def wants_text(self) -> bool:
        """As the plug-in says."""
        return bool(self._said("wants_text", False))

    def decide(self, request: Mapping[str, Any], *, timeout_s: float) -> Reply:
        """One call of the plug-in. Raises DeciderFailure."""
        self._load()
        if self._failure is not None:
            # the next session tries again: it may be mended by then
            failure, self._failure = self._failure, None
            raise failure
        try:
            return self._reply(self._decider.decide(json.loads(json.dumps(request)), timeout_s=timeout_s))
        except MemoryError:  # nothing can be told: the session crashes
            raise
        except DeciderFailure as failure:
            raise _plain(failure) from failure
        except BaseException as error:
            raise self._failed(error) from error

    def _said(self, name: str, otherwise: Any) -> Any:
        self._load()
        return getattr(self._decider, name, otherwise)

    def _load(self) -> None:
        if self._decider is not None or self._failure is not None:
            return
        try:
            self._decider = self._made()
        except MemoryError:
            raise
        except PluginBroken as error:
            self._failure = DeciderFailure(str(error), away=True)
        except BaseException as error:  # noqa: BLE001 - its constructor
            self._failure = self._failed(error, away=True)

    def _failed(self, error: BaseException, *, away: bool = False) -> DeciderFailure:
        raw = "".join(traceback.format_exception(error))[-4000:]
        return DeciderFailure(f"decider {self.kind}: {plugins.said(error)}", raw=raw, away=away)

    def _made(self) -> Any:
        from pydantic import ValidationError

        plugin = plugins.load("deciders", self.kind)
        try:
            settings = plugins.settings_of(plugin, self._options, self._folder)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise PluginBroken(f"{plugin.offer.words()} refuses {where}: {first['msg']}") from error
        decider = plugin.make(Given(self._name, settings, self._folder))
        if not callable(getattr(decider, "decide", None)):
            raise PluginBroken(f"{plugin.offer.words()}: {plugin.offer.target} makes no decider: no decide()")
        return decider

    def _reply(self, given: Any) -> Reply:
        if isinstance(given, Reply) and _is_sound(given):
            return given
        if isinstance(given, str):
            return Reply(given)
        if isinstance(given, Mapping):
            return Reply(json.dumps(dict(given), ensure_ascii=False))
        raise DeciderFailure(
            f"decider {self.kind} gave {type(given).__name__}; a decision is a mapping, its JSON text, or a sound Reply"
        )


def _is_sound(reply: Reply) -> bool:
    """Whether every part is of its type: what is wrong here would surface in the middle of a session."""
    measured = reply.usage is None or isinstance(reply.usage, Mapping)
    if measured and reply.usage is not None:
        try:
            Usage.model_validate(dict(reply.usage))
        except ValueError:
            measured = False
    texts = isinstance(reply.text, str) and isinstance(reply.stderr, str)
    wired = isinstance(reply.wire, Sequence) and all(isinstance(one, Wire) for one in reply.wire)
    return texts and measured and wired and (reply.fault is None or isinstance(reply.fault, Fault))


def _plain(failure: DeciderFailure) -> DeciderFailure:
    """The same failure, each part of its type."""
    after, wire = failure.retry_after_s, failure.wire
    return DeciderFailure(
        str(failure) or "it says nothing",
        raw=str(failure.raw),
        retry_after_s=float(after) if isinstance(after, int | float) else None,
        permanent=bool(failure.permanent),
        away=bool(failure.away),
        suspect=bool(failure.suspect),
        wire=wire if isinstance(wire, Sequence) and all(isinstance(one, Wire) for one in wire) else (),
    )
