"""``shiftwork resolve``: a person's answer to a flag, recorded once with who, when and what."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from daemon.cli import flag_screen, reach, screen, shapes, times
from store.errors import AlreadyResolved, UsageProblem
from store.text import shown

if TYPE_CHECKING:
    from store.people import Answer, Resolved
    from store.sqlite import SqliteStore

_VERDICTS = {"approve": "approved", "reject": "rejected"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """FLAG and the forms of an answer."""
    parser.add_argument("flag", metavar="FLAG", type=reach.utf8, help="such as f-0001; see  shiftwork flags")
    parser.add_argument("--answer", metavar="TEXT", type=reach.some, help="an answer in your words")
    parser.add_argument("--final", action="store_true", help="with --answer: the item is done with this text")
    parser.add_argument("--option", metavar="N", type=reach.number, help="one of the options, counted from 1")
    parser.add_argument("--approve", action="store_true", help="yes, to a flag of kind confirm")
    parser.add_argument("--reject", action="store_true", help="no, to a flag of kind confirm")
    parser.add_argument(
        "--park",
        metavar="UNTIL",
        type=reach.some,
        help="ask again then: 2h, tomorrow 09:00, 2026-12-01 09:00",
    )
    parser.add_argument(
        "--question", metavar="N", type=reach.number, help="which question, where a flag asks several"
    )
    parser.add_argument(
        "--reason",
        metavar="TEXT",
        type=reach.utf8,
        default="",
        help="why, for the record and the next session",
    )
    reach.by_argument(parser)
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    """Answer it. Exit 2 for a form that does not fit, 3 for no such flag, 5 when it was answered before."""
    form = reach.exactly_one(
        answer=args.answer, option=args.option, approve=args.approve, reject=args.reject, park=args.park
    )
    if args.final and form != "answer":
        raise UsageProblem("--final goes with --answer: the item is then done with that text")
    now = time.time()
    until_at = _until(args.park, now) if form == "park" else 0.0
    with reach.writing(args) as (places, store):
        flag = store.views.flag(args.flag, now=now)
        if flag["state"] == "resolved":
            reach.settle(places, store, flag["item"], now)  # whoever answered may have died before its files
            raise AlreadyResolved(flag_screen.already(flag, now))
        by = reach.person(args.by)
        answer = None if form == "park" else _answer(args, form, flag, by)
        done = _record(store, args, flag, answer, until_at=until_at, by=by, now=now)
        reach.settle(places, store, done.item_id, now)
        _tell(args, done, flag, answer, until_at=until_at, by=by, now=now)
        if answer is not None and not answer.final and answer.does != "abort" and not done.still_open:
            reach.no_daemon_hint(places)
    return 0


def _until(text: str, now: float) -> float:
    from daemon.cli.when import parse_until

    try:
        return parse_until(text, now=now)
    except ValueError as error:
        raise UsageProblem(f'--park "{shown(text, 60)}" {error}') from None


def _answer(args: argparse.Namespace, form: str, flag: dict[str, Any], by: str) -> Answer:
    from store.people import Answer, option_of

    left = flag_screen.still_open(flag)
    several = len(left) > 1
    whole = form == "answer" and (several or not flag["questions"])
    number = args.question or (0 if whole else left[0])
    if several and form != "answer" and args.question is None:
        raise _misfit(flag, f"{flag['id']} asks {len(left)} questions; say which with --question N")
    if number > max(len(flag["questions"]), 1):
        raise _misfit(flag, f"{flag['id']} has no question {number}")
    reason = args.reason.strip()
    if form == "answer":
        return Answer(by=by, text=args.answer, question=number, reason=reason, final=args.final)
    question = flag["questions"][number - 1] if flag["questions"] else {}
    if form == "option":
        option = option_of(flag, args.option, number)
        if option is None:
            count = len(question.get("options", []))
            raise _misfit(
                flag,
                f"{flag['id']} has {screen.count(count, 'option') if count else 'no options'}, not {args.option}",
            )
        return Answer(
            by=by,
            text=option["label"],
            question=number,
            option=args.option,
            does=option.get("does", ""),
            reason=reason,
        )
    if question.get("kind", flag["kind"]) != "confirm":
        raise _misfit(
            flag,
            f"--approve and --reject answer a flag of kind confirm; {flag['id']} is of kind {flag['kind']}",
        )
    return Answer(by=by, text=_VERDICTS[form], question=number, reason=reason, verdict=form)


def _misfit(flag: dict[str, Any], what: str) -> UsageProblem:
    """Exit 2 with the forms that fit."""
    fits = "\n".join(f"  {screen.command('resolve', flag['id'], words)}" for words in flag_screen.forms(flag))
    return UsageProblem(f"{what}. These fit:\n{fits}")


def _record(
    store: SqliteStore,
    args: argparse.Namespace,
    flag: dict[str, Any],
    answer: Answer | None,
    *,
    until_at: float,
    by: str,
    now: float,
) -> Resolved:
    try:
        if answer is None:
            return store.people.park_flag(
                flag["id"], until_at=until_at, by=by, reason=args.reason.strip(), now=now
            )
        return store.people.resolve(flag["id"], answer, now=now)
    except AlreadyResolved as error:  # this question; or somebody was quicker, between our look and our write
        fresh = store.views.flag(flag["id"], now=now)
        if fresh["state"] != "resolved":
            raise AlreadyResolved(f"{error} as {_said_before(fresh, answer)}") from None
        raise AlreadyResolved(flag_screen.already(fresh, now)) from None


def _said_before(flag: dict[str, Any], answer: Answer | None) -> str:
    number = answer.question if answer is not None else 0
    before: dict[str, Any] = next((one for one in flag["answered"] if one["question"] == number), {})
    return f'"{flag_screen.answer_text({"answer": before})}"'


def _tell(
    args: argparse.Namespace,
    done: Resolved,
    flag: dict[str, Any],
    answer: Answer | None,
    *,
    until_at: float,
    by: str,
    now: float,
) -> None:
    if args.json:
        shapes.out(
            {
                "flag": done.flag_id,
                "item": done.item_id,
                "queue": done.queue,
                "answer": None if answer is None else answer._asdict(),
                "parked_until_at": until_at if answer is None else None,
                "by": by,
                "at": now,
                "goes_on": done.goes_on,
                "still_open": list(done.still_open),
            }
        )
        return
    clock = f"{times.moment(now, now)} {screen.zone()}"
    if answer is None:
        screen.out(
            f"parked {done.flag_id} until {times.moment(until_at, now)}, by {shown(by)}, {clock} · {done.goes_on}"
        )
        return
    words = flag_screen.answer_text({"answer": answer._asdict()})
    did = f"answered question {answer.question} of" if done.still_open else "resolved"
    screen.out(f"{did} {done.flag_id}: {words}, by {shown(by)}, {clock} · {done.goes_on}")
    if flag["revised_since"]:
        screen.note(
            f"{done.item_id} was revised since this was asked; the next session sees the newest text."
        )
