"""What people do: answer flags, pause, resume, retry, abort. Each records who, when and what, in one commit.

A flag is answered once; a second answer raises AlreadyResolved with the first one's words. A parked flag comes
back at its time and "needs re-confirmation": it is never dropped and never answered by itself.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from store import answers
from store.answers import Answer
from store.claims import end_session
from store.database import Database
from store.errors import AlreadyResolved, Conflict, no_flag, no_item
from store.events import Events
from store.holds import hold_item, let_item_go, stopped_items
from store.intake import insert_root, interrupt_running

__all__ = ["Answer", "People", "Resolved", "option_of"]

# the condition of the partial index on flags, word for word: old flags cost nothing
_OPEN = "state IN ('waiting', 'parked')"


class Resolved(NamedTuple):
    """What an answer made of it; ``goes_on`` says in words what happens next.

    ``still_open``: the questions of the flag that wait on, counted from 1; empty: the flag is resolved.
    """

    flag_id: str
    item_id: str
    queue: str
    text: str
    goes_on: str
    still_open: Sequence[int] = ()


class People:
    """See the module's head."""

    def __init__(self, db: Database, events: Events) -> None:
        self._db = db
        self._events = events

    def resolve(self, flag_id: str, answer: Answer, *, now: float) -> Resolved:
        """Answer a flag, or one of its questions: when none is open any more, the item goes on.

        Raises NotFound, AlreadyResolved, Conflict (the item ended meanwhile).
        """
        with self._db.write(point="people.resolve") as conn:
            flag = _open_flag(conn, flag_id)
            still_open = answers.keep(conn, flag, answer, now)
            if still_open:
                goes_on = _waits_on(conn, flag, still_open, now)
            else:
                self._close_flag(conn, flag, answer, now)
                goes_on = self._go_on(conn, flag, answer, now)
            self._events.add(
                conn, now=now, kind="resolve", queue=flag["queue"], item_id=flag["item_id"],
                data={"flag": flag_id, "by": answer.by, "answer": answer.text, "option": answer.option,
                      "reason": answer.reason, "final": answer.final, "still_open": still_open},
            )  # fmt: skip
        return Resolved(flag_id, flag["item_id"], flag["queue"], answer.text, goes_on, still_open)

    def park_flag(self, flag_id: str, *, until_at: float, by: str, reason: str, now: float) -> Resolved:
        """Ask again at ``until_at``: until then the flag does not count as waiting; then it needs re-confirmation."""
        with self._db.write(point="people.resolve") as conn:
            flag = _open_flag(conn, flag_id)
            conn.execute(
                "UPDATE flags SET state = 'parked', parked_until_at = ?, waiting_since_at = ?, expires_at = ? "
                "WHERE id = ? AND state IN ('waiting', 'parked')",
                (until_at, until_at, until_at, flag_id),
            )
            conn.execute(
                "UPDATE items SET version = version + 1, changed_at = ? WHERE id = ?", (now, flag["item_id"])
            )
            self._events.add(
                conn, now=now, kind="resolve", queue=flag["queue"], item_id=flag["item_id"],
                data={"flag": flag_id, "by": by, "answer": "parked", "until_at": until_at, "reason": reason},
            )  # fmt: skip
        return Resolved(flag_id, flag["item_id"], flag["queue"], "parked", "you are asked again at that time")

    def wake_flags(self, *, now: float) -> int:
        """Parked flags whose time came wait for a person again; how many."""
        with self._db.read() as conn:
            due = conn.execute(
                f"SELECT 1 FROM flags WHERE {_OPEN} AND state = 'parked' AND parked_until_at <= ? LIMIT 1",
                (now,),
            ).fetchone()
        if due is None:
            return 0
        with self._db.write(point="people.resolve") as conn:
            return conn.execute(
                f"UPDATE flags SET state = 'waiting', parked_until_at = NULL WHERE {_OPEN} AND state = 'parked' "
                "AND parked_until_at <= ?",
                (now,),
            ).rowcount

    def next_flag_due_at(self) -> float | None:
        """When the next parked flag comes back."""
        with self._db.read() as conn:
            at: float | None = conn.execute(
                f"SELECT min(parked_until_at) FROM flags WHERE {_OPEN} AND state = 'parked'"
            ).fetchone()[0]
        return at

    def pause(self, item_id: str, *, by: str, now: float) -> bool:
        """Hold an item: nothing of it is claimed until ``resume``. False when it was paused already."""
        with self._db.write(point="people.pause") as conn:
            _open_item(conn, item_id)
            changed = hold_item(conn, item_id, now=now)
            if changed:
                self._events.add(conn, now=now, kind="pause", item_id=item_id, data={"by": by})
        return changed

    def resume(self, item_id: str, *, by: str, now: float) -> bool:
        """Let a paused item go on. False when it was not paused."""
        with self._db.write(point="people.pause") as conn:
            _open_item(conn, item_id)
            changed = let_item_go(conn, item_id, now=now)
            if changed:
                self._events.add(conn, now=now, kind="resume", item_id=item_id, data={"by": by})
        return changed

    def pause_queue(self, queue: str, *, by: str, now: float) -> bool:
        """Hold a whole queue. False when it was paused already."""
        with self._db.write(point="people.pause") as conn:
            changed = conn.execute(
                "INSERT OR IGNORE INTO paused_queues (queue, by, at) VALUES (?, ?, ?)", (queue, by, now)
            ).rowcount == 1  # fmt: skip
            if changed:
                self._events.add(conn, now=now, kind="pause", queue=queue, data={"by": by})
        return changed

    def resume_queue(self, queue: str, *, by: str, now: float) -> bool:
        """Let a paused queue go on, and those of its items that ``stop`` left paused. False when nothing was."""
        with self._db.write(point="people.pause") as conn:
            changed = conn.execute("DELETE FROM paused_queues WHERE queue = ?", (queue,)).rowcount == 1
            if changed:
                self._events.add(conn, now=now, kind="resume", queue=queue, data={"by": by})
            stopped = stopped_items(conn, queue)
            for item in stopped:
                let_item_go(conn, item, now=now)
                self._events.add(conn, now=now, kind="resume", item_id=item, data={"by": by})
        return changed or bool(stopped)

    def stop_sessions(self, item_ids: list[str], *, by: str, now: float) -> list[str]:
        """End the claims of these items' running sessions and leave the items paused; the ids that were running."""
        with self._db.write(point="people.pause") as conn:
            stopped = []
            for item in item_ids:
                if interrupt_running(conn, item, why=f"stopped by {by}", now=now):
                    stopped.append(item)
                    hold_item(conn, item, now=now)
                    self._events.add(
                        conn, now=now, kind="pause", item_id=item, data={"by": by, "stopped": True}
                    )
        return stopped

    def retry(self, item_id: str, *, by: str, now: float) -> str:
        """Try again now; in words what was done.

        A waiting time ends, a crash or failure flag is answered "try again", a done or aborted item begins a new
        generation. Raises NotFound, Conflict (running, or a question of its own waits for a person).
        """
        with self._db.write(point="people.retry") as conn:
            item = _item_row(conn, item_id)
            did = (
                self._reopen(conn, item, now)
                if item["state"] != "open"
                else self._retry_open(conn, item, by, now)
            )
            self._events.add(
                conn, now=now, kind="retry", queue=item["queue"], item_id=item_id, data={"by": by, "did": did}
            )
        return did

    def abort(self, item_id: str, *, by: str, reason: str, now: float) -> bool:
        """End an item without a result; its flags are withdrawn. False when it was aborted already."""
        with self._db.write(point="people.abort") as conn:
            item = _item_row(conn, item_id)
            if item["state"] == "aborted":
                return False
            if item["state"] == "done":
                raise Conflict(f"{item_id} is done; a finished item cannot be aborted")
            abort_item(conn, item, now=now)
            self._events.add(
                conn,
                now=now,
                kind="abort",
                queue=item["queue"],
                item_id=item_id,
                data={"by": by, "reason": reason},
            )
        return True

    def _close_flag(self, conn: sqlite3.Connection, flag: sqlite3.Row, answer: Answer, now: float) -> None:
        said = json.dumps(answers.whole(conn, flag, answer), ensure_ascii=False)
        conn.execute(
            "UPDATE flags SET state = 'resolved', parked_until_at = NULL, resolved_at = ?, resolved_by = ?, answer = ? "
            "WHERE id = ? AND state IN ('waiting', 'parked')",
            (now, answer.by, said, flag["id"]),
        )
        conn.execute(
            "UPDATE nodes SET state = 'succeeded', version = version + 1, result = ?, changed_at = ? "
            "WHERE id = ? AND state = 'pending'",
            (said, now, flag["node_id"]),
        )
        unwant_paper(conn, flag["item_id"], flag["id"])

    def _go_on(self, conn: sqlite3.Connection, flag: sqlite3.Row, answer: Answer, now: float) -> str:
        if answer.does == "abort":
            abort_item(conn, _item_row(conn, flag["item_id"]), now=now)
            return "the item is aborted"
        if answer.final:
            _finish_by_person(conn, flag, answer, now)
            return "the item is done with this answer"
        reset = ", decisions = 0" if flag["cause"] == "max_decisions" else ""
        conn.execute(
            f"UPDATE items SET version = version + 1, changed_at = ?{reset} WHERE id = ?",
            (now, flag["item_id"]),
        )
        conn.execute(
            "UPDATE nodes SET state = 'pending', waits_for = NULL, version = version + 1, crashes = 0, failures = 0, "
            "not_before_at = (SELECT i.not_before_at FROM items i WHERE i.id = nodes.item_id AND i.not_before_at > ?), "
            "held = (SELECT paused FROM items WHERE items.id = nodes.item_id), why = ?, changed_at = ? "
            "WHERE id = ? AND state = 'blocked' AND waits_for = ?",
            (now, f"{flag['id']} was answered", now, flag["about_node_id"], flag["node_id"]),
        )
        return "the item goes on at the next session"

    def _retry_open(self, conn: sqlite3.Connection, item: sqlite3.Row, by: str, now: float) -> str:
        if conn.execute("SELECT 1 FROM leases WHERE item_id = ?", (item["id"],)).fetchone():
            raise Conflict(f"{item['id']} is running now; nothing to retry")
        flag = conn.execute(
            "SELECT * FROM flags WHERE item_id = ? AND state IN ('waiting', 'parked') ORDER BY seq LIMIT 1",
            (item["id"],),
        ).fetchone()
        if flag is not None and flag["cause"] == "decision":
            raise Conflict(
                f"{item['id']} waits for an answer; give it:  shiftwork resolve {flag['id']} --answer TEXT"
            )
        if flag is not None:
            again = Answer(by=by, text="try again", option=1, does="retry")
            self._close_flag(conn, flag, again, now)
            self._go_on(conn, flag, again, now)
            return f"{flag['id']} is answered with try again"
        done = conn.execute(
            "UPDATE nodes SET state = 'pending', not_before_at = NULL, parked = 0, park_expires_at = NULL, "
            "crashes = 0, failures = 0, version = version + 1, changed_at = ?, why = 'retry' "
            "WHERE item_id = ? AND kind <> 'human' AND state IN ('pending', 'failed')",
            (now, item["id"]),
        ).rowcount
        conn.execute("UPDATE items SET version = version + 1, changed_at = ? WHERE id = ?", (now, item["id"]))
        return "it is ready now" if done else "there was nothing to retry"

    def _reopen(self, conn: sqlite3.Connection, item: sqlite3.Row, now: float) -> str:
        generation = item["generation"] + 1
        conn.execute(
            "UPDATE nodes SET state = 'void', version = version + 1, changed_at = ? WHERE item_id = ? "
            "AND state = 'succeeded'",
            (now, item["id"]),
        )
        conn.execute(
            "UPDATE items SET state = 'open', generation = ?, version = version + 1, result = NULL, stale = NULL, "
            "unverified = 0, decisions = 0, paused = 0, finished_at = NULL, changed_at = ? WHERE id = ?",
            (generation, now, item["id"]),
        )
        insert_root(
            conn, item=item["id"], queue=item["queue"], key=item["key"], generation=generation,
            not_before_at=None, now=now,
        )  # fmt: skip
        return f"it begins generation {generation}"


def abort_item(conn: sqlite3.Connection, item: sqlite3.Row, *, now: float) -> None:
    """End an open item without a result, inside a transaction."""
    for row in conn.execute(
        "DELETE FROM leases WHERE item_id = ? RETURNING session_id", (item["id"],)
    ).fetchall():
        end_session(conn, row["session_id"], outcome="conflict", cause="aborted", now=now)
    conn.execute(
        "UPDATE nodes SET state = 'abandoned', waits_for = NULL, version = version + 1, changed_at = ? "
        "WHERE item_id = ? AND state NOT IN ('succeeded', 'abandoned')",
        (now, item["id"]),
    )
    for row in conn.execute(
        "UPDATE flags SET state = 'withdrawn', parked_until_at = NULL WHERE item_id = ? "
        "AND state IN ('waiting', 'parked') RETURNING id",
        (item["id"],),
    ).fetchall():
        unwant_paper(conn, item["id"], row["id"])
    conn.execute(
        "UPDATE items SET state = 'aborted', version = version + 1, finished_at = ?, changed_at = ? "
        "WHERE id = ? AND state = 'open'",
        (now, now, item["id"]),
    )


def unwant_paper(conn: sqlite3.Connection, item_id: str, about: str) -> None:
    """A waiting paper is no longer true. One that is still due may have been written, and a crash ate its mark."""
    conn.execute(
        "UPDATE papers SET state = 'unwanted' "
        "WHERE item_id = ? AND kind = 'waiting' AND about = ? AND state IN ('due', 'written')",
        (item_id, about),
    )


def _waits_on(conn: sqlite3.Connection, flag: sqlite3.Row, still_open: Sequence[int], now: float) -> str:
    conn.execute(
        "UPDATE items SET version = version + 1, changed_at = ? WHERE id = ?", (now, flag["item_id"])
    )
    numbers = " and ".join(", ".join(map(str, still_open)).rsplit(", ", 1))
    return f"question{'s' if len(still_open) > 1 else ''} {numbers} of it still wait{'s' * (len(still_open) == 1)}"


def _finish_by_person(conn: sqlite3.Connection, flag: sqlite3.Row, answer: Answer, now: float) -> None:
    result = json.dumps({"text": answer.text, "citations": [flag["id"]], "by": answer.by}, ensure_ascii=False)
    conn.execute(
        "UPDATE nodes SET state = 'succeeded', waits_for = NULL, version = version + 1, result = ?, crashes = 0, "
        "failures = 0, changed_at = ? WHERE id = ? AND state = 'blocked'",
        (result, now, flag["about_node_id"]),
    )
    done = conn.execute(
        "UPDATE items SET state = 'done', version = version + 1, result = ?, unverified = 0, "
        "finished_at = ?, changed_at = ? WHERE id = ? AND state = 'open'",
        (result, now, now, flag["item_id"]),
    ).rowcount
    if done != 1:
        raise Conflict(f"{flag['item_id']} is not open any more")
    conn.execute(
        "INSERT INTO decisions (node_id, item_id, session_id, reuse_key, kind, decided_by, body, at) "
        "VALUES (?, ?, NULL, ?, 'answer', 'person', ?, ?)",
        (flag["about_node_id"], flag["item_id"], flag["id"], result, now),
    )
    conn.execute(
        "INSERT OR IGNORE INTO papers (item_id, kind, about, at) "
        "SELECT id, 'answer', 'g' || generation, ? FROM items WHERE id = ?",
        (now, flag["item_id"]),
    )


def _item_row(conn: sqlite3.Connection, item_id: str) -> sqlite3.Row:
    row: sqlite3.Row | None = conn.execute("SELECT * FROM items WHERE id = ?", (item_id,)).fetchone()
    if row is None:
        raise no_item(item_id)
    return row


def _open_item(conn: sqlite3.Connection, item_id: str) -> sqlite3.Row:
    row = _item_row(conn, item_id)
    if row["state"] != "open":
        raise Conflict(f"{item_id} is {row['state']} already")
    return row


def _flag_row(conn: sqlite3.Connection, flag_id: str) -> sqlite3.Row:
    row: sqlite3.Row | None = conn.execute("SELECT * FROM flags WHERE id = ?", (flag_id,)).fetchone()
    if row is None:
        raise no_flag(flag_id)
    return row


def _open_flag(conn: sqlite3.Connection, flag_id: str) -> sqlite3.Row:
    row = _flag_row(conn, flag_id)
    if row["state"] == "resolved":
        raise AlreadyResolved(
            f"{flag_id} was already resolved by {row['resolved_by']}",
        )  # the caller words time and answer from ``flag``
    if row["state"] == "withdrawn":
        raise Conflict(f"{flag_id} was withdrawn: its item {row['item_id']} ended")
    return row


def option_of(flag: Mapping[str, Any], number: int, question: int = 1) -> Mapping[str, Any] | None:
    """Option ``number`` (from 1) of a flag's question, or None."""
    questions = flag["questions"]
    options = questions[question - 1].get("options", []) if 0 < question <= len(questions) else []
    return options[number - 1] if 0 < number <= len(options) else None
