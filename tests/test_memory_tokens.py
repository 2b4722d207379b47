"""One tokeniser for documents and queries."""

from __future__ import annotations

import sqlite3
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.tokens import TOKEN_CHARS, tokens


def test_words_are_folded_and_english_ones_are_stemmed() -> None:
    assert tokens("Wings, WING wing's") == ["wing", "wing", "wing", "s"]
    assert tokens("ﬁnes ①") == ["fine", "1"]
    assert tokens("café CAFÉ") == ["café", "café"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("foo_bar", ["foo_bar", "foo", "bar"]),
        ("ERR-1042", ["err_1042", "err", "1042"]),
        ("ERR\u20111042", ["err_1042", "err", "1042"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("python3", ["python3", "python", "3"]),
        ("2024-05-01", ["2024_05_01", "2024", "05", "01"]),
        ("3.11.7", ["3_11_7", "3", "11", "7"]),
        ("well-known", ["well", "known"]),
        ("__init__", ["init"]),
    ],
)
def test_an_identifier_gives_its_whole_and_its_parts(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected


def test_a_hash_is_one_token_and_not_twenty() -> None:
    assert tokens("a3f9c2e1b00d") == ["a3f9c2e1b00d"]


def test_scripts_without_spaces_give_pairs_of_characters() -> None:
    assert tokens("战国无双3") == ["战国", "国无", "无双", "3"]
    assert tokens("カメラ") == ["カメ", "メラ"]
    assert tokens("ｶﾒﾗ") == ["カメ", "メラ"]
    assert tokens("猫") == ["猫"]
    assert tokens("iPhone手机")[-1] == "手机"


def test_vowel_signs_stay_inside_their_word() -> None:
    assert tokens("हिन्दी भाषा") == ["हिन्दी", "भाषा"]


def test_text_without_letters_has_no_tokens() -> None:
    assert tokens("") == tokens(" \0 \ud800 -- ___ …\n") == []


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=60))
def test_every_string_gives_tokens_that_the_index_takes_unchanged(text: str) -> None:
    found = tokens(text)
    assert found == tokens(text)
    for token in found:
        assert 0 < len(token) <= TOKEN_CHARS
        token.encode()  # no lone surrogate
        assert not set(token) & set(" \t\n\0\"'*^:-+()")


def test_every_character_of_unicode_gives_tokens_that_the_index_takes_unchanged() -> None:
    conn = sqlite3.connect(":memory:")
    conn.execute("CREATE VIRTUAL TABLE t USING fts5(x, tokenize=\"ascii tokenchars '_'\")")
    conn.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, 'row')")
    every = {token for code in range(0x110000) for token in tokens(chr(code))}
    conn.execute("INSERT INTO t VALUES (?)", (" ".join(sorted(every)),))
    assert {row[0] for row in conn.execute("SELECT term FROM v")} == every
    conn.close()


def test_a_megabyte_of_combining_marks_does_not_take_quadratic_time() -> None:
    # NFKC sorts marks by class; 2**20 in wrong order take minutes when handed over whole.
    assert tokens("\u0316\u0301" * 2**19)


def test_importing_the_tokeniser_does_not_import_the_stemmer() -> None:
    code = "import sys, memory.tokens; sys.exit('Stemmer' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
