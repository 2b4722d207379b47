from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.units import LONGEST_S, duration_text, parse_duration, parse_size, size_text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("2h", 7200),
        ("3d", 259200),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("0.5s", 0.5),
        (" 2s ", 2),
        ("0s", 0),
    ],
)
def test_a_duration_is_read_as_people_write_it(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "90", "s", "5 m", "1w", "-5m", "5M", "1e3s", "٣s", "5m;", "9" * 20 + "s", "4000d"]
)
def test_a_duration_that_could_be_misread_is_refused(text):
    with pytest.raises(ValueError, match="must be"):
        parse_duration(text)


def test_a_bare_number_is_told_its_unit():
    with pytest.raises(ValueError, match='"90s" means seconds'):
        parse_duration("90")


@pytest.mark.parametrize(
    ("text", "size"),
    [("512B", 512), ("64KiB", 65536), ("1MiB", 1 << 20), ("2 GB", 2 * 10**9), ("0.5KiB", 512)],
)
def test_a_size_is_read_as_people_write_it(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "1", "1M", "1mb", "-1B", "1 KiB B", "99999TiB"])
def test_a_size_that_could_be_misread_is_refused(text):
    with pytest.raises(ValueError, match="must be"):
        parse_size(text)


@given(st.integers(0, int(LONGEST_S * 1000)))
def test_every_duration_is_written_so_that_it_reads_back(millis):
    seconds = millis * 0.001
    assert parse_duration(duration_text(seconds)) == pytest.approx(seconds, abs=1e-9)


@given(st.integers(0, 1 << 50))
def test_every_size_is_written_so_that_it_reads_back(size):
    assert parse_size(size_text(size)) == size
