"""The one intake function: text, front matter, strict JSON, and the name of each broken rule (FIELD 12, 17)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InputRefused
from store.intake import Constraint
from triggers.intake import Draft, parse


def refused(data: bytes | str, name: str = "a.md", **more) -> tuple[str, str]:
    """The rule and the words of a refusal."""
    with pytest.raises(InputRefused) as caught:
        parse(data.encode() if isinstance(data, str) else data, name=name, **more)
    return caught.value.rule, str(caught.value)


def front(lines: str, body: str = "Body.\n") -> Draft:
    return parse(f"+++\n{lines}\n+++\n{body}".encode(), name="a.md")


# text


def test_plain_text_is_the_body_and_its_first_line_the_title():
    draft = parse(b"\n## Refunds of May\n\nWhich of them are late?\n", name="x.md")
    assert draft.body == "\n## Refunds of May\n\nWhich of them are late?\n"
    assert draft.title == "Refunds of May"
    assert draft.key is None


def test_a_long_first_line_is_cut_for_the_title_alone():
    draft = parse(("w" * 500).encode())
    assert len(draft.title) <= 80
    assert draft.title.endswith("…")
    assert draft.body == "w" * 500


def test_a_byte_order_mark_is_no_text():
    assert parse(b"\xef\xbb\xbfHello\n").body == "Hello\n"
    assert parse(b'\xef\xbb\xbf{"body": "x"}', name="a.json").body == "x"


def test_what_is_not_utf8_is_refused_with_the_position_of_the_byte():
    rule, words = refused(b"abc\xffdef")
    assert rule == "not-utf8"
    assert "0xff at position 3" in words


@pytest.mark.parametrize(("data", "position"), [(b"\x00", 0), (b"ab\x00c", 2)])
def test_a_nul_byte_is_refused_with_its_position(data, position):
    rule, words = refused(data)
    assert rule == "nul"
    assert f"position {position}" in words


@pytest.mark.parametrize("data", [b"", b"  \n\t\n", b"\xef\xbb\xbf", b"+++\ntitle='x'\n+++\n \n"])
def test_nothing_to_work_on_is_refused_as_empty(data):
    assert refused(data)[0] == "empty"


def test_more_than_the_cap_is_refused():
    assert refused(b"x" * 11, max_bytes=10)[0] == "too-large"
    assert parse(b"x" * 10, max_bytes=10).body == "x" * 10


# front matter (FIELD 12)


def test_front_matter_gives_every_key():
    draft = front(
        'key = " r-1 "\ntitle = "T"\npriority = 5\nnot_before = 2026-03-29T08:00:00+01:00\n'
        'constraints = ["only May", {text = "never mail", kind = "prohibition"}]'
    )
    assert draft == Draft(
        body="Body.\n",
        title="T",
        key="r-1",
        priority=5,
        not_before=1774767600.0,
        constraints=(Constraint("only May", "scope"), Constraint("never mail", "prohibition")),
    )


def test_front_matter_may_have_windows_line_ends():
    assert parse(b"+++\r\ntitle = 'T'\r\n+++\r\nBody\r\n").title == "T"


def test_an_unknown_key_is_refused_with_the_nearest_known_one():
    with pytest.raises(InputRefused, match='unknown key "priorty"; did you mean "priority"') as caught:
        front("priorty = 3")
    assert caught.value.rule == "unknown-key"
    with pytest.raises(InputRefused, match="known are key, title, priority, not_before, constraints"):
        front("zzz = 3")


def test_front_matter_of_16_kib_is_read_and_more_is_refused():
    line = f'title = "T" # {"x" * (16 * 1024 - 15 - 1)}'
    assert len(line) + 1 <= 16 * 1024
    assert front(line).title == "T"
    assert refused(f"+++\n{line}yyy\n+++\nBody")[0] == "front-matter-size"


def test_front_matter_that_never_ends_is_refused():
    assert refused("+++\ntitle = 'x'\nBody\n")[0] == "front-matter"


def test_front_matter_that_is_not_toml_is_refused_with_its_place():
    rule, words = refused("+++\ntitle: x\n+++\nBody")
    assert rule == "front-matter"
    assert "line 1" in words


@pytest.mark.parametrize("body", ["---\ntitle: x\n---\nBody\n", "text\n+++\ntitle = 'x'\n+++\n", "++++\nx\n"])
def test_a_leading_dash_block_and_later_plus_lines_are_body_text(body):
    draft = parse(body.encode())
    assert draft.body == body


@pytest.mark.parametrize(
    "line",
    [
        "key = 3", "key = ''", f"key = '{'k' * 201}'", 'key = "a\\u0007b"', "title = 1", f"title = '{'t' * 201}'",
        "priority = 1.5", "priority = true", "priority = 100000", "not_before = 2026-03-29T08:00:00",
        "not_before = 2026-03-29", "not_before = 'soon'", "not_before = 5", "constraints = 'x'", "constraints = ['']",
        "constraints = [{txt = 'x'}]", "constraints = [{text = 'x', kind = 'wish'}]", "constraints = [3]",
        f"constraints = ['{'c' * 2001}']",
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_is_refused(line):
    with pytest.raises(InputRefused) as caught:
        front(line)
    assert caught.value.rule == "bad-value"


def test_a_body_may_look_like_anything():
    hostile = "$(rm -rf /) `x` {0} %s \x1b[31m\u202e\n"
    assert parse(hostile.encode()).body == hostile


# strict JSON (FIELD 17)


def test_json_gives_the_same_keys_and_a_body():
    text = '{"key": "k", "title": "T", "priority": -1, "constraints": [{"text": "c"}], "body": "B"}'
    draft = parse(text.encode(), name="x.JSON")
    assert draft == Draft(body="B", title="T", key="k", priority=-1, constraints=(Constraint("c"),))
    assert (
        parse(b'{"body": "B", "not_before": "2026-03-29T08:00:00Z"}', name="x.json").not_before
        == 1774771200.0
    )


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('{"body": "a", "body": "b"}', "json-duplicate-key"),
        ('{"body": "a", "x": {"k": 1, "k": 2}}', "json-duplicate-key"),
        ('{"body": "a", "priority": NaN}', "json-nan"),
        ('{"body": "a", "priority": -Infinity}', "json-nan"),
        ('{"body": "a", "priority": 1e999}', "json-nan"),
        ('{"body": "\\ud800"}', "json-lone-surrogate"),
        ('{"body": "a", "\\udfff": 1}', "json-lone-surrogate"),
        ('{"body": "a\\u0000"}', "json-nul"),
        ('{"body": "a", "x": ' + "[" * 100 + "]" * 100 + "}", "json-depth"),
        ('{"body": ' + "[" * 100_000, "json-depth"),
        ('{"body": "a"} x', "json-trailing"),
        ('{"body": "a"}{"body": "b"}', "json-trailing"),
        ('{"body": "a",}', "json-syntax"),
        ("{'body': 'a'}", "json-syntax"),
        ('{"body": "a\nb"}', "json-syntax"),
        ('{"body": "a", "priority": ' + "9" * 5000 + "}", "json-number"),
        ("[]", "json-object"),
        ('"x"', "json-object"),
        ('{"title": "x"}', "bad-value"),
        ('{"body": 3}', "bad-value"),
        ('{"body": " "}', "empty"),
        ("", "empty"),
        ('{"body": "a", "titel": "x"}', "unknown-key"),
        ('{"bdy": "a"}', "unknown-key"),
    ],
)
def test_json_that_two_readers_may_read_differently_is_refused_by_name(text, rule):
    assert refused(text, "a.json")[0] == rule


def test_a_surrogate_pair_is_a_character():
    assert parse(b'{"body": "\\ud83d\\ude00"}', name="a.json").body == "😀"


def test_a_hundred_levels_are_allowed():
    text = '{"body": "x", "constraints": ' + "[" * 99 + "]" * 99 + "}"
    assert refused(text, "a.json")[0] == "bad-value"  # read whole, refused for what it says


def test_brackets_in_strings_do_not_nest():
    assert parse(json.dumps({"body": '"[{' * 500}).encode(), name="a.json").body == '"[{' * 500


@given(st.binary(max_size=200), st.sampled_from(["a.md", "a.json"]))
def test_any_bytes_are_read_or_refused_and_nothing_else(data, name):
    try:
        assert parse(data, name=name).body.strip()
    except InputRefused:
        return
