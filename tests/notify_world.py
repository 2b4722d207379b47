"""A store with flags to wait on and channels that can be down: what the notify tests share."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import NamedTuple

from notify.messages import Message
from notify.pager import Pager
from notify.policy import Channel, Policy
from notify.sender import Outcome
from store.alerts import Alerts
from store.database import Database
from store.events import Events
from store.opening import prepare

MINUTE = 60.0
PAGER = "/etc/shiftwork/pager"
DESK = "/etc/shiftwork/desk"


class Store(NamedTuple):
    alerts: Alerts
    db: Database


class Sent(NamedTuple):
    minute: float
    channel: str
    message: Message


class World:
    """One state folder, one scripted outside. ``start`` is minute 0."""

    def __init__(self, state_dir: Path, policy: Policy | None = None) -> None:
        self.state_dir = state_dir
        self.policy = policy or Policy((Channel(PAGER, ("page",)),))
        self.start = time.time()
        self.sent: list[Sent] = []
        self.tries = 0
        self.down = lambda minute: False
        state_dir.mkdir(parents=True, exist_ok=True)
        prepare(state_dir)
        self.open()

    def open(self) -> None:
        """As a new process would: nothing is remembered but the store."""
        db = Database(self.state_dir)
        self.store = Store(Alerts(db, Events(db)), db)
        self.pager = Pager(self.store, self.policy, clock=time.time, deliver=self.deliver)

    def minute(self) -> float:
        return round((time.time() - self.start) / MINUTE, 3)

    def deliver(self, channel: str, message: Message) -> Outcome:
        self.tries += 1
        if self.down(self.minute()):
            return Outcome(delivered=False, words="the service refused it or could not be reached")
        self.sent.append(Sent(self.minute(), channel, message))
        return Outcome(delivered=True, words="delivered")

    def ask(self, queue: str = "questions", *, cause: str = "decision", at: float | None = None) -> str:
        """A flag that waits from now on; its id."""
        at = time.time() if at is None else at
        with self.store.db.write(point="people.resolve") as conn:
            seq = conn.execute("SELECT ifnull(max(seq), 0) + 1 FROM flags").fetchone()[0]
            conn.execute(
                "INSERT INTO flags (seq, id, item_id, node_id, about_node_id, queue, kind, cause, stuck, questions, "
                "asked_at, waiting_since_at) VALUES (?, ?, ?, ?, ?, ?, 'exception', ?, 'secret words', '[]', ?, ?)",
                (seq, f"f-{seq:04d}", f"q-{seq:04d}", f"h-{seq}", f"n-{seq}", queue, cause, at, at),
            )
        return f"f-{seq:04d}"

    def answer(self, flag: str) -> None:
        with self.store.db.write(point="people.resolve") as conn:
            conn.execute(
                "UPDATE flags SET state = 'resolved', resolved_at = ?, resolved_by = 'anna', answer = '{}' "
                "WHERE id = ?",
                (time.time(), flag),
            )

    def ack(self, alert: str = "flag_age:questions", **words) -> None:
        self.store.alerts.ack(alert, by="anna", now=time.time(), **words)

    def rows(self, table: str) -> list[sqlite3.Row]:
        with self.store.db.read() as conn:
            return conn.execute(f"SELECT * FROM {table}").fetchall()

    def minutes(self, channel: str | None = None) -> list[float]:
        return [one.minute for one in self.sent if channel in {None, one.channel}]

    def run(self, frozen, minutes: int = 24 * 60, *, at=None, alive=lambda minute: True) -> None:
        """Evaluate once a minute; ``at`` maps minutes to what happens just before that minute's evaluation."""
        events = at or {}
        was_alive = True
        for minute in range(minutes):
            if minute in events:
                events[minute]()
            if alive(minute):
                if not was_alive:
                    self.open()
                self.pager.turn()
            was_alive = alive(minute)
            frozen.tick(MINUTE)
