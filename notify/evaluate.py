"""One step of the alert loop: read the facts, move every alert on, commit what changed.

Call it when something changed (a session ended, a flag was asked or answered, a problem was raised) and when the time
it returned has come. Nothing waiting, nothing firing, nothing owed: a few reads, no write, and no next time.
"""

from __future__ import annotations

from typing import Protocol

from notify.conditions import causes, quiet_problems, tells_resolved
from notify.machine import step
from notify.policy import Policy
from store.alert_rows import Alert, Change, Facts
from store.contract import AlertsPart
from store.outbox import LONGEST_RETRY_S

LONGEST_WAIT_S = 60.0


class HasAlerts(Protocol):
    """The part of the store that alerts live in."""

    @property
    def alerts(self) -> AlertsPart:
        """Alerts, their outbox, and problems."""


def evaluate(store: HasAlerts, policy: Policy, *, owner: str, now: float) -> float | None:
    """Move every alert on; when to evaluate or send next: never later than 60 s while anything is up, else None.

    ``owner`` is the living sender's token; messages that other tokens hold were left behind by a dead one.
    """
    facts = store.alerts.facts(now=now, flag_age_s=policy.flag_age_s)
    changes, due_at = _changes(facts, policy, owner=owner, now=now)
    if changes:
        written = store.alerts.apply(changes, now=now)
        if len(written) < len(changes):
            due_at = now  # somebody acked or delivered between our read and our write: look again
    times = [at for at in (due_at, _next_send_at(facts, owner, now)) if at is not None]
    if not times and not _anything_up(facts):
        return None
    return min([*times, now + LONGEST_WAIT_S])


def _changes(facts: Facts, policy: Policy, *, owner: str, now: float) -> tuple[list[Change], float | None]:
    found = causes(facts, policy, now=now)
    changes: list[Change] = []
    due: list[float] = []
    for key in sorted({*found, *facts.alerts}):
        cause = found.get(key)
        moved = step(
            facts.alerts.get(key, Alert(key)),
            cause.condition if cause else None,
            facts.lines.get(key, {}),
            policy,
            owner=owner,
            tell_resolved=tells_resolved(key),
            now=now,
        )
        if moved.due_at is not None:
            due.append(moved.due_at)
        if moved.change is not None:
            over = moved.change.alert.state == "ok"
            forget = quiet_problems(facts, key, policy, now=now) if over else ()
            changes.append(moved.change._replace(forget=forget))
    return changes, min(due, default=None)


def _next_send_at(facts: Facts, owner: str, now: float) -> float | None:
    """When the next message already owed may be tried; what is being sent right now is not asked about."""
    live = [line.live for lines in facts.lines.values() for line in lines.values() if line.live is not None]
    left_behind = any(one.state == "sending" and one.owner != owner for one in live)
    tries = [one.next_attempt_at for one in live if one.state == "unsent"]
    set_back = any(
        at > now + LONGEST_RETRY_S for at in tries
    )  # no backoff is that long: the clock was set back
    return now if left_behind or set_back else min(tries, default=None)


def _anything_up(facts: Facts) -> bool:
    return bool(facts.waiting) or any(alert.state != "ok" for alert in facts.alerts.values())
