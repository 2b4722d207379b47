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

from sessions.apply import AWAY_STEP_BACK_S
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
    return "failed" if wait_s <= DELAYS_AFTER_FAILURE_S[0] * 2 + AWAY_STEP_BACK_S else "not_before"


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
            assert world.item(item)["result"]["text"] == payload.get("answer", DEPOSIT)
        if outcome == "repaired":
            assert world.item(item)["result"]["text"] == "42"
            assert "YOUR REPLY WAS REFUSED" in calls[1].raw.decode()
        if outcome == "not_before":
            least, most = payload["wait_s"]
            assert least - 2 <= world.not_before(item) - world.now <= most
        if outcome == "refused":
            assert len(calls) == 1
            assert world.not_before(item) is None
            assert payload["status"] == 200 or str(payload["status"]) in world.flags()[-1]["stuck"]
        if outcome == "answered" and "usage" in payload:
            row = world.row(ended)
            assert {name: row[name] for name in payload["usage"]} == payload["usage"]
    assert not elsewhere.asked
    kept = json.dumps([world.raws(ended), world.item(item), world.flags(), world.row(ended)])
    assert KEY not in kept
    for kept_file in world.state.rglob("*"):
        assert not kept_file.is_file() or KEY.encode() not in kept_file.read_bytes(), kept_file.name
    assert world.raws(ended)[0][0] == "request"
    assert f"payload {file.stem}" in world.raws(ended)[0][1]
    assert world.raws(ended)[1][0] == "reply"
    if "body" in payload and "{{" not in file.read_text():
        assert world.raws(ended)[1][1].endswith(json.dumps(payload["body"]))


def run(world, payload, *then):
    """A session that gets this payload, then these; the calls for a decision that the server saw."""
    kind = payload["kind"]
    with ModelServer(step_of(payload, world.server), *then) as server:
        world.use(server, kind, **settings_of(payload))
        world.hand(f"{payload['says']} {len(world.flags())}")
        ended = world.session()
    return ended, server.asked


def payload_of(name):
    return json.loads((FOLDER / f"{name}.json").read_text())


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    monkeypatch.setattr(transport, "FIRST_WAIT_S", 0.01)
    with ModelServer(Act()) as nobody:
        one = Desk(tmp_path, nobody)
        yield one
        one.close()


@pytest.mark.parametrize("name", ["openai_429_retry_after", "anthropic_529_retry_after"])
def test_nothing_is_tried_before_the_time_that_was_asked_for(fresh, name):
    """FIELD 35: and then it goes on as if nothing had been."""
    payload = payload_of(name)
    ended, _ = run(fresh, payload)
    with ModelServer(call(payload["kind"])) as server:
        fresh.use(server, payload["kind"])
        fresh.now = fresh.not_before(ended.item_id) - 1
        assert fresh.session() is None
        fresh.now += 2
        assert fresh.session().outcome == "answered"
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    "name", ["openai_429_insufficient_quota", "ollama_404_model", "anthropic_400_credit"]
)
def test_what_cannot_get_better_waits_for_a_person_for_ever(fresh, name):
    """FIELD 35: a spent quota is never tried again."""
    payload = payload_of(name)
    ended, asked = run(fresh, payload)
    fresh.now += 7 * 24 * 3600
    assert (ended.outcome, fresh.session(), len(asked)) == ("flagged", None, 1)


@pytest.mark.parametrize("name", ["openai_two_calls", "ollama_two_objects", "anthropic_two_uses"])
def test_a_server_that_never_mends_its_ways_ends_with_a_person_and_no_answer(fresh, name):
    """FIELD 25: five failures in a row, a repair call each, and the last reply beside the question."""
    payload = payload_of(name)
    with ModelServer(step_of(payload, fresh.server)) as server:
        fresh.use(server, payload["kind"])
        item = fresh.hand()
        for number in range(1, 6):
            ended = fresh.session()
            assert (ended.outcome, len(server.asked)) == ("flagged" if number == 5 else "failed", 2 * number)
            fresh.now += 3600
        assert fresh.session() is None
    assert fresh.item(item)["result"] is None
    assert "40 euros" in json.dumps(fresh.store.views.flag(fresh.flags()[0]["id"], now=fresh.now))


def test_a_server_that_drops_the_tools_is_named_for_every_item_and_asked_once(fresh):
    """FIELD 33"""
    payload = payload_of("openai_llamacpp_tools_dropped")
    with ModelServer(step_of(payload, fresh.server)) as server:
        fresh.use(server, "openai")
        for number in (1, 2, 3):
            fresh.hand(f"item {number}")
            assert fresh.session().outcome == "flagged"
        assert len(server.asked) == 4
    assert ["drops the tools" in one["stuck"] for one in fresh.flags()] == [True] * 3


def test_a_server_that_asks_for_no_wait_is_not_called_in_a_burst(tmp_path, monkeypatch):
    """FIELD 35: "retry-after: -5" or 0 does not undo our own waits between tries."""
    monkeypatch.setattr(transport, "FIRST_WAIT_S", 0.2)
    payload = payload_of("openai_429_retry_after_negative")
    with ModelServer(Act()) as nobody:
        world = Desk(tmp_path, nobody)
        started = time.monotonic()
        _, asked = run(world, payload)
        assert time.monotonic() - started >= 0.2 + 0.4
        assert len(asked) == transport.TRIES
        world.close()


@pytest.mark.parametrize(("name", "ends"), [("openai_500", "flagged"), ("openai_503_overloaded", "failed")])
def test_what_may_have_broken_the_server_counts_and_a_server_that_is_away_does_not(fresh, name, ends):
    """FIELD 25: an item that breaks the server each time comes before a person."""
    with ModelServer(step_of(payload_of(name), fresh.server)) as server:
        fresh.use(server, "openai")
        item = fresh.hand()
        waits = []
        for number in range(1, 6):
            ended = fresh.session()
            assert ended.outcome == (ends if number == 5 else "failed")
            assert ended.away is not None
            waits.append((fresh.not_before(item) or fresh.now) - fresh.now)
            fresh.now += 3600
    assert waits[:4] == sorted(waits[:4])
    assert waits[0] >= 10


@pytest.mark.parametrize("slashes", [False, True])
def test_a_key_that_comes_back_escaped_is_masked_too(fresh, slashes):
    key = 'sk/live/9f"8e\\7d6c5b4a'
    said = json.dumps({"error": {"message": f"{key} is unknown", "code": "invalid_api_key"}})
    said = said.replace("/", "\\/") if slashes else said
    with ModelServer(Act(401, said.encode(), ())) as server:
        fresh.use(server, "openai")
        (fresh.folder / "api.key").write_text(key)
        item = fresh.hand()
        ended = fresh.session()
    assert server.asked[0].headers["authorization"] == f"Bearer {key}"
    kept = json.dumps([fresh.raws(ended), fresh.item(item), fresh.flags(), ended.why])
    assert "7d6c5b4a" not in kept
    for file in fresh.state.rglob("*"):
        assert not file.is_file() or b"7d6c5b4a" not in file.read_bytes(), file.name


def test_a_key_that_a_model_says_in_its_decision_is_masked_before_it_is_read(fresh):
    """The arguments of a call are JSON in a text in JSON; what they say goes into answers, notes and later prompts."""
    key = 'sk/live/9f"8e\\7d6c5b4a'
    said = {"reason": "as asked", "text": f"It is {key}, or {json.dumps(key)}.", "citations": []}
    call = {"id": "c", "type": "function", "function": {"name": "answer", "arguments": json.dumps(said)}}
    body = {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}
    with ModelServer(act(body)) as server:
        fresh.use(server, "openai")
        (fresh.folder / "api.key").write_text(key)
        item = fresh.hand()
        ended = fresh.session()
    assert (ended.outcome, fresh.item(item)["result"]["text"]) == ("answered", 'It is ***, or "***".')
    for file in fresh.state.rglob("*"):
        assert not file.is_file() or b"7d6c5b4a" not in file.read_bytes(), file.name


def test_both_calls_of_a_repair_are_in_the_bill(fresh):
    payload = payload_of("anthropic_two_uses")
    ended, _ = run(fresh, payload, step_of(payload_of("anthropic_one_use"), fresh.server))
    assert (ended.outcome, fresh.row(ended)["input_tokens"], fresh.row(ended)["output_tokens"]) == (
        "answered",
        890,
        112,
    )


def test_a_call_that_failed_cost_what_nobody_knows(fresh):
    """FIELD 36: an error tells no usage, and unknown is not zero."""
    ended, _ = run(fresh, payload_of("openai_500"))
    assert [fresh.row(ended)[name] for name in ("input_tokens", "output_tokens", "cost")] == [
        None,
        None,
        None,
    ]


def test_every_payload_names_where_it_is_from():
    for file in FILES:
        payload = json.loads(file.read_text())
        source, made = payload["source"], payload["made"].split()[0].strip(":;")
        assert source.startswith("recorded from " if made == "recorded" else "https://"), file.name
        assert made in ("documented", "constructed", "recorded"), file.name
        assert ("body" in payload) != ("text" in payload), file.name
        assert (payload["outcome"] == "not_before") == ("wait_s" in payload), file.name
        assert payload["outcome"] != "answered" or "usage" in payload, file.name


def test_the_index_lists_every_payload_as_it_is():
    index = (FOLDER / "README.md").read_text().partition("## Index")[2]
    rows = [line for line in index.splitlines() if line.startswith("| [")]
    told = [(file.stem, json.loads(file.read_text())) for file in FILES]
    assert rows == [
        f"| [{name}]({name}.json) | {one['status']} | {one['outcome']} | {one['says']} |"
        for kind in ("openai", "ollama", "anthropic")
        for name, one in told
        if one["kind"] == kind
    ]
