"""UNTIL: times as people write them, in their own zone, always after now."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from daemon.cli.when import parse_until

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 27, 14, 30, tzinfo=BERLIN).timestamp()  # a Friday


def until(text, zone=BERLIN):
    at = parse_until(text, now=NOW, zone=zone)
    return datetime.fromtimestamp(at, BERLIN).strftime("%Y-%m-%d %H:%M")


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2h", "2026-11-27 16:30"),
        ("1h30m", "2026-11-27 16:00"),
        ("3d", "2026-11-30 14:30"),
        ("18:00", "2026-11-27 18:00"),
        ("today 18:00", "2026-11-27 18:00"),
        ("tomorrow", "2026-11-28 09:00"),
        ("Tomorrow  08:15", "2026-11-28 08:15"),
        ("monday", "2026-11-30 09:00"),
        ("Friday 09:00", "2026-12-04 09:00"),
        ("2026-12-01", "2026-12-01 00:00"),
        ("2026-12-01 09:00", "2026-12-01 09:00"),
        ("2026-12-01T09:00:30", "2026-12-01 09:00"),
        ("2026-12-01T09:00:00Z", "2026-12-01 10:00"),
        ("2026-12-01T09:00:00+05:30", "2026-12-01 04:30"),
    ],
)
def test_a_time_is_read_as_it_is_meant(text, at):
    assert until(text) == at


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("13:00", "is over already: it is now 2026-11-27 14:30"),
        ("today", "is over already"),
        ("2026-11-27 14:30", "is over already"),
        ("2026-11-27T13:30:00Z", "is over already"),
        ("1999-01-01", "is over already"),
        ("90", 'has no unit: "90m" means minutes'),
        ("25:00", "is no time of day"),
        ("tomorrow noonish", "must be a time such as"),
        ("2026-02-30", "is no day or time that exists"),
        ("2026-12-01 9", "is no day or time that exists"),
        ("soon", "must be a time such as"),
        ("", "must be a time such as"),
        ("9999-12-31", "is more than ten years away"),
        ("9999d", "at most 3650d"),
        ("-2h", "must be a time such as"),
        ("\uff12h", "must be a time such as"),
        ("0s", "is over already"),
        ("2026-12-01T09:00:00+99:00", "is no day or time that exists"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(text, said):
    with pytest.raises(ValueError, match=r".") as refused:
        until(text)
    assert said in str(refused.value)


def test_an_hour_that_summer_time_skips_is_the_one_after_it():
    now = datetime(2026, 3, 28, 12, 0, tzinfo=BERLIN).timestamp()
    at = parse_until("2026-03-29 02:30", now=now, zone=BERLIN)
    assert datetime.fromtimestamp(at, UTC).strftime("%H:%M") == "01:30"


def test_without_a_zone_the_local_one_counts(monkeypatch):
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        at = parse_until("2026-12-01 09:00", now=NOW)
        assert datetime.fromtimestamp(at, UTC).strftime("%H:%M") == "00:00"
    finally:
        monkeypatch.undo()
        time.tzset()
