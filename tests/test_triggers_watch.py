"""What wakes the scan: inotify, watchfiles, timers; and inboxes that vanish (FIELD 2, 6, 8, 9)."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from removal import remove
from triggers_world import make_world, python

from store.errors import StoreRefused
from triggers.files import FilesTrigger, Tuning
from triggers.inbox import place
from triggers.inbox.net import Net
from triggers.inbox.watch import Watch


class Running:
    """A files trigger at work, and what it said and woke."""

    def __init__(self, world, executor, tuning):
        self.world = world
        self.said: list[str] = []
        self.woken: list[float] = []
        self.trigger = FilesTrigger(
            [(world.spec, tuning)], store=world, executor=executor, said=self.said.append
        )

    def wake(self, queues, *, why):
        assert list(queues) == ["questions"]
        self.woken.append(time.monotonic())

    async def until(self, wanted, seconds=10.0):
        """Wait for ``wanted()`` to be true; how long it took."""
        started = time.monotonic()
        while not wanted():
            assert time.monotonic() - started < seconds, (self.said, self.world.tree(), self.world.items())
            await asyncio.sleep(0.005)
        return time.monotonic() - started

    async def takes(self, text, seconds=10.0):
        return await self.until(lambda: any(body == text for _, body in self.world.items()), seconds)


async def no_hand_in(batch):
    raise AssertionError("a files trigger hands in by scanning")


@asynccontextmanager
async def running(tmp_path, tuning=None, **spec):
    world = make_world(tmp_path, **spec)
    with ThreadPoolExecutor(2) as executor:
        run = Running(world, executor, tuning or Tuning(safety_net=False))
        await run.trigger.start(run.wake, no_hand_in)
        try:
            yield run
            if run.trigger.failed.done():
                run.trigger.failed.result()
        finally:
            await run.trigger.stop()
    world.db.close()


def story(function):
    """Run an async test function."""

    def run(tmp_path):
        asyncio.run(function(tmp_path))

    run.__name__ = function.__name__
    run.__doc__ = function.__doc__
    return run


# FIELD 2


@story
async def test_a_dropped_file_is_taken_within_a_moment_and_wakes_the_queue(tmp_path):
    async with running(tmp_path) as run:
        await asyncio.sleep(0.3)
        run.world.drop("a.md", "one")
        assert await run.takes("one") < 1.0
        await run.until(lambda: len(run.woken) == 1)


@story
async def test_files_that_were_there_before_the_start_are_taken(tmp_path):
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "early.md").write_text("early")
    async with running(tmp_path) as run:
        await run.takes("early")


@story
async def test_a_folder_that_is_moved_in_is_scanned(tmp_path):
    (tmp_path / "box" / "deep").mkdir(parents=True)
    (tmp_path / "box" / "deep" / "b.md").write_text("moved in")
    async with running(tmp_path) as run:
        await asyncio.sleep(0.2)
        (tmp_path / "box").rename(run.world.inbox / "box")
        await run.takes("moved in")
        (run.world.inbox / "box" / "deep" / "c.md").write_text("into a folder that was moved in")
        await run.takes("into a folder that was moved in")


@story
async def test_new_folders_are_watched_however_fast_files_come(tmp_path):
    async with running(tmp_path) as run:
        for number in range(30):
            run.world.drop(f"f{number}/g/a.md", f"text {number}")
        for number in range(30):
            await run.takes(f"text {number}")


@story
async def test_a_rename_into_place_is_taken_at_once_even_while_it_is_open(tmp_path):
    async with running(tmp_path, stable_for_s=30.0) as run:
        await asyncio.sleep(0.2)
        with (tmp_path / "a.md").open("w") as out:
            out.write("whole")
            out.flush()
            (tmp_path / "a.md").rename(run.world.inbox / "a.md")
            assert await run.takes("whole") < 1.0


@story
async def test_a_file_is_taken_when_its_writer_closes_it(tmp_path):
    async with running(tmp_path, stable_for_s=30.0) as run:
        with (run.world.inbox / "a.md").open("w") as out:
            out.write("half ")
            out.flush()
            await asyncio.sleep(0.5)
            assert run.world.items() == []
            out.write("and half")
        assert await run.takes("half and half") < 1.0


@story
async def test_without_immediate_taking_it_takes_stable_for(tmp_path):
    async with running(tmp_path, immediate=False, stable_for_s=1.0) as run:
        run.world.drop("a.md", "one")
        assert 0.8 < await run.takes("one") < 3.0


@story
async def test_many_events_for_one_file_are_one_item(tmp_path):
    """FIELD 4."""
    async with running(tmp_path) as run:
        with (run.world.inbox / "a.md").open("w") as out:
            for _ in range(50):
                out.write("x")
                out.flush()
                os.utime(run.world.inbox / "a.md")
                await asyncio.sleep(0.005)
        await run.takes("x" * 50)
        await asyncio.sleep(0.2)
        assert len(run.world.items()) == 1


@story
async def test_a_flood_makes_batches(tmp_path):
    async with running(tmp_path) as run:
        before = run.world.rows("SELECT seq FROM commits")[0][0]
        for number in range(1000):
            run.world.drop(f"{number}.md", f"q {number}")
        await run.until(lambda: len(run.world.items()) == 1000, 30)
        assert run.world.rows("SELECT seq FROM commits")[0][0] - before < 300


@story
async def test_a_full_scan_comes_by_the_clock_when_no_event_does(tmp_path):
    async with running(tmp_path, Tuning(rescan_every_s=0.5, safety_net=False)) as run:
        run.trigger._watch.close()
        run.world.drop("a.md", "unheard")
        await run.takes("unheard", 3.0)


@story
async def test_the_safety_net_hears_what_inotify_did_not(tmp_path):
    async with running(tmp_path, Tuning(safety_net=True)) as run:
        await asyncio.sleep(0.5)
        run.trigger._watch.close()
        run.world.drop("a.md", "caught")
        await run.takes("caught", 5.0)


@story
async def test_an_idle_trigger_writes_nothing_and_hardly_wakes(tmp_path):
    async with running(tmp_path) as run:
        run.world.drop("a.md", "one")
        await run.takes("one")
        await asyncio.sleep(0.5)
        before = run.world.rows("SELECT seq FROM commits")
        scanned_at = run.trigger._boxes[0].scanned_at
        used = os.times()
        await asyncio.sleep(2.0)
        now = os.times()
        assert run.trigger._boxes[0].scanned_at == scanned_at
        assert run.world.rows("SELECT seq FROM commits") == before
        assert (now.user + now.system) - (used.user + used.system) < 0.2


@story
async def test_a_damaged_store_is_handed_to_the_daemon_and_loses_no_file(tmp_path):
    class Broken:
        def room(self, queue, cap):
            raise StoreRefused("damaged")

    async with running(tmp_path) as run:
        run.world.intake = Broken()
        run.world.drop("a.md", "one")
        with pytest.raises(StoreRefused):
            await asyncio.wait_for(asyncio.shield(run.trigger.failed), 5)
        assert run.world.tree() == ["a.md"]
        run.trigger._failed = None


# FIELD 6


@story
async def test_a_name_that_is_not_utf8_ends_the_library_and_not_the_watching(tmp_path):
    async with running(tmp_path, Tuning(watch="poll", poll_every_s=0.3)) as run:
        await asyncio.sleep(1.5)
        run.world.drop(os.fsdecode(b"caf\xe9.md"), "x")
        await run.until(lambda: "rejected/caf\\xe9.md" in run.world.tree(), 10)
        assert next(iter(run.trigger._nets.values())).restarts == 1
        run.world.drop("good.md", "the next good file")
        await run.takes("the next good file", 15)


@story
async def test_a_silent_file_system_is_polled_and_said_so(tmp_path):
    """FIELD 8. No network file system is at hand: the place is made to look like one after the first scan."""
    async with running(tmp_path, Tuning(poll_every_s=0.3)) as run:
        box = run.trigger._boxes[0]
        await run.until(lambda: box.memory.place is not None)
        box.memory.place = box.memory.place._replace(silent=True)
        await run.trigger._watch_folders(box, box.folders)
        assert run.trigger._watch.folders() == set()
        assert run.said == [
            f"questions: {run.world.inbox} is polled every 0.3 s: its file system tells no events"
        ]
        await asyncio.sleep(1.5)
        run.world.drop("a.md", "polled")
        await run.takes("polled", 5.0)


LIMITED = """
import asyncio, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from triggers_world import open_world
from triggers.files import FilesTrigger, Tuning

async def main():
    world = open_world(Path(sys.argv[1]))
    with ThreadPoolExecutor(2) as executor:
        trigger = FilesTrigger([(world.spec, Tuning(poll_every_s=0.3, safety_net=False))], store=world,
                               executor=executor, said=print)
        await trigger.start(lambda queues, *, why: None, None)
        await asyncio.sleep(2)
        world.drop("sub9/a.md", "taken all the same")
        started = time.monotonic()
        while not world.items() and time.monotonic() - started < 10:
            await asyncio.sleep(0.05)
        print(world.items(), world.problems())
        assert not trigger.failed.done()
        await trigger.stop()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("limit", "sysctl"), [("watches", "max_user_watches"), ("instances", "max_user_instances")]
)
def test_a_reached_watch_limit_names_the_sysctl_and_polls(tmp_path, limit, sysctl):
    world = make_world(tmp_path)
    for number in range(10):
        (world.inbox / f"sub{number}").mkdir()
    value = {"watches": 5, "instances": 0}[limit]
    line = f'echo {value} > /proc/sys/user/max_inotify_{limit} && exec "$@"'
    root = Path(__file__).parents[1]
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", line, "sh", shutil.which("env"), "true"],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("this machine gives no user namespaces")
    import sys

    done = subprocess.run(
        [
            "unshare",
            "--user",
            "--map-root-user",
            "sh",
            "-c",
            line,
            "sh",
            sys.executable,
            "-c",
            LIMITED,
            str(tmp_path),
        ],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"fs.inotify.{sysctl}" in done.stdout
    assert "is polled every 0.3 s" in done.stdout
    assert "taken all the same" in done.stdout
    assert "inbox:questions watch" in done.stdout


# FIELD 9


@story
async def test_an_inbox_that_is_deleted_is_never_created_again_and_watched_when_it_returns(tmp_path):
    async with running(tmp_path) as run:
        run.world.drop("a.md", "one")
        await run.takes("one")
        remove(run.world.inbox)
        await run.until(lambda: "inbox:questions missing" in run.world.problems())
        await asyncio.sleep(0.5)
        assert not run.world.inbox.exists()
        run.world.inbox.mkdir()
        run.world.drop("b.md", "back")
        await run.takes("back", 10)
        await run.until(lambda: run.world.problems() == {})
        run.world.drop("c.md", "heard")
        assert await run.takes("heard") < 1.5
        assert run.world.kinds().count("inbox") == 2


@story
async def test_another_folder_in_its_place_is_watched_anew(tmp_path):
    async with running(tmp_path) as run:
        run.world.drop("a.md", "one")
        await run.takes("one")
        run.world.inbox.rename(tmp_path / "old")
        run.world.inbox.mkdir()
        run.world.drop("b.md", "in the new folder")
        await run.takes("in the new folder", 5)
        run.world.drop("c.md", "heard there")
        assert await run.takes("heard there") < 1.5
        (tmp_path / "old" / "d.md").write_text("no longer ours")
        await asyncio.sleep(0.5)
        assert (tmp_path / "old" / "d.md").exists()


def mount(folder: Path, *options: str) -> None:
    done = subprocess.run(["mount", *options, folder], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("mounting needs root")


def unmount(folder: Path) -> None:
    subprocess.run(["umount", "-l", folder], check=True)


def test_an_inbox_that_is_not_mounted_is_missing_and_nothing_is_made_beneath_it(tmp_path):
    world = make_world(tmp_path)
    mount(world.inbox, "-t", "tmpfs", "tmpfs")
    try:
        world.drop("a.md", "on the mount")
        assert len(world.scan().taken) == 1
    finally:
        unmount(world.inbox)
    for _ in range(2):
        world.drop("b.md", "beneath it")
        report = world.scan()
        assert "not mounted" in report.missing
        assert world.tree() == ["b.md"]
        world.restarted()  # the note beside the store outlives the daemon
    mount(world.inbox, "-t", "tmpfs", "tmpfs")
    try:
        world.drop("c.md", "mounted again")
        assert [one.file for one in world.scan().taken] == ["c.md"]
    finally:
        unmount(world.inbox)


def test_a_bind_mount_counts_as_a_mount(tmp_path):
    world = make_world(tmp_path)
    (tmp_path / "data").mkdir()
    mount(world.inbox, "--bind", str(tmp_path / "data"))
    try:
        assert place.look_only(world.inbox).mounted
    finally:
        unmount(world.inbox)
    assert not place.look_only(world.inbox).mounted


@story
async def test_a_mount_over_the_inbox_is_noticed_though_inotify_says_nothing(tmp_path):
    import triggers.files

    world_folder = tmp_path / "inbox"
    async with running(tmp_path, Tuning(rescan_every_s=1.0, safety_net=False)) as run:
        run.world.drop("a.md", "one")
        await run.takes("one")
        mount(world_folder, "-t", "tmpfs", "tmpfs")
        try:
            run.world.drop("b.md", "on top")
            await run.takes("on top", 5)
            run.world.drop("c.md", "heard on top")
            assert await run.takes("heard on top") < 1.0
        finally:
            unmount(world_folder)
    assert triggers.files.LOOK_EVERY_S <= 30


def test_an_inbox_that_vanishes_under_a_scan_is_not_created_by_it(tmp_path):
    world = make_world(tmp_path)

    class Vanishing:
        def room(self, queue, cap):
            return cap

        def hand_in(self, batch, **more):
            shutil.rmtree(world.inbox)
            return intake.hand_in(batch, **more)

    intake, world.intake = world.intake, Vanishing()
    world.drop("a.md", "one")
    world.drop("bad.md", b"\xff")
    world.scan()
    assert not world.inbox.exists()
    assert world.scan().missing == "not there"
    assert [body for _, body in world.items()] == ["one"]


def test_an_inbox_is_created_once_on_the_first_run_and_never_again(tmp_path):
    world = make_world(tmp_path)
    world.inbox.rmdir()
    assert world.scan().missing == ""
    assert world.inbox.is_dir()
    world.inbox.rmdir()
    world.restarted()
    assert world.scan().missing == "not there"
    assert not world.inbox.exists()


def test_a_file_in_the_place_of_the_inbox_is_told_and_left_alone(tmp_path):
    world = make_world(tmp_path)
    world.inbox.rmdir()
    world.inbox.write_text("I am a file")
    assert world.scan().missing == "not a folder"
    assert world.inbox.read_text() == "I am a file"


@story
async def test_the_watch_tells_of_an_overflow_as_everything(tmp_path):
    told = []
    watch = Watch(told.append)
    watch.sync([tmp_path])
    watch._handle(-1, 0x4000, "")
    assert told == [None]
    watch.close()
    watch.close()


@story
async def test_the_net_wakes_every_folder_when_it_begins(tmp_path):
    woken = []
    net = Net(woken.append)
    net.want([tmp_path])
    await asyncio.sleep(0.2)
    assert woken == [tmp_path]
    (tmp_path / "gone").mkdir()
    net.want([tmp_path / "gone"])
    await asyncio.sleep(1.5)
    assert woken == [tmp_path, tmp_path / "gone"]
    started = time.monotonic()
    await net.stop()
    assert time.monotonic() - started < 2.5


def test_importing_the_files_trigger_does_not_import_the_libraries():
    heavy = ("watchfiles", "apscheduler", "pydantic")
    code = f"import sys, triggers.files; print([name for name in {heavy} if name in sys.modules])"
    done = python(code)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
