"""Signatures, pointers and keys as values: what a sender's own documentation says must come out (FIELD 13, 14)."""

from __future__ import annotations

import base64

import pytest

from store.errors import InputRefused
from store.intake import content_digest
from triggers import pointers
from triggers.webhooks import reading, signatures
from triggers.webhooks.accept import Delivery, read
from triggers.webhooks.hook import Hook, hooks

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
KEY = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
SHOP = Hook("shop", "work", "standard", (KEY,))


def test_the_documented_example_of_github_is_good():
    """GitHub, "Validating webhook deliveries": secret, payload and signature as they stand there."""
    headers = {
        "x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    }
    secret = signatures.secret_of(b"It's a Secret to Everybody\n", "github")
    signatures.verify("github", [secret], headers, b"Hello, World!", now=0)


def test_the_documented_example_of_standard_webhooks_is_good():
    """Svix, "Verifying webhooks manually": id, time, body and secret as they stand there."""
    body, at = b'{"test": 2432232314}', 1614265330
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": str(at),
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    for now in (at - 300, at, at + 300):
        signatures.verify(
            "standard", [signatures.secret_of(SECRET.encode(), "standard")], headers, body, now=now
        )
    for now in (at - 301, at + 301):
        with pytest.raises(signatures.NotSigned) as caught:
            signatures.verify("standard", [KEY], headers, body, now=now)
        assert caught.value.rule == "expired"


@pytest.mark.parametrize(
    ("content", "scheme", "expected"),
    [
        (SECRET.encode(), "standard", KEY),
        (SECRET.encode() + b"\n", "standard", KEY),
        (SECRET.encode() + b"\r\n", "standard", KEY),
        (b"raw \n", "github", b"raw "),
        (b"raw\n\n", "github", b"raw\n"),
        (SECRET.encode(), "github", SECRET.encode()),
    ],
)
def test_one_line_end_is_dropped_and_nothing_else(content, scheme, expected):
    assert signatures.secret_of(content, scheme) == expected


@pytest.mark.parametrize(
    ("content", "scheme", "words"),
    [
        (b"", "github", "is empty"),
        (b"\n", "github", "is empty"),
        (b"  \n", "standard", "is empty"),
        (b"hello", "standard", 'must hold "whsec_"'),
        (b"whsec_", "standard", "nothing follows"),
        (b"whsec_not base64!", "standard", "is not base64"),
        (b"whsec_abc", "standard", "is not base64"),
        (b"x" * 5000, "github", "too large"),
    ],
)
def test_a_secret_that_is_none_is_refused_without_showing_it(content, scheme, words):
    with pytest.raises(ValueError, match=words) as caught:
        signatures.secret_of(content, scheme)
    assert "hello" not in str(caught.value)


def test_a_hook_shows_no_secret():
    assert "Mf" not in repr(SHOP)
    assert str(KEY) not in repr(SHOP)


def test_a_hook_whose_secret_is_gone_is_off(tmp_path):
    """FIELD 13: no secret, no endpoint."""
    from triggers.config import WebhookSettings

    (tmp_path / "good").write_text(SECRET)
    tables = {
        name: WebhookSettings.model_validate(
            {"scheme": "standard", "secret_file": name, "queue": "q"}, context={"folder": tmp_path}
        )
        for name in ("good", "gone")
    }
    assert list(hooks(tables)) == ["good"]


DOCUMENT = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "m~n": 2,
    " ": 3,
    "null": None,
    "deep": [{"er": {"est": "x"}}],
}


@pytest.mark.parametrize(
    ("pointer", "expected"),
    [
        ("", DOCUMENT),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/m~0n", 2),
        ("/ ", 3),
        ("/deep/0/er/est", "x"),
        ("/foo/2", None),
        ("/foo/-", None),
        ("/foo/01", None),
        ("/foo/-1", None),
        ("/foo/٣", None),
        ("/foo/999999999999", None),
        ("/foo/bar", None),
        ("/null/x", None),
        ("/none", None),
    ],
)
def test_a_pointer_names_what_rfc_6901_says(pointer, expected):
    assert pointers.value_at(DOCUMENT, pointer) == expected
    assert pointers.problem(pointer) is None


@pytest.mark.parametrize("pointer", ["foo", "foo/bar", "/a~2b", "/a~", "#/foo"])
def test_a_text_that_is_no_pointer_is_refused(pointer):
    assert "must be a JSON pointer" in pointers.problem(pointer)


def handed(hook: Hook, text: str, *, delivery: str = "d", event: str = ""):
    return reading.read(hook, text.encode(), delivery=delivery, event=event, fresh="fresh")


def test_a_delivery_without_an_id_gets_the_fresh_key():
    assert handed(SHOP, "{}", delivery="").key == "fresh"
    assert handed(SHOP, "{}").key == "shop:d"


@pytest.mark.parametrize(("value", "key"), [('"x"', "x"), ("17", "17"), ("1.50", "1.5"), ("true", "true")])
def test_a_key_may_be_a_number(value, key):
    assert handed(SHOP._replace(key="/k"), f'{{"k": {value}}}').key == key


@pytest.mark.parametrize("value", ['""', '" "', '"a\\nb"', f'"{"k" * 201}"'])
def test_a_key_that_no_door_takes_is_refused_here_too(value):
    with pytest.raises(InputRefused) as caught:
        handed(SHOP._replace(key="/k"), f'{{"k": {value}}}')
    assert caught.value.rule == "bad-value"


def test_a_body_that_is_an_object_is_its_json():
    assert handed(SHOP._replace(body="/b"), '{"b": {"ä": 1}}').body == '{"ä": 1}'


def test_a_body_that_says_null_is_the_title_and_one_that_is_missing_is_refused():
    """GitHub's issues without a description: it never sends them again."""
    hook = SHOP._replace(title="/issue/title", body="/issue/body")
    one = handed(hook, '{"issue": {"title": "It broke", "body": null}}')
    assert (one.title, one.body) == ("It broke", "It broke")
    for text in (
        '{"issue": {"title": "It broke"}}',
        '{"issue": {"title": null, "body": null}}',
        '{"issue": null}',
    ):
        with pytest.raises(InputRefused) as caught:
            handed(hook, text)
        assert caught.value.rule == "no-such-value"
    with pytest.raises(InputRefused):
        handed(hook._replace(title=None), '{"issue": {"title": "It broke", "body": null}}')


def test_a_title_is_cut_and_put_on_one_line_and_a_missing_one_is_no_fault():
    hook = SHOP._replace(title="/t")
    assert handed(hook, '{"t": "a\\n  b"}').title == "a b"
    assert len(handed(hook, f'{{"t": "{"x" * 500}"}}').title) == 200
    assert handed(hook, "{}").title == "shop d"
    assert handed(hook._replace(body="/b"), '{"b": "first\\nsecond", "t": []}').title == "first"


def test_with_a_key_of_its_own_what_is_sent_again_under_another_id_or_event_is_the_same_content():
    """Else a redelivery would revise its item and have it done again."""
    hook = SHOP._replace(key="/k")
    first, again = (
        handed(hook, '{"k": "o 7"}', delivery="a"),
        handed(hook, '{"k": "o 7"}', delivery="b", event="e"),
    )
    assert content_digest(first) == content_digest(again)
    assert first.title == "shop o 7"


def test_an_item_says_where_it_came_from():
    one = handed(SHOP, "{}")
    assert (one.door, one.origin, one.source, one.delivery) == ("webhook", "shop", "webhook:shop", "d")


def test_nothing_is_parsed_before_the_signature_is_good():
    """A text that would be refused by the parser is refused for its signature."""
    answer = read(Delivery(SHOP, {}, b"[" * 100_000, 0.0))
    assert (answer.status, answer.word) == (401, "no-signature")
