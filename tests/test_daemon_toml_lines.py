from __future__ import annotations

import tomllib

import pytest

from daemon.toml_lines import key_lines, line_of

TRICKY = '''\
top = 1 # comment with "quote" and [bracket]
"quoted key" = 'lit # eral'
a.b."c.d" = """
many = "lines"
\\" and a quote at the end""""

[queues.questions]   # a table
sources = [
  "docs/**/*.md",  # one
  "more.md",
]
item = { title = "a, b]", body = "x = }" }
[queues.'odd name']
text = \'\'\'
[not.a.table]
key = 1\'\'\'
date = 1979-05-27T07:32:00Z
empty = []
none = {}

[[notify.services]]
url_file = "a"
[[notify.services]]
url_file = "b"
[notify.services.extra]
x = [[1, 2], [{ deep = true }]]
'''


def leaves(value, path=()):
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    if isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, (*path, index))


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_every_key_that_the_parser_sees_has_a_line_and_no_other(ending):
    text = TRICKY.replace("\n", ending)
    assert set(key_lines(text)) == set(leaves(tomllib.loads(text))) - {()}


def test_lines_are_those_a_person_would_point_at():
    lines = key_lines(TRICKY)
    assert lines["top",] == 1
    assert lines["a", "b", "c.d"] == 3
    assert lines["queues", "questions"] == 7
    assert lines["queues", "questions", "sources"] == 8
    assert lines["queues", "questions", "sources", 1] == 10
    assert lines["queues", "questions", "item", "body"] == 12
    assert lines["notify", "services", 1, "url_file"] == 24
    assert lines["notify", "services", 1, "extra", "x", 1, 0, "deep"] == 26


def test_a_missing_key_points_at_its_table():
    lines = key_lines(TRICKY)
    assert line_of(lines, ("queues", "questions", "decider")) == 7
    assert line_of(lines, ("nothing",)) == 1
