"""Every payload in ``model_payloads/`` goes through its decider in a real session, and comes out as its file says."""

from __future__ import annotations

import json
import re
import time
from email.utils import formatdate
from pathlib import Path

import pytest
from model_desk import KEY, Desk, call, word_in
from model_server import Act, ModelServer, act, openai_reply

from sessions.deciders import transport
from store.claims import DELAYS_AFTER_FAILURE_S

FOLDER = Path(__file__).parent / "model_payloads"
FILES = sorted(FOLDER.glob("*.json"))
DEPOSIT = "The deposit is 40 euros."


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with ModelServer(Act()) as nobody:
        one = Desk(
            tmp_path_factory.mktemp("payloads"), nobody, policy={"decisions": ["answer", "flag", "park"]}
        )
        yield one
        one.close()


@pytest.fixture
def elsewhere():
    with ModelServer(Act()) as other:
        yield other


def step_of(payload, elsewhere):
    """The payload as a step of a server's script, with its blanks filled in."""
    text = payload["text"] if "text" in payload else json.dumps(payload["body"])

    def filled(words, asked):
        words = words.replace("{{key}}", KEY).replace("{{elsewhere}}", elsewhere.url)
        words = re.sub(
            r"\{\{date\+(\d+)\}\}", lambda found: formatdate(time.time() + int(found[1]), usegmt=True), words
        )
        return words.replace("{{word}}", word_in(asked)) if "{{word}}" in words else words

    def step(asked):
        if is_count(payload, asked) and "dropped" not in payload["says"]:
            return act(openai_reply(content="…", tokens=(7, 1)))
        headers = tuple(
            (name, filled(str(value), asked)) for name, value in payload.get("headers", {}).items()
        )
        return Act(payload["status"], filled(text, asked).encode(), headers)

    return step


def is_count(payload, asked):
    """The request that counts the prompt once more without the tools."""
    return payload["kind"] == "openai" and "tools" not in asked.body


def settings_of(payload):
    settings = {"max_output_tokens": payload.get("cap", 4096)}
    if "num_ctx" in payload:
        settings |= {"num_ctx": payload["num_ctx"], "max_output_tokens": 1024}
    return settings


def became(world, calls, ended, item):
    """The outcome in the words of the payloads' README."""
    if ended.outcome == "answered":
        return "answered" if len(calls) == 1 else "repaired"
    if ended.outcome == "flagged":
        return "refused"
    assert ended.outcome == "failed"
    wait_s = world.not_before(item) - world.now
    return "failed" if wait_s <= DELAYS_AFTER_FAILURE_S[0] * 2 else "not_before"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_payload_becomes_what_its_file_says(world, elsewhere, monkeypatch, file):
    payload = json.loads(file.read_text())
    wanted = {payload["outcome"], *payload.get("also", ())}
    kind = payload["kind"]
    monkeypatch.setattr(transport, "FIRST_WAIT_S", 0.01)
    step = step_of(payload, elsewhere)
    script = [step, call(kind)] if "repaired" in wanted else [step]
    with ModelServer(*script) as server:
        world.use(server, kind, **settings_of(payload))
        item = world.hand(f"payload {file.stem}")
        ended = world.session()
        calls = [asked for asked in server.asked if not is_count(payload, asked)]
        outcome = became(world, calls, ended, item)
        if "no_decision" in wanted and outcome != "answered":
            assert world.state_of(item) != "done" or outcome == "repaired"
        else:
            assert outcome in wanted, ended
        if outcome == "answered":
            assert world.item(item)["result"]["text"] == DEPOSIT
        if outcome == "repaired":
            assert world.item(item)["result"]["text"] == "42"
            assert "YOUR REPLY WAS REFUSED" in calls[1].raw.decode()
        if outcome == "not_before":
            least, most = payload["wait_s"]
            assert least - 2 <= world.not_before(item) - world.now <= most
        if outcome == "refused":
            assert len(calls) == 1
        if outcome == "answered" and "usage" in payload:
            row = world.row(ended)
            assert {name: row[name] for name in payload["usage"]} == payload["usage"]
    assert not elsewhere.asked
    kept = json.dumps([world.raws(ended), world.item(item), world.flags(), world.row(ended)])
    assert KEY not in kept
    assert world.raws(ended)[0][0] == "request"
    assert world.raws(ended)[1][0] == "reply"


def test_the_index_names_every_payload_once():
    index = (FOLDER / "README.md").read_text().partition("## Index")[2]
    named = re.findall(r"\]\((\w+)\.json\)", index)
    assert sorted(set(named)) == [file.stem for file in FILES]
