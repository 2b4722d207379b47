"""Sending what the outbox owes: claim, hand to a child, record.

    claimed (committed) → child runs in its own process group → recorded (committed)

A kill in between leaves the message claimed by an owner that is gone; it is sent again under the same id (R12).
The child has a deadline: when it is over, its whole process group is killed before anything else is tried, so no
late thread delivers what a retry delivers too. Tries that failed wait 1, 2, 4, 8, 15, 30, 30 … min, stored (R9).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from notify.conditions import causes
from notify.evaluate import HasAlerts
from notify.messages import Message, render
from notify.policy import Policy
from store.alert_rows import Live
from store.points import outside

SERVICE_TIMEOUT_S = 20.0
DEADLINE_S = 30.0
ROUND_S = 30.0
BACKOFF_S = (60.0, 120.0, 240.0, 480.0, 900.0, 1800.0)

PASSED_ON = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "PYTHONPATH",
)


class Outcome(NamedTuple):
    """What became of one try. ``words`` never holds a URL."""

    delivered: bool
    words: str


Deliver = Callable[[str, Message], Outcome]
"""Gives one message to the channel of this name (the path of its URL file)."""


def send_due(
    store: HasAlerts, policy: Policy, *, owner: str, clock: Callable[[], float], deliver: Deliver
) -> int:
    """Send what is due now, one message after the other; how many were delivered.

    One at a time, so that a kill can double at most one message. A channel that failed is not asked again in this
    round, and a round that took ``ROUND_S`` ends: alerts must be evaluated in between. Blocks at most about a minute.
    """
    began = clock()
    known = {channel.name for channel in policy.channels}
    due = [live for live in store.alerts.outbox.due(owner=owner, now=began) if live.channel in known]
    if not due:  # what has no channel any more is dropped by the next evaluation
        return 0
    found = causes(store.alerts.facts(now=began, flag_age_s=policy.flag_age_s), policy, now=began)
    delivered, failed = 0, set[str]()
    for live in sorted(due, key=lambda one: (one.attempts > 0, one.number)):
        if live.channel in failed:
            continue
        if clock() - began > ROUND_S:
            break
        cause = found.get(live.alert_key)
        mark = cause.condition.newest if cause else 0
        claimed = store.alerts.outbox.claim(live.number, owner=owner, mark=mark, now=clock())
        if claimed is None:
            continue
        message = render(claimed.alert, claimed.message, cause, now=clock())
        with outside("notify.send"):
            outcome = deliver(live.channel, message)
        if _record(store, policy, claimed.message, outcome, owner=owner, now=clock()):
            delivered += 1
        else:
            failed.add(live.channel)
    return delivered


def _record(
    store: HasAlerts, policy: Policy, message: Live, outcome: Outcome, *, owner: str, now: float
) -> bool:
    if outcome.delivered:
        return store.alerts.outbox.record_delivered(message, owner=owner, now=now)
    too_old = message.kind == "resolved" and now - message.created_at > policy.resolved_for_s
    retry_at = None if too_old else now + backoff_s(message.attempts)
    store.alerts.outbox.record_failed(message, owner=owner, failure=outcome.words, now=now, retry_at=retry_at)
    return False


def backoff_s(attempts: int) -> float:
    """Seconds until the next try after ``attempts`` earlier ones and one more failed (R9)."""
    return BACKOFF_S[min(attempts, len(BACKOFF_S) - 1)]


def by_child(
    url_file: str, message: Message, *, timeout_s: float = SERVICE_TIMEOUT_S, deadline_s: float = DEADLINE_S
) -> Outcome:
    """Send one message by a child process. Never raises for a child's or a service's failure."""
    request = {"url_file": url_file, "title": message.title, "body": message.body, "type": message.type}
    return run_child({**request, "timeout_s": timeout_s}, deadline_s=deadline_s)


def loads(url_file: str) -> Outcome:
    """Whether a channel's file holds one URL that Apprise knows; nothing is sent."""
    return run_child({"url_file": url_file}, deadline_s=DEADLINE_S)


def run_child(request: dict[str, object], *, deadline_s: float) -> Outcome:
    """Run ``notify.child`` once; after ``deadline_s`` its process group is killed."""
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "notify.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parent.parent,
            env={name: os.environ[name] for name in PASSED_ON if name in os.environ},
            start_new_session=True,
        )
    except OSError as error:
        return Outcome(delivered=False, words=f"the sending process did not start: {error.strerror}")
    try:
        answer, _ = child.communicate(
            json.dumps({**request, "parent": os.getpid()}).encode(), timeout=deadline_s
        )
    except subprocess.TimeoutExpired:
        return Outcome(delivered=False, words="the service did not answer in time")
    finally:
        _end(child)
    return _outcome(answer, child.returncode)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the group of a child that did not end by itself, and collect it."""
    if child.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def _outcome(answer: bytes, code: int | None) -> Outcome:
    try:
        told = json.loads(answer)
        return Outcome(delivered=told["result"] == "delivered", words=str(told["words"]))
    except (ValueError, KeyError, TypeError):
        return Outcome(delivered=False, words=f"the sending process ended without an answer (exit {code})")
