"""The quickstart answers from these docs: what people ask first is quoted from the right place, the rest is flagged."""

from __future__ import annotations

import pytest
from docs_pages import ROOT
from memory_world import NOW, build, claim, hand, new_store

from daemon.cli import init
from memory.sources import refresh
from sessions.config import ExtractiveDecider
from sessions.deciders.extractive import decision

THRESHOLD = ExtractiveDecider(kind="extractive").threshold

ANSWERED = {
    init.QUESTION: ("resolving.md", "You resolve a flagged item with `shiftwork resolve FLAG`"),
    "How do I answer a flag?": ("resolving.md", "You answer a flag with `shiftwork resolve FLAG`"),
    "How do I postpone a flag?": ("resolving.md", "`shiftwork resolve FLAG --park UNTIL`"),
    "What happens when two people answer the same flag?": ("resolving.md", "the first answer counts"),
    "Where do I drop files?": ("handing-in.md", "Drop files into the inbox"),
    "When is a dropped file taken?": ("handing-in.md", "A dropped file is taken at once when"),
    "What happens to a file that is refused?": ("handing-in.md", "moves to `inbox/rejected/`"),
    "How do I hand work in on a schedule?": ("handing-in.md", "with a timer that has an `item`"),
    "How do I set the priority of a file?": ("handing-in.md", "in its front matter"),
    "What happens when the inbox disappears?": ("handing-in.md", "Shiftwork waits for it and pages"),
    "How large may a dropped file be?": ("handing-in.md", "1 MiB by default"),
    "How do I stop the daemon?": ("operating.md", "You stop the daemon with `shiftwork stop`"),
    "How do I pause a queue?": ("operating.md", "You pause a queue with `shiftwork pause QUEUE`"),
    "How do I run it from cron?": ("operating.md", "`shiftwork run --drain`"),
    "What happens when the daemon is killed?": ("failure.md", "nothing that was stored is lost"),
    "What happens when the disk is full?": ("failure.md", "It goes on by itself when there is room"),
    "How often is a crashing item retried?": ("failure.md", "3 by default"),
    "What happens when two daemons are started?": ("failure.md", "exit code 4"),
    "How do I back up the store?": ("recovery.md", "You back up the store with `shiftwork backup FILE`"),
    "How do I restore a backup?": ("recovery.md", "move the state folder away"),
    "How do I write my own decider?": ("deciders.md", "prints one to standard output"),
}
FLAGGED = (
    "How do I connect it to Slack?",
    "Does Shiftwork run on Windows?",
    "What is the price of a licence?",
    "Who wrote Shiftwork?",
    "Who is paged when I answer a flag in Berlin?",
    "How do I stop the daemon? And how do I start it again?",
)


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory):
    """What ``init`` writes, with its docs read as the first session reads them."""
    folder = tmp_path_factory.mktemp("quickstart")
    init.write(folder)
    store = new_store(folder)
    refresh(store, "q", (str(folder / "docs" / "**" / "*.md"),), folder, now=NOW)
    yield store
    store.close()


def ask(store, question):
    """The decision on a dropped question. The item is ended again, so that no question knows of another."""
    hand(store, f"{question}\n", title=question)
    held = claim(store)
    decided = decision(build(store, held).request, threshold=THRESHOLD)
    store.people.abort(held.item_id, by="test", reason="", now=NOW)
    return decided


@pytest.mark.parametrize("question", ANSWERED)
def test_what_people_ask_first_is_answered_from_the_right_page(quickstart, question):
    name, phrase = ANSWERED[question]
    decided = ask(quickstart, question)
    assert decided["decision"] == "answer", decided["reason"]
    assert [one.partition("#")[0] for one in decided["citations"]] == [f"docs/{name}"]
    said = " ".join(decided["text"].replace("\n> ", " ").split())
    assert phrase in said


@pytest.mark.parametrize("question", FLAGGED)
def test_what_the_docs_do_not_say_is_given_to_a_person(quickstart, question):
    assert ask(quickstart, question)["decision"] == "flag"


def test_the_quickstart_brings_every_page():
    names = {name for name, _ in init.shipped_docs()}
    assert {file.name for file in (ROOT / "docs").glob("*.md")} <= names
