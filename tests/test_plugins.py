"""Plug-ins under a real daemon: the example of the docs, and every way to be broken."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys

import pytest
from daemon_world import ENVIRONMENT, ROOT
from docs_pages import fences
from plugin_world import PluginWorld

from daemon import waking
from sessions import plugin as deciders
from triggers import hosting
from triggers import plugin as triggers

EXAMPLE = ROOT / "examples" / "plugin"


@pytest.fixture
def world(tmp_path):
    worlds = []

    def make(**more):
        worlds.append(PluginWorld(tmp_path, **more))
        return worlds[-1]

    yield make
    for one in worlds:
        one.kill()


def test_the_example_of_the_docs_is_built_installed_and_runs(world, tmp_path):
    here = world()
    shutil.copytree(EXAMPLE, tmp_path / "example")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(here.site), str(tmp_path / "example")], check=True, timeout=100)
    for name in ("new", "cur", "tmp"):
        (tmp_path / "mail" / name).mkdir(parents=True)
    shutil.copy(EXAMPLE / "shiftwork.toml", here.config)
    plain = "Subject: Your bill\n\nPlease find the invoice attached.\n"
    (tmp_path / "mail" / "new" / "1").write_text(plain)
    (tmp_path / "mail" / "new" / "2").write_text("Subject: Hello\n\nHow are you?\n")
    (tmp_path / "mail" / "new" / "3").write_text("Subject: nothing in it\n\n")
    checked = here.command("check-config").stdout
    assert "trigger box  maildir from shiftwork-mail 0.1.0\n" in checked
    assert "decider sort  sorter from shiftwork-mail 0.1.0\n" in checked
    here.start(ready=False)
    here.until_done(1)
    here.until(lambda: here.value("SELECT count(*) FROM flags") == 1)
    (answer,) = (tmp_path / "out").glob("*.answer.md")
    assert answer.read_text().startswith("# Your bill\n\naccounts\n")
    here.until(lambda: "3 is left out: item 1 of 1: empty" in here.said())
    here.until(lambda: not list((tmp_path / "mail" / "new").iterdir()))
    flag = here.value("SELECT id FROM flags")
    here.command("resolve", flag, "--option", "1")
    here.until_done(2)
    assert "plug-in" in here.command("doctor", check=None).stdout
    assert here.stop() == 0


def test_the_page_shows_the_files_of_the_example():
    text = (ROOT / "docs" / "plugins.md").read_text()
    assert fences(text, "python") == [(EXAMPLE / "shiftwork_mail.py").read_text()]
    toml = [(EXAMPLE / name).read_text() for name in ("pyproject.toml", "shiftwork.toml")]
    assert fences(text, "toml") == toml


def test_the_page_tells_all_that_an_author_may_import():
    text = (ROOT / "docs" / "plugins.md").read_text()
    fields = [*triggers.Item.__dataclass_fields__, *triggers.Taken._fields]
    given = [f"self.given.{name}" for name in ("queues", "folder", "state", "say")]
    known = {*triggers.__all__, *deciders.__all__} - {"Section", "HandIn", "Wake"}
    for word in (*fields, *given, *known, "must_cite", "wants_text", "decided_by"):
        assert re.search(rf"`[^`]*\b{re.escape(word)}\b", text), word
    for number in (hosting.DELIVERY_MAX, hosting.STOP_S, hosting.START_S, waking.WELL_S):
        assert f" {number:g} " in text
    assert f"{hosting.BATCH_MAX:,} `Item`" in text
    assert (waking.RESTART_S, waking.PLUGIN_MAX_RESTART_S) == (5, 600)


BROKEN = {
    "no-import": ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
    "no-class": ("Plug = 3\n", "is of type int, not a class to call"),
    "no-trigger": ("class Plug:\n    def __init__(self, given): pass\n", "makes no trigger: no start()"),
    "no-settings": (
        "class Plug(Trigger):\n    settings_model = dict\n    async def run(self, wake, hand_in): pass\n",
        "settings_model of no_settings:Plug is dict, not a subclass of Settings",
    ),
    "no-make": ("class Plug:\n    def __init__(self, given): raise KeyError('x')\n", "KeyError: 'x'"),
    "no-start": (
        (
            "class Plug(Trigger):\n    async def start(self, wake, hand_in): raise ValueError('no \\x1b[31m mail')\n"
            "    async def run(self, wake, hand_in): pass\n"
        ),
        "ValueError: no \\x1b[31m mail (no_start.py:",
    ),
    "no-run": (
        "class Plug(Trigger):\n    async def run(self, wake, hand_in): sys.exit('bye')\n",
        "SystemExit: bye",
    ),
    "rubbish": (
        "class Plug(Trigger):\n    async def run(self, wake, hand_in): await hand_in('rubbish')\n",
        "hand_in takes a list of Item",
    ),
    "nul": (
        "class Plug(Trigger):\n    async def run(self, wake, hand_in): await hand_in([Item(body='a\\0b')])\n",
        "item 1 of 1: a NUL byte at position 1",
    ),
    "foreign": (
        (
            "class Plug(Trigger):\n    async def run(self, wake, hand_in): "
            "await hand_in([Item(body='a', queue='elsewhere')])\n"
        ),
        'queue "elsewhere" is none of the trigger\'s: work',
    ),
}


def test_broken_triggers_are_named_and_disabled_and_everything_else_runs(world):
    """Import, type, construction, start, run, exit, rubbish, a call that blocks, a stop that hangs: all at once."""
    sources = {name: source for name, (source, _) in BROKEN.items()}
    sources["blocked"] = "class Plug(Trigger):\n    async def run(self, wake, hand_in): time.sleep(600)\n"
    sources["deaf"] = (
        "class Plug(Trigger):\n"
        "    async def run(self, wake, hand_in):\n"
        "        await hand_in([Item(body='answer deaf', delivery='1')])\n"
        "    async def stop(self):\n        await asyncio.to_thread(time.sleep, 600)\n"
    )
    tables = "".join(f'[triggers.{name}]\nkind = "{name}"\nqueues = ["work"]\n' for name in sources)
    here = world(extra=tables)
    for name, source in sources.items():
        here.install(name.replace("-", "_"), source, triggers=[(name, "Plug")])
    here.start()
    here.drop("one.md", "answer one")
    here.until_done(2)
    assert set(here.states()) == {"answer one", "answer deaf"}
    here.until(lambda: len(here.problems()) == len(BROKEN))
    found = here.problems()
    status = here.command("status").stdout
    for name, (_, words) in BROKEN.items():
        assert words in found[f"trigger:{name}"]
        assert f"trigger {name} is disabled: " in here.said()
        assert f"trigger {name}: disabled for " in status
    checked = here.command("check-config")
    assert checked.returncode == 0
    assert (
        "triggers.no-import    disabled: no-import from no-import 1.0 cannot be imported: " in checked.stderr
    )
    doctor = here.command("doctor", check=1).stdout
    assert "plug-in       trigger no-import: no-import from no-import 1.0; disabled:" in doctor
    here.drop("two.md", "answer two")
    here.until_done(3)
    assert here.stop(timeout=60) == 0
    assert "trigger blocked does not stop; it is left behind" in here.said()
    assert "stopped: nothing is left to do" in here.said()


DECIDERS = {
    "no-import": ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
    "no-decide": ("class Plug:\n    def __init__(self, given): pass\n", "makes no decider: no decide()"),
    "raises": (
        "class Plug(Decider):\n    def decide(self, request, *, timeout_s): 1 / 0\n",
        "ZeroDivisionError",
    ),
    "exits": (
        "class Plug(Decider):\n    def decide(self, request, *, timeout_s): sys.exit(3)\n",
        "SystemExit: 3",
    ),
    "fails": (
        "class Plug(Decider):\n    def decide(self, request, *, timeout_s): raise DeciderFailure('out of ink')\n",
        "out of ink",
    ),
    "away": (
        (
            "class Plug(Decider):\n"
            "    def decide(self, request, *, timeout_s): raise DeciderFailure('the desk is closed', away=True)\n"
        ),
        "the desk is closed",
    ),
    "gives-three": (
        "class Plug(Decider):\n    def decide(self, request, *, timeout_s): return 3\n",
        "gave int",
    ),
    "chats": (
        "class Plug(Decider):\n    def decide(self, request, *, timeout_s): return 'hello'\n",
        "bad output",
    ),
}


def test_broken_deciders_are_decider_failures_and_everything_else_runs(world):
    here = world(queues=("work", *DECIDERS))
    text = here.config.read_text()
    for name, (source, _) in DECIDERS.items():
        here.install(name.replace("-", "_"), source, deciders=[(name, "Plug")])
        text = text.replace(f'out-{name}"\ndecider = "script"', f'out-{name}"\ndecider = "{name}"')
        text += f'[deciders.{name}]\nkind = "{name}"\n'
    here.config.write_text(text)
    here.start()
    for name in DECIDERS:
        here.drop("a.md", f"for {name}", name)
    here.drop("one.md", "answer one")
    here.until_done(1)
    here.until(lambda: here.value("SELECT count(*) FROM sessions WHERE outcome = 'failed'") >= len(DECIDERS))
    causes = dict(here.rows("SELECT queue, cause FROM sessions WHERE outcome = 'failed' ORDER BY id DESC"))
    for name, (_, words) in DECIDERS.items():
        assert words in causes[name], causes
        blamed = not causes[name].startswith("its decider cannot be asked: ")
        assert blamed == (name not in ("no-import", "no-decide", "away")), causes
    here.until(lambda: "no_such_module" in here.problems().get("decider:no-import", ""))
    assert here.value("SELECT count(*) FROM sessions WHERE outcome = 'crashed'") == 0
    assert "deciders.no-import    disabled: " in here.command("check-config").stderr
    assert here.stop() == 0


def test_a_plugin_that_is_installed_while_the_daemon_runs_counts_after_a_reload(world):
    """A decider with its settings, and a trigger that its queue needs; a bad table changes nothing."""
    here = world(queues=("work", "other"))
    here.site.mkdir()
    here.start()
    here.install(
        "oracle",
        "class Keys(Settings):\n    word: str\n    wait: Duration = 1.0\n"
        "class Plug(Decider[Keys]):\n"
        "    settings_model = Keys\n    decided_by = 'code'\n"
        "    def decide(self, request, *, timeout_s):\n"
        "        text = f'{self.settings.word} {self.settings.wait:g} {self.given.name} {self.given.folder.name} '\n"
        "        text += request['item']['title'] + str(timeout_s > 1)\n"
        '        return Reply(\'{"reason": "r", "decision": "answer", "text": "\' + text + \'"}\')\n'
        "class Asks(Trigger):\n"
        "    async def run(self, wake, hand_in): await hand_in([Item(body='why?', delivery='1')])\n",
        deciders=[("oracle", "Plug")],
        triggers=[("asks", "Asks")],
    )
    text = here.config.read_text().replace('out-other"\ndecider = "script"', 'out-other"\ndecider = "ora"')
    text += (
        '[triggers.asks]\nkind = "asks"\nqueues = ["other"]\n[deciders.ora]\nkind = "oracle"\nwait = "2m"\n'
    )
    here.config.write_text(text)
    here.send(signal.SIGHUP)
    here.until(lambda: "deciders.ora.word    missing" in here.said())
    here.config.write_text(text + 'word = "42"\n')
    here.send(signal.SIGHUP)
    here.until_done(1)
    result = json.loads(here.value("SELECT result FROM items"))["text"]
    assert result == f"42 120 ora {here.folder.name} why?True"
    assert here.stop() == 0


def test_a_kind_that_nobody_installed_is_a_configuration_error(world):
    here = world(extra='[triggers.a]\nkind = "imap"\nqueues = ["work"]\n')
    here.install("mailbox", "", triggers=[("maildir", "Plug")])
    said = here.command("run", check=78).stderr
    assert f'shiftwork.toml:{len(here.config.read_text().splitlines()) - 1}  triggers.a.kind = "imap"' in said
    assert (
        'no trigger of this kind is installed; there is "timer", "files" or "maildir". If a plug-in brings it, '
        f"install that beside Shiftwork:  {sys.executable} -m pip install DISTRIBUTION" in said
    )


def test_verbs_that_read_never_look_for_plugins(world):
    here = world(extra='[triggers.a]\nkind = "imap"\nqueues = ["work"]\n')
    code = (
        "import sys; from daemon.cli.main import main; main(['status']); "
        "sys.exit('importlib.metadata' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=here.folder, env=ENVIRONMENT, check=False, timeout=60
    )
    assert done.returncode == 0
