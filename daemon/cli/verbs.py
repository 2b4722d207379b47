"""The verbs that exist, in the order that the first screen shows them.

A verb is one line here: its words, the module in this package that has it, and what it is for. For the verb
``notify test`` the module has ``notify_test_arguments(parser)`` and ``notify_test(args) -> int``; a module with
a single verb may name them ``add_arguments`` and ``run``. It is imported only when its verb is called.
"""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """One verb of the command line."""

    module: str
    purpose: str


VERBS: dict[str, Verb] = {
    "init": Verb("init", "write a quickstart that answers questions about Shiftwork"),
    "check-config": Verb("check_config", "say all that is wrong with the configuration"),
    "run": Verb("running", "run the daemon; with --once or --drain what is ready now"),
    "stop": Verb("running", "stop the daemon, or running sessions (their items pause)"),
    "add": Verb("intake", "hand in a question or a piece of work"),
    "inbox explain": Verb("intake", "say what happens to a dropped file, and why"),
    "sign": Verb("signing", "print what a sender would sign, to try a webhook with curl"),
    "list": Verb("listing", "items of every state, newest first"),
    "show": Verb("showing", "one item or one flag, whole"),
    "status": Verb("status", "is it running, what waits, what fires"),
    "why": Verb("telling", "what an item waits for, and what ends the wait"),
    "log": Verb("telling", "what was decided, by whom and why"),
    "flags": Verb("flags", "what waits for a person, oldest first"),
    "resolve": Verb("resolve", "answer a flag"),
    "pause": Verb("holding", "hold an item or a queue"),
    "resume": Verb("holding", "let a paused item or queue go on"),
    "retry": Verb("holding", "try an item again now"),
    "abort": Verb("abort", "end an item without a result"),
    "context": Verb("memory", "print what the next session of an item would see"),
    "memory search": Verb("memory", "look something up in what is remembered"),
    "alerts": Verb("alerts", "what fires, whom it told, and how to end it"),
    "ack": Verb("alerts", "quiet an alert until it clears"),
    "notify test": Verb("alerts", "send every service a test message"),
    "doctor": Verb("doctor", "what is or may become wrong here"),
    "calibrate": Verb("calibrating", "how often a queue's quotations would be right"),
    "backup": Verb("copying", "copy the store, whole and checked"),
    "debug crash-points": Verb("debug", "the places where tests can make it die"),
    "version": Verb("version", "say which version this is"),
}
