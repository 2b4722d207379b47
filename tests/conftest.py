"""Lets tests in the folders below import the helpers that lie here."""

from __future__ import annotations

import signal

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # a shell's background job: its children would ignore Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
