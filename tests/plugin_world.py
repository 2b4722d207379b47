"""Plug-ins for tests: distributions in a folder of their own, as an installer leaves them, and a daemon on them."""

from __future__ import annotations

import sys
from pathlib import Path

from daemon_world import ROOT, World

HEAD = """
from __future__ import annotations
import asyncio, os, sys, time
from pathlib import Path
from triggers.plugin import Duration, Given, Item, InputRefused, Settings, Trigger
from sessions.plugin import Decider, DeciderFailure, Reply
"""


def install(
    site: Path, module: str, source: str, *, triggers=(), deciders=(), version="1.0", head: str = HEAD
) -> None:
    """A module and the metadata of its distribution. ``triggers`` and ``deciders`` are pairs (kind, class)."""
    site.mkdir(exist_ok=True)
    (site / f"{module}.py").write_text(head + source)
    info = site / f"{module}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {module.replace('_', '-')}\nVersion: {version}\n"
    )
    groups = ((name, dict(pairs)) for name, pairs in (("triggers", triggers), ("deciders", deciders)))
    (info / "entry_points.txt").write_text(
        "".join(
            f"[shiftwork.{name}]\n" + "".join(f"{kind} = {module}:{what}\n" for kind, what in pairs.items())
            for name, pairs in groups
        )
    )


class PluginWorld(World):
    """A daemon whose Python finds what is installed in ``site``."""

    def __init__(self, folder: Path, **more):
        super().__init__(folder, **more)
        self.site = folder / "site"
        self.environment = {"PYTHONPATH": f"{ROOT}:{self.site}"}

    def install(self, module: str, source: str, **more) -> None:
        install(self.site, module, source, **more)

    def command(self, *words, env=None, **more):
        return super().command(*words, env=self.environment | (env or {}), **more)

    def start(self, *, ready: bool = True, env=None):
        return super().start(ready=ready, env=self.environment | (env or {}))

    def install_example(self) -> None:
        """The example of the docs, without its builder."""
        source = (ROOT / "examples" / "plugin" / "shiftwork_mail.py").read_text()
        kinds = {"triggers": [("maildir", "Maildir")], "deciders": [("sorter", "Sorter")]}
        self.install("shiftwork_mail", source, head="", **kinds)

    def problems(self) -> dict[str, str]:
        return dict(self.rows("SELECT key, detail FROM problems"))


class Importable:
    """Makes ``site`` importable in this process for one test, and forgets its modules afterwards."""

    def __init__(self, site: Path) -> None:
        self.site = site

    def __enter__(self):
        self.before = set(sys.modules)
        sys.path.insert(0, str(self.site))
        return self

    def __exit__(self, *_):
        sys.path.remove(str(self.site))
        for name in set(sys.modules) - self.before:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if file.startswith(str(self.site)):
                del sys.modules[name]
