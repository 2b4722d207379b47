"""Documents are cut where a reader would cut them, and every passage is a verbatim part of its document."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from memory.passages import HARD_CHARS, MAX_CHARS, MIN_CHARS, cut

SENTENCE = "The daemon takes one item at a time and writes down what it came to. "


def paragraphs(count, sentences=5):
    return "\n\n".join(f"Paragraph {number}. {SENTENCE * sentences}".strip() for number in range(count))


def test_a_short_document_is_one_passage():
    assert [piece.text for piece in cut("# Title\n\nOne line.\n")] == ["# Title\n\nOne line."]


def test_a_blank_document_has_no_passage():
    assert cut("") == cut(" \n\n\t\n") == []


def test_a_long_document_is_cut_between_paragraphs_into_pieces_of_like_size():
    pieces = [piece.text for piece in cut(paragraphs(20))]
    assert all(MIN_CHARS <= len(piece) <= MAX_CHARS for piece in pieces)
    assert all(piece.startswith("Paragraph") and piece.endswith(".") for piece in pieces)


def test_a_paragraph_that_is_too_long_is_cut_between_sentences_only():
    text = SENTENCE * 60
    pieces = [piece.text for piece in cut(text)]
    assert len(pieces) > 3
    assert all(piece.startswith("The daemon") and piece.endswith("came to.") for piece in pieces)


def test_chinese_sentences_are_not_cut_either():
    pieces = [piece.text for piece in cut("守护进程每次只处理一个项目,并写下结果。" * 100)]
    assert len(pieces) > 1
    assert all(piece.endswith("。") and len(piece) <= MAX_CHARS for piece in pieces)


def test_an_abbreviation_ends_no_sentence():
    text = ("It measures length, width, etc. Then it goes on, e.g. Here and there, " * 40).strip()
    assert not any(piece.text.rstrip().endswith(("etc.", "e.g.")) for piece in cut(text))


def test_each_passage_knows_the_headings_above_it():
    text = f"# Guide\n\n{SENTENCE * 5}\n\n## Install\n\n{paragraphs(4)}\n\n## Run\n\n{SENTENCE * 6}"
    found = [(piece.heading, piece.outer) for piece in cut(text)]
    assert found[0] == ("Guide", "")
    assert found[1] == ("Guide / Install", "Guide")
    assert ("Guide / Install", "Guide / Install") in found
    assert found[-1] == ("Guide / Run", "Guide")


def test_a_heading_never_ends_a_passage_and_neither_does_a_line_that_introduces():
    text = "".join(
        f"## Part {n}\n\n{SENTENCE * 11}\n\nThese are the ways:\n\n- one\n- two\n\n" for n in range(8)
    )
    for piece in cut(text):
        last = piece.text.splitlines()[-1]
        assert not last.startswith("#")
        assert not last.endswith(":")


def test_underlined_headings_are_headings():
    assert (
        cut(f"Title\n=====\n\n{SENTENCE * 5}\n\nPart\n----\n\n{SENTENCE * 12}")[-1].heading == "Title / Part"
    )


def test_a_code_block_is_kept_whole_and_its_comments_are_no_headings():
    code = "```sh\n# not a heading\n" + "echo hello world\n" * 20 + "```"
    text = f"# Real\n\n{SENTENCE * 8}\n\nRun this:\n\n{code}\n\n{SENTENCE * 8}"
    pieces = cut(text)
    assert sum(code in piece.text for piece in pieces) == 1
    assert {piece.heading for piece in pieces} == {"Real"}


def test_front_matter_is_no_heading():
    assert cut("---\ntitle: A page\n---\n\nText.")[0].heading == ""


def test_small_sections_share_a_passage_and_large_ones_do_not():
    small = "".join(f"### S{n}\n\nOne line.\n\n" for n in range(6))
    assert len(cut(small)) == 1
    assert len(cut("".join(f"## S{n}\n\n{SENTENCE * 6}\n\n" for n in range(4)))) == 4


def test_plain_text_knows_no_markdown():
    pieces = cut(f"# a comment\n{SENTENCE * 3}\n\n- {SENTENCE}", markdown=False)
    assert [piece.heading for piece in pieces] == [""]


def test_a_line_without_an_end_is_bounded():
    assert all(len(piece.text) <= HARD_CHARS for piece in cut("x" * 20_000))
    assert all(len(piece.text) <= HARD_CHARS for piece in cut("word " * 5_000))


MARKDOWN = st.lists(
    st.sampled_from(["# H\n", "## H2 #\n", "\n", "```\n", "~~~~\n", "- item\n", "  more\n", "| a | b |\n", "text.\n",
                     "Text ends here. And goes on\n", "===\n", "---\n", "+++\n", "词。词\n", "x" * 1500 + "\n", "a:\n",
                     "\r\n", "\x85", " ", "1. n\n", "> q\n"]),
    max_size=60,
).map("".join)  # fmt: skip


@example("x" * 6000 + "\n===")
@example("# " + "x" * 6000)
@given(MARKDOWN | st.text(max_size=3000))
@settings(max_examples=300, deadline=None)
def test_passages_are_verbatim_in_order_and_leave_no_word_out(text):
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    at = 0
    for piece in cut(text):
        start = plain.index(piece.text, at)
        assert not plain[at:start].strip()
        at = start + len(piece.text)
        assert len(piece.text) <= 2 * HARD_CHARS
    assert not plain[at:].strip()
