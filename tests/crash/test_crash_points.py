"""A kill at every named crash point, a restart, a drain; then every invariant of ``crash_world``.

A test is one point's name: the daemon is killed at its ``before`` and its ``after``; where a worker or a command
reaches it, that process alone is killed there, too (``@self``). A place that never fired fails its test.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from crash_world import CrashWorld
from daemon_world import ENVIRONMENT
from hook_sender import Hook, Told
from notify_receivers import web

from store import owners
from store.points import POINTS, names

Story = Callable[[CrashWorld, str], None]
SECOND_FOLDER = "/dev/shm"
NOWHERE = "nowhere.before"
"""No place: the daemon makes ready for a crash, and the command beside it dies of one."""


def places_of(point: str) -> list[str]:
    both = [f"{point}.before", f"{point}.after"]
    return both + [f"{place}@self" for place in both if point in BY_WORKER or point in BY_COMMAND]


@pytest.mark.parametrize("point", sorted(POINTS))
def test_a_kill_at_any_point_loses_nothing_and_doubles_nothing(tmp_path, point, request):
    with web() as receiver:
        (tmp_path / "page.url").write_text(f"json://127.0.0.1:{receiver.port}/")
        (tmp_path / "page.url").chmod(0o600)
        world = CrashWorld(tmp_path)
        world.receiver, world.request, world.number = receiver, request, 0
        try:
            for place in places_of(point):
                kill_at(world, place, STORIES[point])
            finish(world)
        finally:
            world.kill()


def test_every_place_that_the_command_lists_has_a_story(tmp_path):
    listed = CrashWorld(tmp_path).command("debug", "crash-points").stdout.split()
    assert listed == names()
    assert {place.rpartition(".")[0] for place in listed} == set(POINTS) == set(STORIES)


def kill_at(world: CrashWorld, place: str, story: Story) -> None:
    """One kill: the story leads to it, a new daemon goes on, nothing is lost."""
    world.number += 1
    story(world, place)
    assert world.fired(), f"{place} was never reached\n{world.report()}"
    if world.process is None:
        world.until(lambda: not world.processes(), 10)
        world.start()
    world.until_quiet()
    world.answer_flags()
    world.until_quiet()
    world.assert_whole()
    world.kill()
    world.assert_nobody_left()
    world.disarm()


def finish(world: CrashWorld) -> None:
    """A start and a clean stop: every mark of a written file is in the store, and nothing runs any more."""
    world.start()
    world.until_quiet()
    world.until(world.all_marked)
    assert world.stop() == 0, world.said()
    world.assert_whole()
    world.assert_nobody_left()
    world.process = None


def load(world: CrashWorld) -> None:
    """Work for both queues: two files, and a question that a command hands in where a story has no command yet."""
    n = world.number
    world.drop(f"{n}-one.md", f"answer {n} one", "alpha")
    world.drop(f"{n}-two.md", f"answer {n} two", "beta")


def ask(world: CrashWorld) -> str:
    """A dropped question that a person has to answer; its body."""
    body = f"flag {world.number}"
    world.flagged.add(body)
    world.drop(f"{world.number}-flag.md", body, "beta")
    return body


def ends(world: CrashWorld, place: str) -> None:
    """Wait for the kill. ``@self`` in a worker leaves the daemon alive."""
    world.until_fired()
    if not place.endswith("@self"):
        world.until_dead()


# ---------------------------------------------------------------- stories: how each point is reached


def at_work(world: CrashWorld, place: str) -> None:
    """Plain work: files, a claim, a call, an answer."""
    load(world)
    world.start(ready=False, env=world.armed(place))
    ends(world, place)


def writing_files(world: CrashWorld, place: str) -> None:
    """Nothing is left to be marked from before, so that it is a worker that writes."""
    if world.number > 1:
        world.start()
        world.until(world.all_marked)
        world.kill()
    at_work(world, place)


def by_an_add(world: CrashWorld, place: str) -> None:
    """The files' own intake is one of the two doors; a command that dies while it hands in is the other."""
    if not place.endswith("@self"):
        at_work(world, place)
        return
    world.start(env=world.armed(NOWHERE))
    world.watch_for(place)
    world.add_under(world.armed_command(place), f"answer {world.number} by command")


def by_a_delivery(world: CrashWorld, place: str) -> None:
    """Some are sent at once, and again until they are taken: one item each, and nothing that was told is untrue."""
    if world.hook is None:
        world.hook = Hook()
    world.rewrite()
    world.start(env=world.armed(place))
    sent = {f"{place}-{number}": f"answer {world.number} delivered {number}" for number in range(4)}
    told: dict[str, Told] = {}
    threads = [
        threading.Thread(target=lambda one=one: told.update({one: world.deliver(sent[one], one)}))
        for one in sent
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ends(world, place)
    there = dict(world.rows("SELECT body, id FROM items"))
    assert [one for one in sent if told[one].id and there.get(sent[one]) != told[one].id] == []
    committed = [one for one in sent if sent[one] in there]
    assert bool(committed) == (place != "webhook.commit.before")
    world.start()
    for one, body in sent.items():
        item = world.redeliver(body, one)
        assert there.get(body, item) == item


def on_a_first_look(world: CrashWorld, place: str) -> None:
    """An inbox that nobody looked at before."""
    shutil.rmtree(world.state / "inboxes", ignore_errors=True)
    at_work(world, place)


def with_new_rules(world: CrashWorld, place: str) -> None:
    world.rules.insert(1, f"Rule {world.number}: “verbatim”, \ttoo")
    world.rewrite()
    at_work(world, place)


def with_new_sources(world: CrashWorld, place: str) -> None:
    world.doc(f"doc-{world.number}", f"# Doc\n\nThe answer to {world.number} is in here.\n")
    at_work(world, place)


def with_a_bad_file(world: CrashWorld, place: str) -> None:
    world.drop_bad(f"{world.number}-bad.md")
    at_work(world, place)


def with_an_archive_elsewhere(world: CrashWorld, place: str) -> None:
    """Archive and rejected on another file system: moves become copies."""
    if not os.access(SECOND_FOLDER, os.W_OK) or os.stat(SECOND_FOLDER).st_dev == os.stat(world.folder).st_dev:
        pytest.skip("there is no second file system in /dev/shm")
    inbox = world.folder / "in-alpha"
    if not (inbox / "archive").is_symlink():
        elsewhere = Path(tempfile.mkdtemp(dir=SECOND_FOLDER))
        world.request.addfinalizer(lambda: shutil.rmtree(elsewhere))
        for name in ("archive", "rejected"):
            (elsewhere / name).mkdir()
            (inbox / name).symlink_to(elsewhere / name)
    with_a_bad_file(world, place)


def with_a_writer(world: CrashWorld, place: str) -> None:
    """A file that somebody touches while it is read goes back to the inbox, and is taken when he is done."""
    load(world)
    world.start(env=world.armed(place))
    stop = threading.Event()
    tries = 0
    while not world.fired():
        tries += 1
        assert tries < 50, "no file was ever put back"
        body = f"answer {world.number} touched {tries} " + "x" * 10_000
        path = world.folder / f".touched-{tries}"
        path.write_text(body)
        fd = os.open(path, os.O_RDONLY)
        stop.clear()
        toucher = threading.Thread(target=touch, args=(fd, stop))
        toucher.start()
        name = f"{world.number}-touched-{tries}.md"
        path.rename(world.folder / "in-alpha" / name)
        world.handed[body] = "alpha"
        world.dropped[f"alpha/{name}"] = body.encode()
        end = time.monotonic() + 1
        while time.monotonic() < end and not world.fired():
            time.sleep(0.01)
        stop.set()
        toucher.join()
        os.close(fd)
    world.until_dead()


def touch(fd: int, stop: threading.Event) -> None:
    at = 1_000_000_000_000_000_000
    while not stop.is_set():
        at += 1_000_000
        os.utime(fd, ns=(at, at))


def with_a_missing_inbox(world: CrashWorld, place: str) -> None:
    """The folder is taken away under the daemon, and is back before the next one."""
    world.rewrite(extra='[triggers.watch]\nkind = "files"\nqueues = ["alpha"]\nrescan_every = "1s"\n')
    load(world)
    inbox, away = world.folder / "in-alpha", world.folder / "away"
    world.start(ready=False, env=world.armed(place))
    world.until(lambda: world.fired() or world.quiet())
    inbox.rename(away)
    try:
        ends(world, place)
    finally:
        away.rename(inbox)


def with_a_crash(world: CrashWorld, place: str) -> None:
    """A worker dies; its node is taken back."""
    world.drop(f"{world.number}-crash.md", f"kill-once {signal.SIGKILL} {world.number}")
    at_work(world, place)


def when_stopped(world: CrashWorld, place: str) -> None:
    """A session that outlasts the grace is given back."""
    world.rewrite(daemon='crash_limit = 100\ngrace = "200ms"')
    world.drop(f"{world.number}-long.md", f"sleep-once 30 {world.number}")
    before = len(world.calls())
    world.start(env=world.armed(place))
    world.until(lambda: len(world.calls()) > before)
    world.send(signal.SIGTERM)
    ends(world, place)


def at_a_clean_stop(world: CrashWorld, place: str) -> None:
    load(world)
    world.start(env=world.armed(place))
    world.until_quiet()
    world.send(signal.SIGTERM)
    ends(world, place)


def at_the_first_start(world: CrashWorld, place: str) -> None:
    """No store yet: each of these kills happens to a folder of its own."""
    for old in ("state", "in-alpha", "in-beta", "out-alpha", "out-beta"):
        shutil.rmtree(world.folder / old, ignore_errors=True)
        if old != "state":
            (world.folder / old).mkdir()
    world.handed.clear()
    world.dropped.clear()
    (world.folder / "calls.log").unlink(missing_ok=True)
    at_work(world, place)


def with_an_answer(world: CrashWorld, place: str) -> None:
    """A person answers a question by a command, beside the daemon."""
    body = ask(world)
    person_does(world, place, lambda flag: ["resolve", flag, "--option", "1", "--by", "anna"], body)


def person_does(
    world: CrashWorld, place: str, words: Callable[[str], list[str]], body: str, done: int = 5
) -> None:
    """A command beside an armed daemon: whoever reaches the place first dies there, the command takes the daemon along.

    ``@self``: the daemon is down, the command alone dies. Either way the person looks and does it once more; it may
    have been done already (exit ``done``).
    """
    alone = place.endswith("@self")
    world.start(ready=False, env={} if alone else world.armed(place))
    world.until(lambda: world.quiet() or (not alone and world.fired()))
    early = not alone and world.fired()  # by the daemon, with what an earlier kill had left to do
    command = [] if early else words(waiting_flag(world))
    if alone:
        world.kill()
        died = world.command(*command, env=world.armed(place), check=None)
        assert died.returncode == -signal.SIGKILL, (died.stdout, died.stderr)
    else:
        if not early:
            world.command(*command, env=world.armed_command(place), check=None)
        ends(world, place)
    world.start()
    if early:
        world.until_quiet()
    again = world.command(*(command or words(waiting_flag(world))), check=None)
    assert again.returncode in (0, done), again.stderr
    world.flagged.discard(body)


def waiting_flag(world: CrashWorld) -> str:
    return world.value("SELECT id FROM flags WHERE state = 'waiting'")


def with_a_pause(world: CrashWorld, place: str) -> None:
    """Held and let go again; a pause that was committed is not lost."""
    body = ask(world)
    item = None

    def words(_flag: str) -> list[str]:
        nonlocal item
        item = world.value("SELECT id FROM items WHERE body = ?", body)
        return ["pause", item]

    person_does(world, place, words, "")
    assert world.value("SELECT paused FROM items WHERE id = ?", item) == 1
    world.command("resume", item)


def with_a_retry(world: CrashWorld, place: str) -> None:
    """A question about failures is answered by "try again"; a finished item begins a new generation."""
    body = f"answer {world.number} again"
    world.drop(f"{world.number}-again.md", body)
    world.start(env=world.armed(NOWHERE))
    world.watch_for(place)
    world.until_quiet()
    item = world.value("SELECT id FROM items WHERE body = ?", body)
    died = world.command("retry", item, env=world.armed_command(place), check=None)
    assert died.returncode == -signal.SIGKILL, (died.stdout, died.stderr)
    if not place.endswith("@self"):
        world.until_dead()
        world.start()
    if world.value("SELECT generation FROM items WHERE id = ?", item) == 1:
        world.command("retry", item)


def with_an_abort(world: CrashWorld, place: str) -> None:
    body = ask(world)
    world.aborted.add(body)

    def words(_flag: str) -> list[str]:
        return ["abort", world.value("SELECT id FROM items WHERE body = ?", body), "--yes"]

    person_does(world, place, words, body, done=0)


def with_a_backup(world: CrashWorld, place: str) -> None:
    """A backup is whole or not there."""
    load(world)
    world.start(env=world.armed(NOWHERE))
    world.watch_for(place)
    world.until_quiet()
    target = world.folder / f"backup-{world.number}.db"
    died = world.command("backup", str(target), env=world.armed_command(place), check=None)
    assert died.returncode == -signal.SIGKILL, (died.stdout, died.stderr)
    assert target.exists() == (place.startswith("backup.replace.after"))
    if not target.exists():
        if not place.endswith("@self"):
            world.until_dead()
            world.start()
        world.command("backup", str(target))
    elif not place.endswith("@self"):
        world.until_dead()
    copy = sqlite3.connect(f"file:{target}?mode=ro", uri=True)
    assert copy.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    assert copy.execute("SELECT count(*) FROM items").fetchone()[0] == len(world.handed)
    copy.close()


NOTIFY = '[notify]\nservices = [{ url_file = "page.url" }]\n'


def with_a_page(world: CrashWorld, place: str) -> None:
    """A refused file is told to somebody: never lost, at most one more of the same id for each kill (R12)."""
    receiver = world.receiver
    if world.number == 1:
        world.rewrite(extra=NOTIFY)
    else:  # another queue, since one alert tells of many files
        clear_alerts(world)
    before = len(receiver.ids)
    world.drop_bad(f"{world.number}-bad.md")
    at_work(world, place)
    world.start()
    world.until(lambda: delivered(world), 40)
    fresh = receiver.ids[before:]
    assert len(set(fresh)) == 1, fresh
    assert len(fresh) <= 2, fresh


def clear_alerts(world: CrashWorld) -> None:
    """Let the alert of the refused file be over, as it would be hours later."""
    conn = sqlite3.connect(world.state / "shiftwork.db", timeout=10)
    with conn:
        conn.execute("DELETE FROM problems")
        conn.execute("DELETE FROM outbox")
        conn.execute("DELETE FROM alert_channels")
        conn.execute("DELETE FROM alerts")
    conn.close()


def delivered(world: CrashWorld) -> bool:
    """Each firing alert has been told, and nothing is owed."""
    return (
        world.value("SELECT count(*) FROM alert_channels") >= 1
        and world.value("SELECT count(*) FROM outbox") == 0
    )


def with_an_ack(world: CrashWorld, place: str) -> None:
    """A person quiets a firing alert."""
    if world.number == 1:
        world.rewrite(extra=NOTIFY)
    world.drop_bad(f"{world.number}-bad.md")
    world.start(env=world.armed(NOWHERE))
    world.watch_for(place)
    world.until(lambda: delivered(world), 40)
    died = world.command("ack", "rejected:alpha", env=world.armed_command(place), check=None)
    assert died.returncode == -signal.SIGKILL, (died.stdout, died.stderr)
    if not place.endswith("@self"):
        world.until_dead()
        world.start()
    world.command("ack", "rejected:alpha")
    assert world.value("SELECT acked_until_at FROM alerts") is not None


def with_a_refused_start(world: CrashWorld, place: str) -> None:
    """A start that is refused pages once, with a mark beside the store."""
    receiver = world.receiver
    load(world)
    before = len(receiver.ids)
    world.rewrite(extra=f"{NOTIFY}surprise = 1\n")
    died = world.command("run", env=world.armed(place), check=None)
    assert died.returncode == -signal.SIGKILL, died.stderr
    refused = world.command("run", check=None)
    assert refused.returncode == 78, refused.stderr
    world.command("run", check=78)
    fresh = receiver.ids[before:]
    assert len(set(fresh)) == 1, fresh
    assert len(fresh) <= 2, fresh
    world.rewrite(extra=NOTIFY)


def with_a_timer(world: CrashWorld, place: str) -> None:
    """Every planned instant is handed in once, whatever happens between the item and the mark."""
    timer = (
        '[triggers.tick]\nkind = "timer"\nqueues = ["alpha"]\nevery = "1s"\nitem = { body = "answer tick" }\n'
    )
    world.rewrite(extra=timer)
    mark = world.state / "timers" / "tick"
    if world.number == 1:
        shutil.rmtree(world.state / "timers", ignore_errors=True)
    at_work(world, place)
    world.start()
    before = mark.read_text() if mark.exists() else ""
    world.until(lambda: mark.exists() and mark.read_text() != before)
    world.kill()
    world.rewrite(extra="")
    keys = [key for (key,) in world.rows("SELECT key FROM items WHERE door = 'timer'")]
    assert len(set(keys)) == len(keys)


DRIVER = """
import sys, time
from pathlib import Path
from store import owners
from store.claims import Order
from store.sqlite import open_store
store = open_store(Path(sys.argv[1]))
order = Order(["alpha", "beta"], owner=owners.me(), daemon=sys.argv[2], trigger="test", lease_s=60, deadline_s=600)
claim = store.claims.claim(order, now=time.time())
store.claims.extend(claim, now=time.time(), until_at=time.time() + 600)
"""


def with_a_short_lease(world: CrashWorld, place: str) -> None:
    """Today's workers claim for as long as their call may take; one that did not would extend, and die there."""
    world.start()
    owner = owners.of(world.process.pid)
    world.kill()
    world.add(f"answer {world.number} extended")
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(world.state), owner], env=ENVIRONMENT | world.armed(place),
        cwd=world.folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr


STORIES: dict[str, Story] = {
    "backup.replace": with_a_backup,
    "backup.write": with_a_backup,
    "checkpoint": at_work,
    "claim": at_work,
    "decider.call": at_work,
    "events.note": with_a_missing_inbox,
    "extend": with_a_short_lease,
    "history": at_work,
    "inbox.archive": at_work,
    "inbox.claim": at_work,
    "inbox.copy": with_an_archive_elsewhere,
    "inbox.drop": with_an_archive_elsewhere,
    "inbox.mark": on_a_first_look,
    "inbox.put-back": with_a_writer,
    "inbox.reason": with_a_bad_file,
    "inbox.record": with_a_bad_file,
    "inbox.reject": with_a_bad_file,
    "intake": by_an_add,
    "memory.constraints": with_new_rules,
    "memory.sources": with_new_sources,
    "notify.ack": with_an_ack,
    "notify.claim": with_a_page,
    "notify.mark": with_a_refused_start,
    "notify.problem": with_a_missing_inbox,
    "notify.record": with_a_page,
    "notify.send": with_a_page,
    "notify.step": with_a_page,
    "papers.mark": with_an_answer,
    "papers.remove": with_an_answer,
    "papers.write": writing_files,
    "people.abort": with_an_abort,
    "people.pause": with_a_pause,
    "people.resolve": with_an_answer,
    "people.retry": with_a_retry,
    "reclaim": with_a_crash,
    "release": when_stopped,
    "store.create": at_the_first_start,
    "store.mark": at_a_clean_stop,
    "store.migrate": at_the_first_start,
    "timer.mark": with_a_timer,
    "webhook.answer": by_a_delivery,
    "webhook.commit": by_a_delivery,
}
BY_WORKER = {"checkpoint", "claim", "decider.call", "history", "memory.sources", "papers.write"}
BY_COMMAND = {
    "backup.replace",
    "backup.write",
    "intake",
    "notify.ack",
    "papers.mark",
    "papers.remove",
    "people.abort",
    "people.pause",
    "people.resolve",
    "people.retry",
}
