"""The rows behind alerts: their tables, and each as a plain value.

alerts          one row per alert key:  ok → pending → firing → ok;  an ack is an overlay on firing
alert_channels  what each channel was told in the alert's current episode: the clocks of R1, kept apart from
                messages, so that neither a restart nor retention can make anything be said again (R13)
outbox          one live message per (alert, channel):  unsent ⇄ sending;  gone when delivered or pointless
problems        a stored fact such as "the inbox is gone", raised and cleared by who sees it
"""

from __future__ import annotations

from typing import NamedTuple

ALERTS_DDL = """
CREATE TABLE alerts (
    key TEXT PRIMARY KEY CHECK (key <> ''),
    state TEXT NOT NULL CHECK (state IN ('ok', 'pending', 'firing')),
    severity TEXT NOT NULL CHECK (severity IN ('page', 'ticket')),
    episode INTEGER NOT NULL DEFAULT 0 CHECK (episode >= 0),
    since_at REAL,
    false_at REAL,
    acked_at REAL,
    acked_until_at REAL,
    acked_by TEXT,
    acked_mark INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL CHECK (version >= 1),
    CHECK ((state = 'ok') = (since_at IS NULL)),
    CHECK (state <> 'firing' OR episode >= 1),
    CHECK (false_at IS NULL OR state = 'firing'),
    CHECK (acked_at IS NULL OR state = 'firing'),
    CHECK ((acked_at IS NULL) = (acked_until_at IS NULL) AND (acked_at IS NULL) = (acked_by IS NULL))
) WITHOUT ROWID;

CREATE TABLE alert_channels (
    alert_key TEXT NOT NULL REFERENCES alerts (key),
    channel TEXT NOT NULL,
    episode INTEGER NOT NULL CHECK (episode >= 1),
    first_at REAL NOT NULL,
    last_at REAL NOT NULL,
    escalated INTEGER NOT NULL DEFAULT 0 CHECK (escalated IN (0, 1)),
    mark INTEGER NOT NULL DEFAULT 0,
    number INTEGER NOT NULL,
    PRIMARY KEY (alert_key, channel)
) WITHOUT ROWID;

CREATE TABLE outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    alert_key TEXT NOT NULL REFERENCES alerts (key),
    channel TEXT NOT NULL,
    episode INTEGER NOT NULL CHECK (episode >= 1),
    kind TEXT NOT NULL CHECK (kind IN ('firing', 'joined', 'escalation', 'repeat', 'resolved')),
    state TEXT NOT NULL DEFAULT 'unsent' CHECK (state IN ('unsent', 'sending')),
    mark INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    failure TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL,
    next_attempt_at REAL NOT NULL,
    owner TEXT,
    claimed_at REAL,
    UNIQUE (alert_key, channel),
    CHECK ((state = 'sending') = (owner IS NOT NULL) AND (state = 'sending') = (claimed_at IS NOT NULL))
);

CREATE TABLE problems (
    key TEXT PRIMARY KEY CHECK (key <> ''),
    queue TEXT,
    kind TEXT NOT NULL CHECK (kind <> ''),
    detail TEXT NOT NULL,
    since_at REAL NOT NULL,
    seen_at REAL NOT NULL,
    count INTEGER NOT NULL DEFAULT 1 CHECK (count >= 1)
) WITHOUT ROWID;
"""

COUNTED_PROBLEMS = frozenset({"rejected"})
"""Kinds of which each raise is news; the others are one standing fact, rewritten when its words change."""


class Alert(NamedTuple):
    """One alert's row. ``since_at``: pending, since when its condition is true; firing, since when it fires.

    ``false_at``: firing, but the condition is false since then. ``acked_mark``: the newest flag there was at
    the ack. ``version`` 0: not stored yet.
    """

    key: str
    state: str = "ok"
    severity: str = "ticket"
    episode: int = 0
    since_at: float | None = None
    false_at: float | None = None
    acked_at: float | None = None
    acked_until_at: float | None = None
    acked_by: str | None = None
    acked_mark: int = 0
    version: int = 0


class Live(NamedTuple):
    """The one message a channel is still owed; ``owner`` and ``claimed_at`` are set while it is sent."""

    number: int
    alert_key: str
    channel: str
    episode: int
    kind: str
    state: str
    mark: int
    attempts: int
    failure: str
    created_at: float
    next_attempt_at: float
    owner: str | None
    claimed_at: float | None


class Line(NamedTuple):
    """What one channel was told about one alert: the first and the last notice delivered in ``episode``.

    ``mark``: the newest flag the last one spoke of. ``number``: its visible id. Episode 0: never told.
    """

    channel: str
    episode: int = 0
    first_at: float = 0.0
    last_at: float = 0.0
    escalated: bool = False
    mark: int = 0
    number: int = 0
    live: Live | None = None


class Waiting(NamedTuple):
    """A queue's waiting flags: how many, the oldest; how many are over the limit, and the newest of those."""

    queue: str
    flags: int
    oldest_at: float
    over: int
    newest_over: int
    newest_over_at: float


class Crashed(NamedTuple):
    """A node in quarantine: it crashed too often in a row and its flag waits for a person."""

    queue: str
    flag: str
    seq: int
    item_id: str
    node_id: str
    since_at: float


class Problem(NamedTuple):
    """A stored fact; ``times`` and ``seen_at`` move only for counted kinds (``COUNTED_PROBLEMS``)."""

    key: str
    queue: str | None
    kind: str
    detail: str
    since_at: float
    seen_at: float
    times: int


class Facts(NamedTuple):
    """All that conditions are computed from, in one snapshot. ``lines`` is by alert key, then channel."""

    waiting: tuple[Waiting, ...]
    crashed: tuple[Crashed, ...]
    problems: tuple[Problem, ...]
    alerts: dict[str, Alert]
    lines: dict[str, dict[str, Line]]


class Put(NamedTuple):
    """A message owed to a channel from now on; ``mark`` is the newest flag it speaks of."""

    channel: str
    kind: str
    mark: int = 0


class Change(NamedTuple):
    """One step of one alert with the messages it owes (``puts``) and those it makes pointless (``drops``).

    ``lines``: corrected clocks (only after the machine's clock was set back). ``forget``: problems that ended
    with it, each with the ``seen_at`` it was judged by.
    """

    alert: Alert
    puts: tuple[Put, ...] = ()
    drops: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    forget: tuple[tuple[str, float], ...] = ()


class Claimed(NamedTuple):
    """A message to send now, and its alert as the claim saw it."""

    message: Live
    alert: Alert


ALERT_COLUMNS = ", ".join(Alert._fields)
LIVE_COLUMNS = ", ".join(Live._fields)


def visible_id(number: int) -> str:
    """``E-1432``: the id people see in a message, and give to ``ack``."""
    return f"E-{number:04d}"
