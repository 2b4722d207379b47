"""Source files become passages when they change, cost one look when they do not, and never surprise."""

from __future__ import annotations

import glob
import multiprocessing
import os

import pytest
from memory_world import new_store
from session_world import NOW, World, answer

from memory import sources
from memory.globs import find, fixed_folder
from memory.sources import SourceWatch, refresh, short
from store.sqlite import open_store

DOC = "# Resolve\n\nYou resolve a flag with the command resolve.\n"


@pytest.fixture
def place(tmp_path):
    store = new_store(tmp_path)
    (tmp_path / "docs").mkdir()
    yield tmp_path, store
    store.close()


def patterns(folder, *more):
    return [f"{glob.escape(str(folder))}/{one}" for one in more or ("docs/**/*.md",)]


def write(folder, name, text=DOC):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def paths(store, queue="q"):
    return {row.path: row.problem for row in store.sources.known(queue) if row.gone_at is None}


def commits(store):
    with store.db.read() as conn:
        return conn.execute("SELECT seq FROM commits").fetchone()[0]


def problems(store):
    return [one.detail for one in store.alerts.facts(now=NOW, flag_age_s=1).problems]


def test_files_are_cut_into_passages_with_short_names_to_cite(place):
    folder, store = place
    write(folder, "docs/resolve.md")
    write(folder, "docs/deep/er/more.md")
    write(folder, "docs/other.txt")
    done = refresh(store, "q", patterns(folder), folder, now=NOW)
    assert (done.files, done.changed, done.gone, done.empty) == (2, 2, 0, ())
    assert paths(store) == {"docs/deep/er/more.md": None, "docs/resolve.md": None}
    assert [row.ref for row in store.sources.passages([1, 2])] == [
        "docs/deep/er/more.md#1",
        "docs/resolve.md#1",
    ]


def test_no_change_is_no_write_and_a_new_time_alone_is_no_change(place):
    folder, store = place
    file = write(folder, "docs/resolve.md")
    refresh(store, "q", patterns(folder), folder, now=NOW)
    before = commits(store)
    assert refresh(store, "q", patterns(folder), folder, now=NOW + 1).changed == 0
    assert commits(store) == before
    os.utime(file, ns=(1, 1))
    done = refresh(store, "q", patterns(folder), folder, now=NOW + 2)
    assert (done.changed, done.gone) == (0, 0)
    assert store.sources.known("q")[0].mtime_ns == 1
    assert not [e for e in store.views.log(None, limit=50) if e["kind"] == "sources"][1:]


def test_a_change_that_hides_behind_the_same_time_and_size_is_found_by_a_full_look(place):
    folder, store = place
    file = write(folder, "docs/a.md", "alpha\n")
    refresh(store, "q", patterns(folder), folder, now=NOW)
    status = file.stat()
    file.write_text("omega\n")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert refresh(store, "q", patterns(folder), folder, now=NOW).changed == 0
    assert refresh(store, "q", patterns(folder), folder, now=NOW, full=True).changed == 1


def test_only_the_passages_that_changed_are_replaced(place):
    folder, store = place
    sentence = "This part says something of its own and goes on for a while. " * 6
    write(folder, "docs/a.md", f"## One\n\n{sentence}\n\n## Two\n\n{sentence}")
    refresh(store, "q", patterns(folder), folder, now=NOW)
    write(folder, "docs/a.md", f"## One\n\n{sentence}\n\n## Two\n\nNew. {sentence}")
    refresh(store, "q", patterns(folder), folder, now=NOW)
    assert [row.id for row in store.sources.passages([1, 2, 3])] == [1, 3]


def test_a_file_that_went_takes_its_passages_along(place):
    folder, store = place
    write(folder, "docs/a.md")
    file = write(folder, "docs/b.md", "second\n")
    refresh(store, "q", patterns(folder), folder, now=NOW)
    file.unlink()
    assert refresh(store, "q", patterns(folder), folder, now=NOW).gone == 1
    assert paths(store) == {"docs/a.md": None}
    assert store.sources.counts("q") == (1, 1)


def test_a_queue_without_patterns_keeps_no_sources(place):
    folder, store = place
    write(folder, "docs/a.md")
    refresh(store, "q", patterns(folder), folder, now=NOW)
    assert refresh(store, "q", [], folder, now=NOW).gone == 1
    assert store.sources.counts("q") == (0, 0)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"caf\xe9\n", "not UTF-8 at byte 3"),
        (b"a\0b\n", "NUL at byte 1: not a text"),
        (b"  \n\n", "empty"),
        (b"x" * (sources.MAX_BYTES + 1), "larger than 1 MiB"),
    ],
)
def test_a_file_that_is_no_text_is_left_out_and_said_so_once(place, content, problem):
    folder, store = place
    write(folder, "docs/bad.md", content)
    write(folder, "docs/good.md")
    done = refresh(store, "q", patterns(folder), folder, now=NOW)
    assert done.unusable == 1
    assert paths(store) == {"docs/bad.md": problem, "docs/good.md": None}
    assert problems(store) == [f"docs/bad.md: {problem}"]
    before = commits(store)
    assert refresh(store, "q", patterns(folder), folder, now=NOW).unusable == 1
    assert commits(store) == before
    write(folder, "docs/bad.md", "now it is one\n")
    refresh(store, "q", patterns(folder), folder, now=NOW)
    assert problems(store) == []


def test_only_regular_files_inside_the_folder_are_read(place):
    folder, store = place
    secret = write(folder, "secret/key.md", "the key is 42\n")
    os.mkfifo(folder / "docs/pipe.md")
    (folder / "docs/out.md").symlink_to(secret)
    (folder / "docs/in.md").symlink_to(write(folder, "docs/real.md"))
    (folder / "docs/nowhere.md").symlink_to(folder / "docs/none")
    (folder / "docs/loop").symlink_to(folder / "docs")
    (folder / "docs/tree").symlink_to(folder / "secret")
    (folder / "docs/folder.md").mkdir()
    refresh(store, "q", patterns(folder), folder, now=NOW)
    assert paths(store) == {
        "docs/in.md": None,
        "docs/out.md": "a link that leads out of its folder",
        "docs/pipe.md": "not a regular file",
        "docs/real.md": None,
    }


def test_a_pattern_that_matches_nothing_is_told_once_and_is_never_called_unchanged(place):
    folder, store = place
    done = refresh(store, "q", patterns(folder), folder, now=NOW)
    assert done.empty == ("docs/**/*.md",)
    assert problems(store) == ["docs/**/*.md matches no file"]
    before = commits(store)
    refresh(store, "q", patterns(folder), folder, now=NOW)
    assert commits(store) == before
    write(folder, "docs/a.md")
    assert refresh(store, "q", patterns(folder), folder, now=NOW).empty == ()
    assert problems(store) == []


def test_a_folder_that_vanished_does_not_unsay_its_documents(place):
    folder, store = place
    write(folder, "docs/a.md")
    write(folder, "more/b.md")
    both = patterns(folder, "docs/**/*.md", "more/*.md")
    refresh(store, "q", both, folder, now=NOW)
    os.rename(folder / "docs", folder / "unmounted")
    done = refresh(store, "q", both, folder, now=NOW)
    assert (done.gone, done.empty) == (0, ("docs/**/*.md",))
    assert set(paths(store)) == {"docs/a.md", "more/b.md"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_cannot_be_listed_does_not_unsay_its_documents(place):
    folder, store = place
    write(folder, "docs/a.md")
    write(folder, "docs/deep/b.md")
    refresh(store, "q", patterns(folder), folder, now=NOW)
    os.chmod(folder / "docs/deep", 0)
    try:
        assert refresh(store, "q", patterns(folder), folder, now=NOW).gone == 0
        assert problems(store) == ["docs/deep cannot be listed (Permission denied)"]
    finally:
        os.chmod(folder / "docs/deep", 0o755)


def test_odd_names_are_escaped_and_stay_apart(tmp_path):
    names = [
        "a\nb.md",
        "a\\nb.md",
        "a\\\\nb.md",
        "\u202ea.md",
        os.fsdecode(b"\xff.md"),
        "\\xff.md",
        "\u00e9.md",
        "e\u0301.md",
    ]
    shorts = [short(str(tmp_path / name), tmp_path) for name in names]
    assert len(set(shorts)) == len(names)
    assert all(one.isprintable() for one in shorts)


def test_files_with_odd_names_can_be_read(place):
    folder, store = place
    for name in ("a\nb.md", "-rf.md", "$(id).md", "#1 [x].md", "日本.md"):
        write(folder, f"docs/{name}")
    with open(os.path.join(os.fsencode(folder / "docs"), b"\xff.md"), "wb") as file:
        file.write(DOC.encode())
    assert refresh(store, "q", patterns(folder), folder, now=NOW).changed == 6
    assert store.sources.counts("q") == (6, 6)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("docs/*.md", ["docs/a.md"]),
        ("docs/**/*.md", ["docs/a.md", "docs/x/b.md", "docs/x/y/c.md"]),
        ("docs/**", ["docs/a.md", "docs/n.txt", "docs/x/b.md", "docs/x/y/c.md"]),
        ("docs/x/*/*.md", ["docs/x/y/c.md"]),
        ("**/c.md", ["docs/x/y/c.md"]),
        ("docs/[ab].md", ["docs/a.md"]),
        ("docs/?.txt", ["docs/n.txt"]),
        ("docs/a.md", ["docs/a.md"]),
        ("docs/.*.md", ["docs/.hidden.md"]),
        ("none/*.md", []),
    ],
)
def test_patterns_mean_what_they_mean_to_glob(tmp_path, pattern, expected):
    for name in (
        "docs/a.md",
        "docs/n.txt",
        "docs/x/b.md",
        "docs/x/y/c.md",
        "docs/.hidden.md",
        "docs/.git/z.md",
    ):
        write(tmp_path, name)
    absolute = patterns(tmp_path, pattern)[0]
    found = [os.path.relpath(one.file, tmp_path) for one in find([absolute]).files]
    assert found == expected
    assert found == sorted(
        os.path.relpath(one, tmp_path) for one in glob.glob(absolute, recursive=True) if os.path.isfile(one)
    )


def test_a_folder_whose_own_name_looks_like_a_pattern_is_itself(tmp_path):
    odd = tmp_path / "we[i]rd*"
    write(odd, "docs/a.md")
    pattern = patterns(odd)[0]
    assert fixed_folder(pattern)[0] == str(odd / "docs")
    assert len(find([pattern]).files) == 1


def test_the_watch_reads_the_store_only_when_something_moved(place):
    folder, store = place
    write(folder, "docs/a.md")
    watch = SourceWatch("q", patterns(folder), folder)
    assert watch.refresh(store, now=NOW) == 1
    asked = []
    with store.db.read() as conn:
        conn.set_trace_callback(asked.append)
    assert watch.refresh(store, now=NOW) == 0
    assert [one for one in asked if one != "ROLLBACK"] == []
    write(folder, "docs/a.md", "changed\n")
    assert watch.refresh(store, now=NOW) == 1
    with store.db.read() as conn:
        conn.set_trace_callback(None)


def test_looks_that_cost_much_are_taken_seldom(place, monkeypatch):
    folder, store = place
    write(folder, "docs/a.md")
    monkeypatch.setattr(sources, "CHEAP_LOOK_S", 0.0)
    monkeypatch.setattr(sources, "WATCH_SHARE", 1e-9)
    watch = SourceWatch("q", patterns(folder), folder)
    assert watch.refresh(store, now=NOW) == 1
    write(folder, "docs/a.md", "changed\n")
    assert watch.refresh(store, now=NOW) == 0
    assert watch.refresh(store, now=NOW, full=True) == 1


def test_many_files_come_in_short_commits(place):
    folder, store = place
    for number in range(300):
        write(folder, f"docs/{number}.md", f"# Page {number}\n\nIt says {number}.\n")
    before = commits(store)
    assert refresh(store, "q", patterns(folder), folder, now=NOW).changed == 300
    assert commits(store) - before == 3
    assert store.sources.counts("q") == (300, 300)


def _refresh_in_child(folder, barrier):
    store = open_store(folder / "state")
    for round_number in range(20):
        barrier.wait()
        refresh(store, "q", patterns(folder), folder, now=NOW + round_number)
        barrier.wait()
    store.close()


def test_two_processes_that_refresh_at_once_leave_each_passage_once(place):
    folder, store = place
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(3)
    children = [context.Process(target=_refresh_in_child, args=(folder, barrier)) for _ in range(2)]
    for child in children:
        child.start()
    for round_number in range(20):
        for name in range(5):
            write(folder, f"docs/{name}.md", f"# Page\n\nRound {round_number} of file {name}.\n")
        barrier.wait()
        barrier.wait()
        with store.db.read() as conn:
            live = conn.execute(
                "SELECT ref, count(*), max(text) FROM passages WHERE gone_at IS NULL GROUP BY ref"
            ).fetchall()
            found = conn.execute("SELECT count(*) FROM search_docs WHERE pending >= 0").fetchone()[0]
        assert [(row[0], row[1]) for row in live] == [(f"docs/{name}.md#1", 1) for name in range(5)]
        assert all(f"Round {round_number} of" in row[2] for row in live)
        assert found == 5
    for child in children:
        child.join(10)
        assert child.exitcode == 0


def test_what_rested_on_a_changed_source_is_marked_stale_in_the_next_context(tmp_path):
    """A note handed on after its source moved says so: what it said, and when the source changed."""
    world = World(
        tmp_path,
        answer("With resolve.", citations=["docs/resolve.md#1"], note="flags end by resolve"),
        answer(),
    )
    try:
        world.doc("resolve.md", DOC)
        first = world.hand("How do I resolve a flag?")
        world.session()
        assert world.item(first)["result"]["citations"] == ["docs/resolve.md#1"]
        world.doc("resolve.md", DOC.replace("command resolve", "command answer"))
        world.now += 3600
        world.hand("How do I resolve another flag?")
        world.session()
        assert world.item(first)["stale"] == "docs/resolve.md#1 changed"
        request = world.decider.requests[-1]
        note = next(one for one in request["notes"] if "flags end by resolve" in one["text"])
        assert note["stale"] is True
        assert note["stale_because"] == {
            "source": "docs/resolve.md", "said": "docs/resolve.md#1", "at": "2027-01-15T09:00:00Z",
        }  # fmt: skip
        assert [one["text"] for one in request["passages"]] == [
            DOC.replace("command resolve", "command answer").strip()
        ]
    finally:
        world.close()
