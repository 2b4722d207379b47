"""A scan killed at any of its points, and the one after it: one item each, every file in one place (FIELD 3)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from triggers_world import make_world, open_world, python

from store.points import POINTS

SCAN = """
import sys, time
from pathlib import Path
from triggers_world import open_world
world = open_world(Path(sys.argv[1]))
now = float(sys.argv[2]) if len(sys.argv) > 2 else time.time() + 60
world.scan(now)
"""
ROUTE = [
    f"{name}.{side}"
    for name in POINTS
    for side in ("before", "after")
    if name.startswith("inbox.") or name == "intake"
]
ALWAYS = {
    "inbox.claim",
    "inbox.archive",
    "inbox.reason",
    "inbox.record",
    "inbox.reject",
    "inbox.mark",
    "intake",
}

GOOD = {
    "a.md": "one",
    "sub/b.md": "+++\nkey = 'k'\n+++\ntwo",
    "c.json": '{"body": "three"}',
    "copy.md": "one",
    "sub/sub/d.txt": "four",
}
BAD = {"bad.md": b"\xff", "nul.md": b"a\x00", "big.md": b"x" * (1024 * 1024 + 1)}


def drop_all(world):
    for position, (name, text) in enumerate(GOOD.items()):
        os.utime(world.drop(name, text), (1000 + position, 1000 + position))
    for name, data in BAD.items():
        world.drop(name, data)
    os.symlink("/etc/passwd", world.inbox / "link.md")


def killed_at(folder: Path, place: str) -> bool:
    done = python(SCAN, str(folder), env={"SHIFTWORK_CRASH_AT": place})
    if done.returncode == 0:
        return False
    assert done.returncode == -signal.SIGKILL, done.stderr
    return True


def assert_whole(world):
    """Every good file is one item and lies in the archive once; every bad one lies in rejected/ with its reason."""
    assert sorted(body for _, body in world.items()) == ["four", "one", "three", "two"]
    archived = world.tree("archive")
    assert len(archived) == len(GOOD), archived
    contents = sorted((world.inbox / "archive" / name).read_text() for name in archived)
    assert contents == sorted(GOOD.values())
    rejected = world.tree("rejected")
    assert rejected == sorted(name + end for name in [*BAD, "link.md"] for end in ("", ".reason"))
    assert [name for name in world.tree() if not name.startswith(("archive/", "rejected/"))] == []
    assert not list((world.inbox / ".work").iterdir())
    events = world.kinds()
    assert events.count("intake") == 4
    assert len(BAD) + 1 <= events.count("rejected") <= 2 * (len(BAD) + 1)
    assert set(world.problems()) == {"rejected:questions"}


def test_every_point_on_the_way_of_a_file_is_listed():
    root = Path(__file__).parents[1] / "triggers"
    text = "".join(path.read_text() for path in root.rglob("*.py"))
    used = {part.split('"')[0] for part in text.split('point="')[1:]}
    assert used <= set(POINTS)
    assert {name for name in POINTS if name.startswith(("inbox.", "timer."))} <= used


@pytest.mark.parametrize("place", ROUTE)
def test_a_kill_at_any_point_leaves_one_item_and_each_file_in_one_place(tmp_path, place):
    world = make_world(tmp_path)
    drop_all(world)
    died = killed_at(tmp_path, place)
    assert died or place.rpartition(".")[0] not in ALWAYS
    places = [name for name in world.tree() if not name.endswith((".reason", ".tmp"))]
    assert (
        len(places) == len(GOOD) + len(BAD) + 1
    )  # each file in exactly one place, also right after the kill
    again = python(SCAN, str(tmp_path))
    assert again.returncode == 0, again.stderr
    assert_whole(world)


def test_kills_in_a_row_change_nothing(tmp_path):
    world = make_world(tmp_path)
    drop_all(world)
    for place in ROUTE:
        killed_at(tmp_path, place)
    python(SCAN, str(tmp_path))
    python(SCAN, str(tmp_path))
    assert sorted(body for _, body in world.items()) == ["four", "one", "three", "two"]
    assert len(world.tree("archive")) == len(GOOD)
    assert len([name for name in world.tree("rejected") if not name.endswith(".reason")]) == len(BAD) + 1


@pytest.fixture
def elsewhere():
    """A folder on another file system than the tests' own."""
    if (
        not os.access("/dev/shm", os.W_OK)
        or os.stat("/dev/shm").st_dev == os.stat(tempfile.gettempdir()).st_dev
    ):
        pytest.skip("there is no second file system in /dev/shm")
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


def test_an_archive_on_another_file_system_is_copied_to(tmp_path, elsewhere):
    world = make_world(tmp_path)
    drop_all(world)
    for name in ("archive", "rejected"):
        (elsewhere / name).mkdir()
        (world.inbox / name).symlink_to(elsewhere / name)
    world.scan()
    assert len(list(elsewhere.rglob("*.*"))) == len(GOOD) + 2 * (len(BAD) + 1)
    assert sorted((elsewhere / "archive").glob("*.md")) != []
    assert [name for name in world.tree() if name not in {"archive", "rejected"}] == []
    assert (elsewhere / "archive" / "a.md").stat().st_mtime == 1000  # a copy keeps its time
    assert os.readlink(elsewhere / "rejected" / "link.md") == "/etc/passwd"


@pytest.mark.parametrize(
    "place", ["inbox.copy.before", "inbox.copy.after", "inbox.drop.before", "inbox.drop.after"]
)
def test_a_kill_while_a_file_crosses_file_systems_leaves_it_once(tmp_path, elsewhere, place):
    world = make_world(tmp_path)
    drop_all(world)
    for name in ("archive", "rejected"):
        (elsewhere / name).mkdir()
        (world.inbox / name).symlink_to(elsewhere / name)
    assert killed_at(tmp_path, place)
    assert python(SCAN, str(tmp_path)).returncode == 0
    assert sorted(body for _, body in world.items()) == ["four", "one", "three", "two"]
    archived = [path for path in (elsewhere / "archive").rglob("*") if path.is_file()]
    assert sorted(path.read_text() for path in archived) == sorted(GOOD.values())
    rejected = sorted(os.listdir(elsewhere / "rejected"))
    assert rejected == sorted(name + end for name in [*BAD, "link.md"] for end in ("", ".reason"))


@pytest.fixture
def mounted(tmp_path):
    """A world with a small file system of its own mounted at ``inbox/sub``."""
    world = make_world(tmp_path)
    sub = world.inbox / "sub"
    sub.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", sub], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("mounting needs root")
    yield world
    subprocess.run(["umount", "-l", sub], check=True)


@pytest.mark.parametrize(
    "place", ["", "inbox.copy.before", "inbox.copy.after", "inbox.drop.before", "inbox.drop.after"]
)
def test_a_mount_inside_the_inbox_is_copied_from_and_a_kill_leaves_the_file_once(mounted, tmp_path, place):
    world = mounted
    drop_all(world)
    if place:
        assert killed_at(tmp_path, place)
    assert python(SCAN, str(tmp_path)).returncode == 0
    assert_whole(world)


def test_a_file_that_is_still_open_is_not_copied_to_another_file_system(mounted):
    """Its later bytes would go to a file that is gone."""
    world = mounted
    with world.drop("sub/a.md", "half").open("a") as out:
        world.scan()
        assert not world.scan().taken
        out.write("and half")
    assert len(world.scan().taken) == 1
    assert [body for _, body in world.items()] == ["halfand half"]


def test_what_lies_in_work_is_settled_before_anything_else(tmp_path):
    world = make_world(tmp_path)
    for name, text in {
        "0123456789abcdef/sub/a.md": "one",
        "b.md": "two",
        "0123456789abcdef/bad.md": "\x00",
    }.items():
        world.drop(f".work/{name}", text)
    world.drop(".work/0123456789abcdef/.shiftwork.copying", "half a co")
    report = open_world(tmp_path).scan()
    assert {one.file for one in report.taken} == {"sub/a.md", "b.md"}
    assert world.tree() == ["archive/b.md", "archive/sub/a.md", "rejected/bad.md", "rejected/bad.md.reason"]


def test_a_file_dropped_meanwhile_under_the_same_name_is_not_lost(tmp_path):
    world = make_world(tmp_path, cap=1)
    world.drop("first.md", "takes the only place")
    world.scan()
    world.drop(".work/0123456789abcdef/a.md", "claimed before the kill")
    world.drop("a.md", "dropped after it")
    for _ in range(3):
        world.scan()
    assert world.tree() == [".work/0123456789abcdef/a.md", "a.md", "archive/first.md"]
    with world.db.write(point="intake") as conn:
        conn.execute("UPDATE items SET state = 'aborted', finished_at = 1.0")
    world.scan()
    with world.db.write(point="intake") as conn:
        conn.execute("UPDATE items SET state = 'aborted', finished_at = 1.0 WHERE state = 'open'")
    world.scan()
    assert sorted(body for _, body in world.items())[:2] == ["claimed before the kill", "dropped after it"]
    assert len(world.tree("archive")) == 3
