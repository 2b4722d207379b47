"""Plug-in triggers in the daemon's loop: started again, reloaded, left behind, held back; with a real store."""

from __future__ import annotations

import asyncio
import time

import pytest
from plugin_world import Importable, install
from stores import new_state

from daemon import config, waking
from store.errors import StoreRefused
from store.sqlite import open_store
from triggers import build, hosting

TABLES = """\
[queues.work]
decider = "x"
max_waiting = {cap}
[deciders.x]
kind = "command"
argv = ["true"]
"""
POLLER = """
import builtins
LIVES = builtins.__dict__.setdefault("lives", [])
class Keys(Settings):
    word: str = "one"
class Plug(Trigger[Keys]):
    settings_model = Keys
    async def run(self, wake, hand_in):
        LIVES.append(("begins", self.settings.word))
        try:
            await hand_in([Item(body=self.settings.word, delivery=self.settings.word)])
            await asyncio.sleep(600)
        finally:
            LIVES.append(("ends", self.settings.word))
"""


class Scene:
    """A store, a configuration and what wakes the loop that is not there."""

    def __init__(self, folder) -> None:
        self.folder, self.site = folder, folder / "site"
        self.site.mkdir()
        new_state(folder)
        self.store = open_store(folder / "state")
        self.said: list[str] = []
        self.woken: list[str] = []
        self.fatal: list[BaseException] = []
        self.waking = None

    def config(self, tables: str = "", *, cap: int = 100):
        file = self.folder / "shiftwork.toml"
        file.write_text(TABLES.format(cap=cap) + tables)
        return config.load(file)

    def meet(self, error: BaseException) -> bool:
        if isinstance(error, StoreRefused):
            self.fatal.append(error)
        return bool(self.fatal)

    async def play(self, story) -> None:
        self.waking = waking.Waking(
            self.store, wake=self.woken.append, rung=lambda: None, said=self.said.append, fatal=self.meet
        )
        try:
            await story()
        finally:
            await self.waking.stop()

    def run(self, story) -> None:
        asyncio.run(self.play(story))

    def rows(self, sql: str):
        with self.store.db.read() as conn:
            return [tuple(row) for row in conn.execute(sql)]

    def problems(self) -> dict[str, str]:
        return dict(self.rows("SELECT key, detail FROM problems"))

    async def until(self, condition, seconds: float = 30.0):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.said
            await asyncio.sleep(0.01)


@pytest.fixture
def scene(tmp_path, monkeypatch):
    monkeypatch.setattr(waking, "RESTART_S", 0.05)
    made = Scene(tmp_path)
    with Importable(made.site):
        yield made
    made.store.close()
    import builtins

    builtins.__dict__.pop("lives", None)


def lives():
    import builtins

    return builtins.__dict__.get("lives", [])


def test_one_that_fails_is_told_once_and_started_again_until_it_is_well(scene):
    install(
        scene.site,
        "flaky",
        "class Plug(Trigger):\n"
        "    async def run(self, wake, hand_in):\n"
        "        tries = self.given.state / 'tries'\n"
        "        with tries.open('a') as file: file.write('x')\n"
        "        if tries.stat().st_size < 4: await asyncio.to_thread(os.listdir, 'gone')\n"
        "        await hand_in([Item(body='at last', delivery='1')])\n"
        "        await asyncio.sleep(600)\n",
        triggers=[("flaky", "Plug")],
    )
    loaded = scene.config('[triggers.f]\nkind = "flaky"\nqueues = ["work"]\n')

    async def story():
        await scene.waking.start(loaded)
        await scene.until(scene.problems)
        await scene.until(lambda: "trigger f runs again" in scene.said)

    scene.run(story)
    disabled = [line for line in scene.said if line.startswith("trigger f is disabled: FileNotFoundError: ")]
    assert len(disabled) == 3
    assert "'gone' (flaky.py:11); tried again" in disabled[0]
    assert [line.rpartition(" in ")[2] for line in disabled] == ["0.05 s", "0.1 s", "0.2 s"]
    where = [line for line in scene.said if line.startswith("  ")]
    assert len(where) == 1, "said once, and of its own code alone"
    assert "/flaky.py:11 in run: if tries" in where[0]
    assert scene.problems() == {}
    assert scene.rows("SELECT body, door FROM items") == [("at last", "trigger f")]
    assert scene.rows("SELECT count(*) FROM events WHERE kind = 'trigger'") == [(2,)]
    assert (scene.folder / "state" / "triggers" / "f" / "tries").read_text() == "xxxx"


def test_a_reload_stops_the_old_ones_before_it_starts_the_new_ones(scene):
    install(scene.site, "poller", POLLER, triggers=[("poller", "Plug")])
    install(scene.site, "broken", "raise OSError('x')", triggers=[("broken", "Plug")])
    table = '[triggers.p]\nkind = "poller"\nqueues = ["work"]\nword = "{}"\n'
    broken = '[triggers.b]\nkind = "broken"\nqueues = ["work"]\n'

    async def story():
        await scene.waking.start(scene.config(table.format("one") + broken))
        await scene.until(lambda: "trigger:b" in scene.problems() and scene.woken)
        await scene.waking.restart(scene.config(table.format("two")))
        await scene.until(lambda: len(scene.rows("SELECT id FROM items")) == 2)
        await scene.waking.restart(scene.config())

    scene.run(story)
    assert lives() == [("begins", "one"), ("ends", "one"), ("begins", "two"), ("ends", "two")]
    assert scene.rows("SELECT body FROM items ORDER BY seq") == [("one",), ("two",)]
    assert set(scene.woken) == {"trigger p"}


def test_a_reload_that_changes_nothing_hands_nothing_in_twice(scene):
    install(scene.site, "poller", POLLER, triggers=[("poller", "Plug")])
    loaded = scene.config('[triggers.p]\nkind = "poller"\nqueues = ["work"]\n')

    async def story():
        await scene.waking.start(loaded)
        await scene.until(lambda: len(scene.woken) == 1)
        await scene.waking.restart(loaded)
        await scene.until(lambda: len(lives()) == 3)

    scene.run(story)
    assert len(scene.rows("SELECT id FROM items")) == 1
    assert len(scene.woken) == 1, "a duplicate is no work"


def test_one_that_does_not_stop_is_left_behind_and_not_doubled(scene, monkeypatch):
    monkeypatch.setattr(hosting, "STOP_S", 0.2)
    monkeypatch.setattr(hosting, "CANCEL_S", 0.1)
    install(
        scene.site,
        "deaf",
        "class Plug(Trigger):\n"
        "    async def run(self, wake, hand_in):\n"
        "        while not (self.given.folder / 'enough').exists(): time.sleep(0.05)\n"
        "        try: await hand_in([Item(body='too late', delivery='1')])\n"
        "        except Exception as error: (self.given.folder / 'refused').write_text(str(error))\n",
        triggers=[("deaf", "Plug")],
    )
    loaded = scene.config('[triggers.d]\nkind = "deaf"\nqueues = ["work"]\n')

    async def story():
        await scene.waking.start(loaded)
        await asyncio.sleep(0.3)
        await scene.waking.restart(loaded)
        await scene.until(lambda: "it did not stop when it was told to" in str(scene.problems()))
        before = len(scene.said)
        (scene.folder / "enough").touch()
        await scene.until(lambda: scene.rows("SELECT id FROM items"))
        assert len(scene.said) >= before

    scene.run(story)
    assert "trigger d does not stop; it is left behind and can do nothing more" in scene.said
    assert (scene.folder / "refused").read_text() == "it was stopped"
    assert scene.rows("SELECT body FROM items") == [("too late",)], "the next one hands it in"


def test_one_that_waits_for_ever_in_its_start_is_cancelled(scene, monkeypatch):
    monkeypatch.setattr(hosting, "START_S", 0.2)
    install(
        scene.site,
        "slow",
        "class Plug:\n    def __init__(self, given): pass\n"
        "    async def start(self, wake, hand_in): await asyncio.sleep(600)\n    async def stop(self): pass\n",
        triggers=[("slow", "Plug")],
    )
    loaded = scene.config('[triggers.s]\nkind = "slow"\nqueues = ["work"]\n')

    async def story():
        await scene.waking.start(loaded)
        await scene.until(lambda: scene.problems() == {"trigger:s": "it did not start within 0.2 s"})

    scene.run(story)
    assert "does not stop" not in str(scene.said)


def test_a_full_queue_makes_it_wait_and_loses_nothing(scene, monkeypatch):
    monkeypatch.setattr(hosting, "RETRY_S", 0.05)
    install(
        scene.site,
        "eager",
        "class Plug(Trigger):\n"
        "    async def run(self, wake, hand_in):\n"
        "        for n in range(2): await hand_in([Item(body=str(n), delivery=str(n))])\n",
        triggers=[("eager", "Plug")],
    )
    loaded = scene.config('[triggers.e]\nkind = "eager"\nqueues = ["work"]\n', cap=1)

    async def story():
        await scene.waking.start(loaded)
        await scene.until(lambda: "tried again every minute" in str(scene.said))
        await asyncio.sleep(0.3)
        (first,) = scene.rows("SELECT id FROM items")
        scene.store.people.abort(first[0], by="anna", reason=None, now=time.time())
        await scene.until(lambda: len(scene.rows("SELECT id FROM items")) == 2)

    scene.run(story)
    assert str(scene.said).count("as many as max_waiting lets it") == 1
    assert scene.problems() == {}


def test_a_batch_that_its_queue_can_never_hold_is_refused_and_does_not_wait_for_ever(scene):
    install(
        scene.site,
        "greedy",
        "class Plug(Trigger):\n"
        "    async def run(self, wake, hand_in):\n"
        "        items = [Item(body=str(n)) for n in range(4)]\n"
        "        try: await hand_in(items)\n"
        "        except InputRefused as refused: self.given.say(f'{refused.rule}: {refused}')\n"
        "        await hand_in(items[:3])\n",
        triggers=[("greedy", "Plug")],
    )
    loaded = scene.config('[triggers.g]\nkind = "greedy"\nqueues = ["work"]\n', cap=3)

    async def story():
        await scene.waking.start(loaded)
        await scene.until(lambda: len(scene.rows("SELECT id FROM items")) == 3)

    scene.run(story)
    words = '4 items at once for queue "work", which holds at most 3 (max_waiting); hand in fewer at once'
    assert scene.said == [f"trigger g: bad-value: {words}"]


def test_a_refused_store_ends_the_daemon_and_not_the_plugin(scene):
    """The file is taken away under the daemon: writes would go nowhere."""
    install(
        scene.site,
        "eager",
        "class Plug(Trigger):\n"
        "    async def run(self, wake, hand_in): await hand_in([Item(body='x', delivery='1')])\n",
        triggers=[("eager", "Plug")],
    )
    loaded = scene.config('[triggers.e]\nkind = "eager"\nqueues = ["work"]\n')

    async def refuse(_batch):
        raise StoreRefused("gone")

    async def story():
        trigger = build.hosted(
            "e",
            loaded.queues,
            loaded.triggers,
            caps=loaded.caps(),
            folder=loaded.folder,
            state_dir=loaded.state_dir,
            said=scene.said.append,
        )
        await trigger.start(lambda queues, *, why: None, refuse)
        await scene.until(trigger.failed.done)
        assert isinstance(trigger.failed.exception(), StoreRefused)
        await trigger.stop()

    asyncio.run(story())


def test_what_breaks_a_rule_is_refused_whole_and_the_plugin_may_go_on(scene):
    install(
        scene.site,
        "picky",
        "import datetime\nclass Plug(Trigger):\n"
        "    async def run(self, wake, hand_in):\n"
        "        good, said = Item(body='good', delivery='g'), []\n"
        "        naive = datetime.datetime(2030, 1, 1)\n"
        "        for bad in (Item(body=' '), Item(body='x' * 3000), Item(body='\\ud800'), Item(body=3),\n"
        "                    Item(body='a', priority='high'), Item(body='a', delivery='d' * 200),\n"
        "                    Item(body='a', not_before=naive), Item(body='a', queue='other'),\n"
        "                    Item(body='a', queue=['work']), 'a'):\n"
        "            try: await hand_in([good, bad])\n"
        "            except InputRefused as refused: said.append(refused.rule)\n"
        "        taken = await hand_in([good])\n"
        "        self.given.say(' '.join([*said, taken[0].outcome, taken[0].key]))\n",
        triggers=[("picky", "Plug")],
    )
    text = '[triggers.p]\nkind = "picky"\nqueues = ["work"]\n'
    loaded = scene.config(text.replace("[triggers", "[triggers"))
    queues = {"work": loaded.queues["work"].model_copy(update={"max_bytes": 2000})}
    loaded = loaded.model_copy(update={"queues": queues})

    async def story():
        await scene.waking.start(loaded)
        await scene.until(lambda: scene.said)

    scene.run(story)
    rules = "empty too-large not-utf8 bad-value bad-value bad-value bad-value bad-value bad-value bad-value"
    assert scene.said == [f"trigger p: {rules} new p:g"]
    assert scene.rows("SELECT body FROM items") == [("good",)]
