"""Calibration: what each threshold gives on labelled questions, and which one to take."""

from __future__ import annotations

import json

import pytest

from sessions.calibrate import ANSWERED_MIN, FLAG_EVERYTHING, Labelled, calibrate, read_rows, render
from sessions.extract import Passage
from store.errors import InputRefused

PLACES = ["Aachen", "Bremen", "Cologne", "Dresden", "Essen", "Freiburg", "Gera", "Hamburg", "Ingolstadt", "Jena",
          "Kiel", "Leipzig"]  # fmt: skip


def passage(n: int) -> Passage:
    return Passage(
        f"depots.md#{n}",
        f"The depot in {PLACES[n]} was opened by its keeper in {1900 + n}.",
        "docs/depots.md",
    )


def retrieve(question: str) -> list[Passage]:
    return [passage(n) for n, place in enumerate(PLACES) if place in question]


def labelled(n: int, *, right: bool = True) -> Labelled:
    return Labelled(
        f"When was the depot in {PLACES[n]} opened by its keeper?", (str(1900 + n if right else 1700),)
    )


def test_the_lowest_threshold_that_reaches_the_target_is_proposed():
    found = calibrate([labelled(n) for n in range(12)], retrieve, target=0.92)
    assert found.proposed is not None
    assert found.proposed.threshold == found.threshold == found.levels[0].threshold
    assert found.proposed.answered == found.proposed.right == 12
    assert found.proposed.precision == found.proposed.coverage == 1.0


def test_when_no_threshold_reaches_the_target_it_says_to_flag_everything():
    found = calibrate([labelled(n, right=False) for n in range(12)], retrieve)
    assert found.proposed is None
    assert found.threshold == FLAG_EVERYTHING
    text = render(found)
    assert "flag everything" in text
    assert "threshold = 1.0" in text


def test_answers_too_few_to_show_anything_propose_nothing():
    found = calibrate([labelled(n) for n in range(ANSWERED_MIN - 1)], retrieve)
    assert found.levels[0].precision == 1.0
    assert found.proposed is None


def test_an_unanswerable_question_that_is_answered_counts_against_precision():
    rows = [*(labelled(n) for n in range(11)), labelled(11)._replace(answers=())]
    level = calibrate(rows, retrieve).levels[0]
    assert (level.answered, level.right, level.unanswerable, level.answered_unanswerable) == (12, 11, 1, 1)


def test_questions_that_nothing_matches_are_flagged_at_every_threshold():
    level = calibrate([Labelled("Who won?", ()), labelled(0)], retrieve).levels[0]
    assert (level.questions, level.answered, level.coverage) == (2, 1, 0.5)


@pytest.mark.parametrize(
    ("answers", "source", "right"),
    [
        (("1903",), "", True),
        (("opened BY\n its keeper",), "", True),
        (("190",), "", False),
        (("7", "1903"), "", True),
        (("1903",), "docs/depots.md", True),
        (("1903",), "depots.md", True),
        (("1903",), "depots.md#3", True),
        (("1903",), "docs/other.md", False),
        (("1903",), "epots.md", False),
    ],
)
def test_an_answer_is_right_when_its_words_stand_in_the_quotation_and_it_is_from_the_source(
    answers, source, right
):
    level = calibrate([Labelled(labelled(3).question, answers, source)], retrieve).levels[0]
    assert (level.answered, level.right) == (1, int(right))


def test_few_answers_prove_less_than_many_of_the_same_precision():
    few = calibrate([labelled(n) for n in range(10)], retrieve).levels[0]
    many = few._replace(questions=1000, answered=1000, right=1000)
    assert few.at_least < 0.8
    assert 0.99 < many.at_least < 1


@pytest.mark.parametrize("count", [1, 12])
def test_the_table_fits_80_columns_and_ends_with_what_to_write(count):
    rows = [labelled(n) for n in range(count)] + [Labelled("Who won?", ())] * 200
    text = render(calibrate(rows, retrieve))
    assert max(map(len, text.splitlines())) <= 80
    assert f"{count + 200} questions, 200 of them without an answer" in text
    assert "In the decider's section:  threshold = " in text


def test_few_questions_are_called_a_rough_measure():
    assert "So few questions measure roughly" in render(calibrate([labelled(n) for n in range(12)], retrieve))


def test_labelled_questions_are_read_from_json_lines_with_blank_lines_left_out():
    rows = read_rows(
        [
            '{"question": " Who? ", "answers": ["a", "b"], "source": "x.md"}\n',
            "\n",
            '{"question":"W","answers":[]}',
        ]
    )
    assert rows == [Labelled("Who?", ("a", "b"), "x.md"), Labelled("W", ())]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("{", "not JSON"),
        ("[]", "must be an object"),
        ('{"question": "Who?"}', '"answers" must be a list'),
        ('{"answers": []}', '"question" must be a text'),
        ('{"question": " ", "answers": []}', '"question" must be a text'),
        ('{"question": "Who?", "answers": "a"}', '"answers" must be a list'),
        ('{"question": "Who?", "answers": [" "]}', '"answers" must hold texts'),
        ('{"question": "Who?", "answers": [1]}', '"answers" must hold texts'),
        ('{"question": "Who?", "answers": [], "source": 3}', '"source" must be a text'),
        ('{"question": "Who?", "answers": [], "anser": []}', 'unknown key "anser"'),
        ("[" * 99_000, "not JSON"),
        ('"' + "x" * 100_001, "longer than"),
    ],
)
def test_a_bad_line_is_named_with_its_number_and_its_rule(line, rule):
    with pytest.raises(InputRefused) as caught:
        read_rows(['{"question": "Who?", "answers": []}', line])
    assert str(caught.value).startswith(f"line 2: {rule}")


def test_many_bad_lines_are_named_up_to_a_limit_and_counted():
    with pytest.raises(InputRefused) as caught:
        read_rows(["{"] * 25)
    said = str(caught.value).splitlines()
    assert len(said) == 11
    assert said[-1] == "and 15 more bad lines"


def test_a_file_without_a_question_says_what_a_line_looks_like():
    with pytest.raises(InputRefused, match="question") as caught:
        read_rows(["", " \n"])
    example = str(caught.value).split("a line is ")[1].replace("…", "x")
    assert json.loads(example) == {"question": "x", "answers": ["x"]}
