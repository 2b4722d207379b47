"""``shiftwork context`` and ``shiftwork memory search``: people see what sessions see, and find what left."""

from __future__ import annotations

import json

import pytest
from memory_world import NOW, claim, finish, hand, new_store
from session_world import World, answer

from daemon.cli.main import main
from memory.episodes import lesson_of
from memory.sources import refresh
from store.checkpoints import Note

CONFIG = """\
[queues.q]
inbox = "inbox"
sources = ["docs/**/*.md"]
decider = "local"
constraints = ["never guess"]

[deciders.local]
kind = "extractive"
"""


@pytest.fixture
def shiftwork(tmp_path, monkeypatch, capsys):
    """Runs a command line in a configured folder; its exit code, stdout and stderr."""
    (tmp_path / "shiftwork.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)

    def run(*words):
        code = main(words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def store(tmp_path):
    one = new_store(tmp_path)
    one.memory.sync_constraints("q", [("never guess", "scope")], now=NOW)
    yield one
    one.close()


def test_context_prints_what_the_next_session_is_asked_with(tmp_path, shiftwork):
    world = World(tmp_path, answer())
    try:
        world.store.memory.sync_constraints("q", [("never guess", "scope")], now=world.now)
        world.doc("resolve.md", "# Resolve\n\nA flag is resolved with the command resolve.\n")
        refresh(world.store, "q", [str(tmp_path / "docs/**/*.md")], tmp_path, now=world.now)
        item = world.hand("How is a flag resolved?")
        code, out, err = shiftwork("context", item, "--json")
        assert (code, err) == (0, "")
        seen = json.loads(out)
        world.session()
        assert {**seen["request"], "asked_at": ""} == {**world.decider.requests[0], "asked_at": ""}
        session = world.item(item)["sessions"][0]
        assert (seen["digest"], seen["chars"]) == (session["context_digest"], session["context_chars"])
    finally:
        world.close()


def test_context_prints_the_text_with_the_size_of_each_block(store, shiftwork):
    item = hand(store, "How is a flag resolved?\x1b[2J")
    code, out, err = shiftwork("context", item)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith(f"{item} · ")
    assert " of 24000 characters" in lines[0]
    assert lines[1].split() == ["BLOCK", "CHARS"]
    assert [line.split()[0] for line in lines[2:6]] == ["rules", "constraints", "item", "budget"]
    assert "> How is a flag resolved?\\x1b[2J" in lines
    assert err == ""
    assert "\x1b" not in out


def test_context_says_what_will_be_different(store, shiftwork, tmp_path):
    item = hand(store, "one")
    store.memory.sync_constraints("q", [], now=NOW)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("new\n")
    assert shiftwork("context", item)[2].splitlines() == [
        "The constraints in the configuration are others; they count from the next start or reload on.",
        "1 source new, changed or gone; the next session reads them first.",
    ]
    finish(store, claim(store))
    assert f"{item} is done" in shiftwork("context", item)[2]


def test_context_of_nothing_is_not_found(store, shiftwork, tmp_path):
    code, out, err = shiftwork("context", "q-9999")
    assert (code, out) == (3, "")
    assert 'no item "q-9999"' in err


def test_before_the_first_item_both_verbs_create_nothing(shiftwork, tmp_path):
    assert shiftwork("context", "q-0001")[0] == 3
    assert shiftwork("memory", "search", "flag", "--json")[:2] == (0, "[]\n")
    assert not (tmp_path / "state").exists()


def test_search_finds_episodes_notes_and_passages(store, shiftwork, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("# Walrus\n\nA walrus is large.\n")
    refresh(store, "q", [str(tmp_path / "docs/*.md")], tmp_path, now=NOW)
    hand(store, "one")
    finish(
        store, claim(store), notes_=[Note("conclusion", "the walrus sleeps")],
        lessons=[
            lesson_of("a walrus bites", evidence=["k-1"], source="file hello.md, q-0001"),
            lesson_of("feeding the walrus at night failed", failed=True),
        ],
    )  # fmt: skip
    with store.db.write(point="checkpoint") as conn:
        conn.execute("UPDATE notes SET dropped_at = ?", (NOW,))
    code, out, _ = shiftwork("memory", "search", "walrus", "--json")
    found = json.loads(out)
    assert code == 0
    assert {(one["id"], one["kind"], one["text"]) for one in found} == {
        ("e-1", "episode", "a walrus bites"),
        ("e-2", "failed", "feeding the walrus at night failed"),
        ("m-1", "note", "the walrus sleeps"),
        ("docs/a.md#1", "passage", "# Walrus\n\nA walrus is large."),
    }
    assert found[0]["at"].endswith("Z")
    assert found[0]["age_s"] >= 0
    code, out, _ = shiftwork("memory", "search", "walrus", "bites", "--queue", "q")
    assert out.splitlines()[0].startswith("e-1 · episode · file hello.md, q-0001 · ")
    assert out.splitlines()[1] == "    a walrus bites"


def test_search_words_are_never_syntax(store, shiftwork):
    hand(store, "one")
    finish(store, claim(store), lessons=[lesson_of("the walrus sleeps")])
    for words in ('walrus" OR NEAR(', "*", "-x -y", "';--", "", "a:b"):
        assert shiftwork("memory", "search", "--", words)[0] == 0
    assert shiftwork("memory", "search", "zebra")[1:] == (
        "",
        "Nothing that is remembered shares a word with this.\n",
    )


def test_search_in_an_unknown_queue_names_those_there_are(store, shiftwork):
    code, out, err = shiftwork("memory", "search", "walrus", "--queue", "nope")
    assert (code, out) == (3, "")
    assert 'there is no queue "nope"; there is: q' in err
