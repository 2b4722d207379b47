"""``shiftwork alerts``, ``ack`` and ``notify test``."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon.cli import light, reach, screen, times
from store import moments

if TYPE_CHECKING:
    from notify.conditions import Cause
    from notify.policy import Policy
    from store.alert_rows import Alert, Facts

DEFAULT_ACK = "24h"


def alerts_arguments(parser: argparse.ArgumentParser) -> None:
    """--json."""
    parser.add_argument("--json", action="store_true", help="for programs")


def alerts(args: argparse.Namespace) -> int:
    """What fires or is about to, whom it told, what is not delivered yet, and what to type."""
    from notify.policy import channels_for
    from notify.start_alert import Scene, standing
    from store.alert_rows import Facts

    now = time.time()
    with reach.reading(args) as (places, store):
        policy = _policy(places)
        if store is None:
            facts = Facts((), (), (), {}, {})
        else:
            facts = store.alerts.facts(now=now, flag_age_s=policy.flag_age_s)
    rows = [_row(alert, facts, policy, now) for alert in _up(facts)]
    scene = Scene(policy.channels, places.file, places.state_dir)
    outside: list[dict[str, Any]] = [
        {"alert": key, "id": number, "since_at": moments.iso(at), "age_s": max(0.0, now - at)}
        for key, at, number in standing(scene)
    ]
    firing = sum(row["state"] == "firing" for row in rows)
    if args.json:
        screen.json_out({"firing": firing, "alerts": rows, "without_store": outside})
        return 0
    acked = sum(row["acked_by"] is not None for row in rows)
    screen.out(f"{firing + len(outside)} firing" + (f" · {acked} acked" if acked else ""))
    for one in outside:
        screen.out(
            f"{one['alert']}  page · told {moments.age(one['age_s'])} ago as {one['id']}, until it is good again"
        )
    for row in rows:
        for line in _lines(row, places.file):
            screen.out(line)
    if not channels_for(policy, "page"):
        screen.note(
            "No service has the tag page: nobody is paged. See [notify] services in the configuration."
        )
    return 0


def ack_arguments(parser: argparse.ArgumentParser) -> None:
    """ALERT --for --by."""
    parser.add_argument(
        "alert", metavar="ALERT", help="an alert such as flag_age:questions, or an id such as E-1432"
    )
    parser.add_argument(
        "--for", dest="lasts", metavar="TIME", default=DEFAULT_ACK, help="at most 24h (the default)"
    )
    reach.by_argument(parser)


def ack(args: argparse.Namespace) -> int:
    """Quiet one firing alert. Exit 3 when there is none of that name, 5 when it does not fire."""
    from store.errors import UsageProblem
    from store.text import shown
    from store.units import parse_duration

    try:
        for_s = parse_duration(args.lasts)
    except ValueError as error:
        raise UsageProblem(f"--for {shown(args.lasts)}: {error}") from None
    now = time.time()
    with reach.writing(args) as (_, store):
        alert = store.alerts.ack(args.alert, by=reach.person(args.by), for_s=for_s, now=now)
    until_at = alert.acked_until_at or now
    screen.out(
        f"{alert.key} is quiet until {times.moment(until_at, now)} {screen.zone()}, by {shown(alert.acked_by or '')}"
    )
    screen.note("It is told again when something new joins it, or when that time comes and it still fires.")
    return 0


def notify_test_arguments(parser: argparse.ArgumentParser) -> None:
    """--tag --json."""
    parser.add_argument("--tag", choices=("page", "ticket"), help="only the services with this tag")
    parser.add_argument("--json", action="store_true", help="for programs")


def notify_test(args: argparse.Namespace) -> int:
    """Send each service one test message. Exit 1 when one of them did not take it, or none is configured."""
    from notify.messages import Message
    from notify.sender import by_child
    from store.points import outside

    places = light.places(args.config)
    channels = [one for one in _policy(places).channels if args.tag is None or args.tag in one.tags]
    body = f"This is a test of {os.uname().nodename}:{os.path.abspath(places.file)}. Nothing is to be done."
    results = []
    for channel in channels:
        with outside("notify.send"):
            outcome = by_child(channel.name, Message("E-test", "[Shiftwork] test (E-test)", body, "info"))
        results.append({"url_file": channel.name, "tags": list(channel.tags), **outcome._asdict()})
        if not args.json:
            screen.out(f"{screen.quoted(channel.name)}  {', '.join(channel.tags)}  {outcome.words}")
    if args.json:
        screen.json_out(results)
    if not channels:
        wanted = f" with the tag {args.tag}" if args.tag else ""
        screen.note(
            f"No service{wanted} is configured: nobody is told. See [notify] services in the configuration."
        )
    return 0 if results and all(one["delivered"] for one in results) else 1


def _policy(places: light.Places) -> Policy:
    """What the light verbs need of ``[notify]``, unjudged: odd values count as the defaults."""
    from notify.policy import Policy
    from notify.start_alert import services_of

    section = places.data.get("notify")
    table: Mapping[str, Any] = section if isinstance(section, dict) else {}
    plain = Policy()
    return plain._replace(
        channels=tuple(services_of(places.data, Path(os.path.dirname(os.path.abspath(places.file))))),
        flag_age_s=_seconds(table.get("flag_age"), plain.flag_age_s),
        repeat_s=_seconds(table.get("repeat"), plain.repeat_s),
    )


def _seconds(value: object, default: float) -> float:
    from store.units import parse_duration

    try:
        return parse_duration(value) if isinstance(value, str) else default
    except ValueError:
        return default


def _up(facts: Facts) -> list[Alert]:
    """Firing before pending, the longest first."""
    some = [alert for alert in facts.alerts.values() if alert.state != "ok"]
    return sorted(some, key=lambda alert: (alert.state != "firing", alert.since_at or 0.0))


def _row(alert: Alert, facts: Facts, policy: Policy, now: float) -> dict[str, Any]:
    from notify.conditions import causes
    from notify.messages import commands_of, details_of, summary_of
    from store.alert_rows import visible_id

    cause: Cause | None = causes(facts, policy, now=now).get(alert.key)
    lines = facts.lines.get(alert.key, {}).values()
    acked = alert.acked_until_at is not None and now < alert.acked_until_at
    return {
        "alert": alert.key,
        "state": alert.state,
        "severity": alert.severity,
        "since_at": moments.iso(alert.since_at or now),
        "age_s": max(0.0, now - (alert.since_at or now)),
        "what": summary_of(alert.key, cause, now=now),
        "details": details_of(cause, now=now),
        "clearing": alert.false_at is not None,
        "acked_by": alert.acked_by if acked else None,
        "acked_until_at": moments.iso(alert.acked_until_at) if acked and alert.acked_until_at else None,
        "told": [
            {"channel": line.channel, "id": visible_id(line.number), "at": moments.iso(line.last_at)}
            for line in lines
            if line.episode == alert.episode
        ],
        "unsent": [
            {
                "channel": live.channel,
                "id": visible_id(live.number),
                "what": live.kind,
                "attempts": live.attempts,
                "failure": live.failure or None,
                "next_attempt_at": moments.iso(live.next_attempt_at),
            }
            for line in lines
            if (live := line.live) is not None
        ],
        "commands": [command for _, command in commands_of(alert.key, cause)],
    }


def _lines(row: Mapping[str, Any], config: Path) -> Iterator[str]:
    from store.text import shown

    state = "clearing" if row["clearing"] else row["state"]
    yield ""
    yield f"{row['alert']}  {row['severity']} · {state} for {moments.age(row['age_s'])}"
    yield f"  {row['what']}"
    yield from (f"  {line}" for line in row["details"])
    for told in row["told"]:
        yield f"  told {screen.quoted(told['channel'])} as {told['id']}"
    for unsent in row["unsent"]:
        tries = screen.count(unsent["attempts"], "try", "tries")
        reason = f": {unsent['failure']}" if unsent["failure"] else ""
        yield f"  not delivered to {screen.quoted(unsent['channel'])} after {tries}{reason}"
    if row["acked_by"]:
        yield f"  quiet until {row['acked_until_at']}, by {shown(row['acked_by'])}"
    elif row["state"] == "firing":
        look, quiet = row["commands"][0], row["commands"][-1]
        yield screen.copyable(f"  →  {look}", config=config)
        yield screen.copyable(f"  quiet it:  {quiet}", config=config)
