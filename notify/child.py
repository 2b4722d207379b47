"""The program that sends: ``python -m notify.child``, one JSON object in, one JSON object out, then it is gone.

    in    {"url_file": PATH, "parent": PID, "title", "body", "type", "timeout_s"}; no "body": only see if it loads
    out   {"result": "delivered" | "failed" | "timeout" | "no_service", "words": a fixed sentence}

Only this file imports Apprise, and only in a process of its own: importing costs 20–35 MB, and a service that hangs
leaves a thread behind that only the end of a process ends. The URL is read here, from its file, and goes nowhere else:
not into the answer, not into a log. What Apprise itself says may hold secrets: only its result classes are passed on.

What its SUCCESS does not mean, and what is done about it: redirects are followed to anywhere (turned off, in the URL
too), ``optional=yes`` turns a failure into success (each attempt is read), a missing service is no failure (counted).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from notify.urls import read_url

DELIVERED, FAILED, TIMEOUT, NO_SERVICE = "delivered", "failed", "timeout", "no_service"

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Read one request, send it, answer, and end without waiting for threads that hang."""
    # when whoever waits for the answer dies, this process must not go on and deliver what will be sent again
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    request = json.load(sys.stdin)
    if os.getppid() != request["parent"]:  # it died before that call
        return 1
    out = os.dup(1)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # a plug-in that prints must not spoil the answer, nor tell a secret
        os.dup2(nowhere.fileno(), 2)
    try:
        result, words = send(request)
    except Exception:  # noqa: BLE001 – its text may hold the URL; a failure is a failure
        result, words = FAILED, "Apprise could not use this URL"
    os.write(out, json.dumps({"result": result, "words": words}).encode())
    os._exit(0)  # a plain return would wait for the thread of a service that hangs (15 s measured)


def send(request: dict[str, Any]) -> tuple[str, str]:
    """Send one message to the URL in the request's file; the result and a sentence without secrets."""
    try:
        url = read_url(Path(request["url_file"]))
    except (OSError, ValueError) as error:
        return NO_SERVICE, f"the URL file cannot be used: {_reason(error)}"
    import logging

    import apprise

    logging.disable(logging.CRITICAL)  # Apprise's own log lines repeat URLs
    asset = apprise.AppriseAsset(secure_logging=True)
    asset.http_redirects = False
    service = apprise.Apprise.instantiate(url, asset=asset)
    if service is None:
        return NO_SERVICE, "the URL in the file is none that Apprise knows"
    service.redirects = False  # redirect=yes in the URL would turn them on again
    if "body" not in request:
        return DELIVERED, "the service loads"
    result = _notify(apprise, service, request)
    return _read(apprise, result)


def _notify(apprise: Any, service: Any, request: dict[str, Any]) -> Any:
    sender = apprise.Apprise()
    sender.add(service)
    return sender.notify(
        body=request["body"],
        title=request["title"],
        notify_type=request["type"],
        body_format=apprise.NotifyFormat.TEXT,
        timeout=request["timeout_s"],
    )


def _read(apprise: Any, result: Any) -> tuple[str, str]:
    """The result classes, read: only a success of every service's last attempt is one."""
    status = apprise.AppriseResultStatus
    last = [one.attempts[-1].status if one.attempts else status.FAILURE for one in result]
    if result.status == status.NOMATCH or not last:
        return NO_SERVICE, "the URL in the file names no service"
    if result.status == status.SUCCESS and all(one == status.SUCCESS for one in last):
        return DELIVERED, "delivered"
    if result.status == status.TIMEOUT or status.TIMEOUT in last:
        return TIMEOUT, "the service did not answer in time"
    if result.status == status.PARTIAL:
        return FAILED, "only some of the URL's targets took it"
    return FAILED, "the service refused it or could not be reached"


def _reason(error: Exception) -> str:
    return error.strerror or "it cannot be read" if isinstance(error, OSError) else str(error)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
