"""The pager: what the daemon's loop holds of this room. One object, one blocking call, in a thread of its own.

    pager = Pager(store, policy, clock=time.time)
    due_at = pager.turn()        after every wake, and when ``due_at`` has come; None: only after a wake

``turn`` moves the alerts on and sends what is owed. Run it in a thread: a service that hangs holds it up to 30 s.
Never run two at once. On SIGTERM let a running turn end and start no other: then nothing is sent twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from notify.evaluate import HasAlerts, evaluate
from notify.policy import Policy
from notify.sender import Deliver, by_child, send_due


class Pager:
    """See the module's head. ``policy`` may be replaced at any time (a reload); the next turn uses the new one."""

    def __init__(
        self, store: HasAlerts, policy: Policy, *, clock: Callable[[], float], deliver: Deliver = by_child
    ) -> None:
        self.policy = policy
        self._store = store
        self._clock = clock
        self._deliver = deliver
        self._owner = uuid.uuid4().hex

    def turn(self) -> float | None:
        """Evaluate, send, evaluate what that changed; when to call again, UTC epoch seconds, or None.

        Raises StoreBusy, StoreRefused or sqlite3 errors as the store does; call again a little later.
        """
        policy = self.policy
        try:
            due_at = evaluate(self._store, policy, owner=self._owner, now=self._clock())
            if due_at is not None and due_at <= self._clock():
                send_due(self._store, policy, owner=self._owner, clock=self._clock, deliver=self._deliver)
                due_at = evaluate(self._store, policy, owner=self._owner, now=self._clock())
        except BaseException:
            self._owner = uuid.uuid4().hex  # what was claimed and not recorded is now left behind: sent again
            raise
        return due_at
