"""Dropped files: which are taken, when, and where they end (FIELD 1-5, 7, 10, 11, 21)."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from small_disks import fill, small_disk
from triggers_world import NOW, World, make_world

from store.errors import StoreGone
from triggers.inbox import names
from triggers.inbox.stability import Look, observe, ready_at
from triggers.inbox.walk import walk


@pytest.fixture
def world(tmp_path):
    made = make_world(tmp_path)
    yield made
    made.db.close()


def as_nobody(work):
    """Run ``work`` in a child without root's rights; what it returned, through JSON."""
    if os.geteuid() != 0:
        return work()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            answer = json.dumps(work())
        except Exception as error:  # noqa: BLE001 - it is what the test sees
            answer = json.dumps(f"failed: {error!r}")
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text)


# FIELD 1


def test_a_file_is_taken_when_size_mtime_and_inode_stayed_the_same(tmp_path):
    world = make_world(tmp_path, immediate=False)
    now = time.time()
    world.drop("a.md")
    first = world.scan(now)
    assert first.waiting == ("a.md",)
    assert first.next_at == pytest.approx(now + 2.0, abs=1.0)
    assert world.scan(now + 1.0).waiting == ("a.md",)
    assert [one.file for one in world.scan(now + 3.0).taken] == ["a.md"]
    assert world.tree() == ["archive/a.md"]
    assert world.items() == [("q-0001", "What is this?\n")]


def test_a_file_that_is_still_being_written_is_left_alone(tmp_path):
    world = make_world(tmp_path, immediate=False)
    now = time.time()
    for second in range(5):
        with world.inbox.joinpath("a.md").open("a") as out:
            out.write("more\n")
        os.utime(world.inbox / "a.md", (now + second, now + second))
        assert not world.scan(now + second + 0.5).taken
    assert world.tree() == ["a.md"]


@pytest.mark.parametrize("change", [{"size": 2}, {"mtime_ns": 2}, {"inode": 2}, {"device": 2}])
def test_each_change_of_a_look_begins_the_wait_anew(change):
    look = Look(1, 1, 1, 1)
    seen = observe(None, look, now=100.0, changed_at=None)
    assert ready_at(seen, stable_for_s=2.0) == 102.0
    again = observe(seen, look._replace(**change), now=101.0, changed_at=None)
    assert ready_at(again, stable_for_s=2.0) == 103.0
    assert again.first_at == 100.0


def test_a_clock_that_was_set_back_does_not_put_a_file_off_for_ever():
    seen = observe(None, Look(1, 1, 1, 1), now=10_000.0, changed_at=None)
    back = observe(seen, Look(1, 1, 1, 1), now=100.0, changed_at=None)
    assert ready_at(back, stable_for_s=2.0) == 102.0


def test_a_closed_file_is_taken_at_once_and_an_open_one_is_not(world):
    now = time.time()
    with world.drop("a.md").open("a") as out:
        out.write("more\n")
        out.flush()
        assert world.scan(now).waiting == ("a.md",)
    assert [one.file for one in world.scan(now + 0.01).taken] == ["a.md"]


def test_a_rename_into_place_lets_it_be_taken_at_once(tmp_path):
    world = make_world(tmp_path)
    now = time.time()
    with world.drop("a.md").open("a"):  # a lease would say "not yet"
        report = world.scan(now, moved_in=frozenset({"a.md"}))
    assert [one.file for one in report.taken] == ["a.md"]


def test_bytes_that_come_after_the_file_was_taken_are_a_new_item(world):
    now = time.time()
    with world.drop("a.md", "half ").open("a") as out:
        world.scan(now)
        assert [one.file for one in world.scan(now + 5).taken] == ["a.md"]
        out.write("and half\n")
    for second in range(8, 20, 2):
        world.scan(now + second)
    assert world.items() == [("q-0001", "half "), ("q-0002", "half and half\n")]
    assert world.tree() == ["archive/a.md"]


def test_a_restart_does_not_forget_a_writer_that_goes_on(world):
    now = time.time()
    with world.drop("a.md", "half ").open("a") as out:
        world.scan(now)
        world.scan(now + 5)
        world.restarted()
        out.write("and half\n")
    for second in range(8, 20, 2):
        world.scan(now + second)
    assert [body for _, body in world.items()] == ["half ", "half and half\n"]


def test_bytes_that_come_later_to_a_file_with_a_key_are_a_revision(world):
    now = time.time()
    with world.drop("a.md", "+++\nkey = 'k'\n+++\nhalf ").open("a") as out:
        world.scan(now)
        world.scan(now + 5)
        out.write("and half\n")
    for second in range(8, 20, 2):
        world.scan(now + second)
    assert world.items() == [("q-0001", "half and half\n")]
    assert world.rows("SELECT revision FROM items") == [(2,)]


def test_a_file_that_is_unfinished_for_an_hour_is_named_in_one_alert_and_still_waited_for(world):
    now = time.time()
    with world.drop("slow.md").open("a") as out:
        for minute in range(0, 130, 5):
            out.write("x")
            out.flush()
            world.scan(now + minute * 60)
        assert "slow.md" in world.problems()["inbox:questions unstable"]
        assert world.kinds().count("inbox") == 1
    world.scan(now + 131 * 60)
    assert world.problems() == {}
    assert len(world.items()) == 1


# FIELD 2, 3


def test_files_that_were_there_before_the_start_are_taken_also_in_folders(tmp_path):
    world = make_world(tmp_path, immediate=False)
    world.drop("a.md", "a")
    world.drop("sub/deeper/b.md", "b")
    now = time.time() + 10
    assert {one.file for one in world.scan(now).taken} == {"a.md", "sub/deeper/b.md"}
    assert world.tree() == ["archive/a.md", "archive/sub/deeper/b.md"]


def test_our_own_folders_are_not_scanned(world):
    world.drop("archive/old.md")
    world.drop("rejected/bad.md")
    assert not world.scan().taken
    assert world.tree() == ["archive/old.md", "rejected/bad.md"]


def test_the_archive_never_overwrites(world):
    for text in ("one", "two", "three"):
        world.drop("a.md", text)
        world.scan()
    assert len(world.tree("archive")) == 3
    assert {Path(world.inbox, "archive", name).read_text() for name in world.tree("archive")} == {
        "one",
        "two",
        "three",
    }


def test_a_thousand_files_are_one_commit(world):
    for number in range(1000):
        world.drop(f"{number}.md", f"question {number}\n")
    before = world.rows("SELECT seq FROM commits")[0][0]
    assert len(world.scan().taken) == 1000
    assert world.rows("SELECT seq FROM commits")[0][0] - before == 1
    assert len(world.items()) == 1000


def test_an_idle_scan_writes_nothing(world):
    world.drop("a.md")
    world.scan()
    before = world.rows("SELECT seq FROM commits")
    marks = {path: path.stat().st_mtime_ns for path in world.folder.rglob("*")}
    for second in range(5):
        world.scan(time.time() + second)
    assert world.rows("SELECT seq FROM commits") == before
    assert {path: path.stat().st_mtime_ns for path in world.folder.rglob("*")} == marks


def test_one_scan_at_a_time_moves_files_of_an_inbox(world):
    world.drop("a.md")
    (world.inbox / ".work").mkdir()
    held = os.open(world.inbox / ".work", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    report = world.scan()
    assert not report.taken
    assert "another Shiftwork" in report.said[0]
    assert world.scan().said == ()
    os.close(held)
    assert len(world.scan().taken) == 1


# FIELD 4


def test_the_same_name_with_new_content_is_a_new_item(world):
    world.drop("a.md", "one")
    world.scan()
    world.drop("a.md", "two")
    world.scan()
    assert [body for _, body in world.items()] == ["one", "two"]


def test_the_same_key_with_new_content_is_a_revision(world):
    for text in ("one", "two"):
        world.drop("a.md", f"+++\nkey = 'k'\n+++\n{text}")
        world.scan()
    assert world.items() == [("q-0001", "two")]
    assert world.kinds() == ["intake", "revision"]


def test_the_same_content_under_another_name_is_archived_as_a_duplicate(world):
    world.drop("a.md", "same")
    world.scan()
    world.drop("b.md", "same")
    report = world.scan()
    assert [one.taken.outcome for one in report.taken] == ["duplicate"]
    assert report.new == 0
    assert world.tree() == ["archive/a.md", "archive/b (duplicate of q-0001).md"]
    assert len(world.items()) == 1


def test_a_duplicate_of_an_aborted_item_does_not_block(world):
    world.drop("a.md", "same")
    world.scan()
    with world.db.write(point="intake") as conn:
        conn.execute("UPDATE items SET state = 'aborted', finished_at = 1.0")
    world.drop("b.md", "same")
    assert [one.taken.outcome for one in world.scan().taken] == ["new"]
    assert len(world.items()) == 2


# FIELD 5


def refusal(world: World, name: str) -> tuple[str, str]:
    """The rule of a refused file, and its reason, after asserting that all is as it should be."""
    report = world.scan()
    assert len(report.refused) == 1, report
    assert not report.taken
    place = world.inbox / "rejected" / name
    assert os.path.lexists(place)
    reason = (world.inbox / "rejected" / f"{name}.reason").read_text()
    assert f"Rule: {report.refused[0].rule}" in reason
    assert world.kinds() == ["rejected"]
    assert list(world.problems()) == ["rejected:questions"]
    world.scan()
    assert world.kinds() == ["rejected"]  # no loop
    world.drop("next.md", "good")
    assert [one.file for one in world.scan().taken] == ["next.md"]  # the daemon goes on
    return report.refused[0].rule, reason


@pytest.mark.parametrize(
    ("data", "rule", "words"),
    [
        (b"abc\xff", "not-utf8", "position 3"),
        (b"a\x00b", "nul", "NUL"),
        (b"x" * (1024 * 1024 + 1), "too-large", "1,048,577 bytes"),
        (b"", "empty", "empty"),
        (b" \n", "empty", "empty"),
        (b"+++\nprio = 1\n+++\nx", "unknown-key", "priority"),
    ],
)
def test_a_file_that_can_never_be_taken_goes_to_rejected_with_its_reason(world, data, rule, words):
    world.drop("bad.md", data)
    found, reason = refusal(world, "bad.md")
    assert found == rule
    assert words in reason
    assert (world.inbox / "rejected" / "bad.md").read_bytes() == data


def test_an_empty_file_is_given_30_seconds(world):
    now = time.time()
    world.drop("a.md", "")
    assert world.scan(now).waiting == ("a.md",)
    assert world.scan(now + 29).waiting == ("a.md",)
    assert [one.rule for one in world.scan(now + 32).refused] == ["empty"]


def test_a_file_that_is_filled_within_30_seconds_is_taken(world):
    now = time.time()
    world.drop("a.md", "")
    world.scan(now)
    world.drop("a.md", "text")
    assert len(world.scan(now + 20).taken) == 1


def test_a_file_over_the_cap_is_refused_by_its_size_alone(world):
    with world.drop("big.md").open("r+b") as out:
        out.truncate(1 << 40)  # a terabyte that nobody could read
    started = time.monotonic()
    rule, _ = refusal(world, "big.md")
    assert rule == "too-large"
    assert time.monotonic() - started < 5


def test_a_link_is_moved_itself_and_its_target_never_read(world):
    secret = world.folder / "secret.md"
    secret.write_text("secret")
    accessed = secret.stat().st_atime_ns
    os.symlink(secret, world.inbox / "link.md")
    rule, _ = refusal(world, "link.md")
    assert rule == "link"
    assert os.readlink(world.inbox / "rejected" / "link.md") == str(secret)
    assert secret.stat().st_atime_ns == accessed


def test_a_dangling_link_and_a_link_to_a_folder_are_links(world):
    os.symlink("/nowhere", world.inbox / "a")
    os.symlink("/etc", world.inbox / "b")
    assert [one.rule for one in world.scan().refused] == ["link", "link"]


def test_a_named_pipe_is_moved_and_never_opened(world):
    os.mkfifo(world.inbox / "pipe.md")
    assert refusal(world, "pipe.md")[0] == "fifo"


def test_a_socket_is_moved(world):
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(world.inbox)  # the path of a socket may be 107 bytes long
        try:
            listener.bind("s.md")
        finally:
            os.chdir(here)
    assert refusal(world, "s.md")[0] == "socket"


def test_a_device_is_moved(world):
    try:
        os.mknod(world.inbox / "null.md", 0o20666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("making a device needs root")
    assert refusal(world, "null.md")[0] == "device"


def test_a_name_that_is_not_utf8_is_rejected_under_an_escaped_one(world):
    """FIELD 6, the scan's part."""
    Path(os.fsdecode(os.fsencode(world.inbox) + b"/caf\xe9.md")).write_text("x")
    assert refusal(world, "caf\\xe9.md")[0] == "name-not-utf8"


def test_rejected_files_never_overwrite_each_other(world):
    for text in (b"\xff1", b"\xff2"):
        world.drop("bad.md", text)
        world.scan()
    assert len(world.tree("rejected")) == 4
    assert world.rows("SELECT count FROM problems") == [(2,)]


def test_a_good_file_with_the_name_of_a_reason_is_not_overwritten(world):
    (world.inbox / "rejected").mkdir()
    (world.inbox / "rejected" / "bad.md.reason").mkdir()
    world.drop("bad.md", b"\xff")
    report = world.scan()
    assert report.refused[0].moved != world.inbox / "rejected" / "bad.md"
    assert report.refused[0].moved.exists()


# FIELD 7, 11


@pytest.mark.parametrize(
    "name",
    [
        ".x", "x~", ".a.md.swp", "x.swp", "x.part", "x.filepart", "x.crdownload", "x.tmp", "X.TMP", "~$x.docx", ".#x",
        "._x", "Thumbs.db", "thumbs.db", ".syncthing.x.tmp", ".goutputstream-AB12", "@eaDir/x.md", ".git/x.md",
        "sub/.x", "sub/x~",
    ],
)  # fmt: skip
def test_hidden_and_temporary_names_are_ignored_and_counted(world, name):
    world.drop(name)
    report = world.scan()
    assert sum(report.ignored.values()) == 1
    assert (report.taken, report.refused, report.waiting) == ((), (), ())
    assert world.tree() == [name]


def test_a_users_patterns_add_to_the_list(tmp_path):
    world = make_world(tmp_path, ignore=("*.bak", "drafts/*"))
    world.drop("a.bak")
    world.drop("drafts/b.md")
    world.drop("c.md")
    assert [one.file for one in world.scan().taken] == ["c.md"]
    assert world.tree() == ["a.bak", "archive/c.md", "drafts/b.md"]


def test_the_rule_says_what_such_a_file_is():
    assert names.ignored("~$plan.docx") == names.Rule("~$*", "an Office lock")
    assert names.ignored("a/b.md") is None
    assert names.ignored("x.log", ["*.log"]).why == "the queue's own list (ignore)"


@pytest.mark.parametrize(
    "name",
    [
        "a\nb.md", "🙂.md", "-rf.md", "it's \"q\".md", "$(id).md", "%s{0}.md", "n" * 252 + ".md", "e\u0301.md",
        "\u00e9.md", "\x1b[31m.md", "a b.md", "\u202etxt.md", "é" * 125 + ".txt",
    ],
)  # fmt: skip
def test_names_are_data(world, name):
    world.drop(name, f"content of {name!r}")
    report = world.scan()
    assert [one.file for one in report.taken] == [name]
    assert world.tree() == [f"archive/{name}"]
    world.drop(name, b"\xff")
    again = world.scan()
    assert len(again.refused) == 1
    assert again.refused[0].moved.exists()
    assert all(line.isprintable() for line in again.said)
    stored = world.rows("SELECT data FROM events WHERE kind = 'rejected'")[0][0]
    assert json.loads(stored)["file"].isprintable()
    world.drop(name, f"content of {name!r}")
    assert [one.taken.outcome for one in world.scan().taken] == ["duplicate"]
    assert len(world.tree("archive")) == 2


def test_composed_and_decomposed_twins_are_two_files(world):
    world.drop("\u00e9.md", "one")
    world.drop("e\u0301.md", "two")
    assert len(world.scan().taken) == 2
    assert len(world.tree("archive")) == 2


def test_a_folder_loop_through_a_bind_mount_ends(tmp_path):
    inner = tmp_path / "in"
    deep = inner
    for _ in range(40):
        deep /= "d"
    deep.mkdir(parents=True)
    listing = walk(inner)
    assert len(listing.folders) == 33
    assert len(listing.closed) == 1


# FIELD 10


def test_a_folder_without_rename_permission_keeps_its_file_with_one_alert_and_no_loop(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to make a folder that belongs to somebody else")
    shared = Path("/dev/shm") / f"shiftwork-test-{os.getpid()}"
    shared.mkdir(mode=0o777)
    try:
        make_world(shared).db.close()
        for path in [*shared.rglob("*")]:
            os.chown(path, 65534, 65534)
        closed = shared / "inbox" / "closed"
        closed.mkdir(mode=0o755)
        (closed / "a.md").write_text("x")
        (shared / "inbox" / "good.md").write_text("good")
        (shared / "inbox" / "secret.md").write_text("s")
        os.chmod(shared / "inbox" / "secret.md", 0o600)

        def scans():
            from triggers_world import open_world

            world = open_world(shared)
            now = time.time()
            reports = [world.scan(now + 10 + second) for second in range(5)]
            return [
                [one.file for report in reports for one in report.taken],
                [report.kept for report in reports],
                world.kinds(),
                world.problems(),
                world.tree(),
            ]

        taken, kept, kinds, problems, tree = as_nobody(scans)
        assert taken == ["good.md"]
        assert kept == [2] * 5
        assert sorted(kinds) == ["inbox", "intake"]
        assert list(problems) == ["inbox:questions permission"]
        assert tree == ["archive/good.md", "closed/a.md", "secret.md"]
        os.chmod(closed, 0o777)
        os.chmod(shared / "inbox" / "secret.md", 0o644)
        taken, _, kinds, problems, _ = as_nobody(scans)
        assert sorted(taken) == ["closed/a.md", "secret.md"]
        assert problems == {}
    finally:
        subprocess.run(["rm", "-rf", shared], check=True)


# a full queue, a busy store, a full disk


def test_a_full_queue_leaves_the_rest_in_the_inbox_and_says_so_once(tmp_path):
    world = make_world(tmp_path, cap=3)
    for number in range(5):
        world.drop(f"{number}.md", f"q {number}")
        os.utime(world.inbox / f"{number}.md", (number, number))
    now = time.time() + 10
    report = world.scan(now)
    assert [one.file for one in report.taken] == ["0.md", "1.md", "2.md"]
    assert report.kept == 2
    assert report.next_at == now + 60
    assert len(report.said) == 1
    assert world.scan(now + 60).said == ()
    assert world.tree() == ["3.md", "4.md", "archive/0.md", "archive/1.md", "archive/2.md"]
    with world.db.write(point="intake") as conn:
        conn.execute("UPDATE items SET state = 'aborted', finished_at = 1.0")
    assert len(world.scan(now + 120).taken) == 2


def test_a_busy_store_leaves_the_files_in_the_inbox_and_is_tried_again_in_a_minute(world):
    world.db.wait_s = 0.05
    world.drop("a.md")
    world.drop("bad.md", b"\xff")
    with (world.folder / "state" / "store.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        now = time.time() + 10
        report = world.scan(now)
        assert report.trouble
        assert report.next_at == now + 60
        assert len(report.said) == 1
        assert world.scan(now + 1).said == ()
        assert world.scan(now + 61).said == ()
        assert world.tree() == ["a.md", "bad.md"]
    assert world.scan(now + 100).taken == ()  # still waiting
    later = world.scan(now + 122)
    assert len(later.taken) == 1
    assert len(later.refused) == 1


def test_an_inbox_that_goes_together_with_the_store_is_not_made_anew(tmp_path):
    """FIELD 9, 22: what would say that it was there before is gone, too."""
    world = make_world(tmp_path)
    world.scan()
    shutil.rmtree(world.inbox)
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(StoreGone):
        world.scan(NOW + 60)
    assert not world.inbox.exists()


def test_a_full_disk_leaves_the_files_in_the_inbox_and_recovers_alone(tmp_path):
    """FIELD 21, the inbox's part. It is told also while only the first look at the inbox cannot be noted."""
    with small_disk(tmp_path / "state", "size=2m") as state:
        world = make_world(tmp_path)
        stuffing = fill(state)
        for number in range(30):
            world.drop(f"{number}.md", f"{number} " + "x" * 20_000)
        now = time.time() + 10
        told = []
        world.db.on_disk_trouble = told.append
        report = world.scan(now)
        assert report.trouble
        assert not report.taken
        assert told
        assert len(world.tree()) == 30
        assert not [name for name in world.tree() if "/" in name]
        stuffing.unlink()
        assert len(world.scan(now + 61).taken) == 30
        assert len(world.items()) == 30
        assert world.problems() == {}
        world.db.close()


def test_a_disk_on_which_nothing_new_can_be_made_is_told_while_the_store_can_still_be_written(tmp_path):
    with small_disk(tmp_path / "state", "nr_inodes=20") as state:
        world = make_world(tmp_path)
        assert world.problems() == {}
        stuffing = state / "stuffing"
        stuffing.mkdir()
        with suppress(OSError):
            for number in range(20):
                (stuffing / str(number)).touch()
        world.drop("a.md")
        now = time.time() + 10
        assert world.scan(now).kept
        assert list(world.problems()) == ["inbox:questions disk"]
        assert "No space left" in world.problems()["inbox:questions disk"]
        shutil.rmtree(stuffing)
        assert len(world.scan(now + 61).taken) == 1
        assert world.problems() == {}
        world.db.close()
