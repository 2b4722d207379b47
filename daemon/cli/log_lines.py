"""The decision log's sentences: what came in, what was decided by whom and why, what it cost. For strangers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from daemon.cli import screen, times
from store.text import death_words, shown

_WORDS = 300
_BY = {"code": "code", "model": "the model", "person": "a person"}


def words(event: Mapping[str, Any], *, named: bool, now: float) -> Iterator[str]:
    """The lines of one entry of ``views.log``. ``named``: say which item, because the log is of all."""
    lines = list(_session(event, now)) if event["session"] is not None else [_plain(event, now)]
    about = event["item_id"] or event["queue"]
    for number, line in enumerate(lines):
        yield f"{shown(about)}  {line}" if named and about and number == 0 else line


def _session(event: Mapping[str, Any], now: float) -> Iterator[str]:
    """Claim, decision, checkpoint of the session that the event belongs to."""
    session, decision, data = event["session"], event["decision"], event["data"]
    woken = f", woken by {shown(session['trigger'], 80)}" if session["trigger"] else ""
    claimed = f"session {session['id']}: claimed at v{session['start_version']}, attempt {session['attempt']}{woken}"
    yield claimed + _context(session, data)
    if decision is not None:
        yield from _decision(decision, data)
    if event["kind"] in ("crash", "release"):
        yield _SENTENCES[event["kind"]](data, now)
    elif session["outcome"] == "running":
        yield "it runs now"
    elif session["end_version"] is None:
        yield f"{session['outcome']}: {shown(session['cause'], _WORDS)}; nothing of it was recorded"
    else:
        yield _checkpoint(session, decision, data)


def _context(session: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    if session["context_chars"] is None:
        return ""
    shares = [
        screen.count(data[name], name[:-1])
        for name in ("passages", "notes")
        if isinstance(data.get(name), int)
    ]
    return f", context {screen.size(session['context_chars'])}" + (
        f" ({', '.join(shares)})" if shares else ""
    )


def _decision(decision: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[str]:
    body = decision["body"]
    parts = [f"decided by {_BY.get(decision['decided_by'], decision['decided_by'])}: {decision['kind']}"]
    cites = body.get("citations") or data.get("cites") or []
    if cites:
        parts.append(f"cites {', '.join(shown(one) for one in cites)}")
    if body.get("evidence"):
        parts.append(f"evidence {', '.join(shown(one) for one in body['evidence'])}")
    parts += [
        f"dropped: {shown(one['option'], 80)} ({shown(one['why_not'], 120)})"
        for one in body.get("alternatives", [])
    ]
    yield " · ".join(parts)
    if body.get("reason"):
        yield f"because {shown(body['reason'], _WORDS)}"


def _checkpoint(
    session: Mapping[str, Any], decision: Mapping[str, Any] | None, data: Mapping[str, Any]
) -> str:
    parts = [f"checkpoint v{session['start_version']} → v{session['end_version']}", session["outcome"]]
    if data.get("flag"):
        parts.append(f"asked {data['flag']}")
    told = decision is not None and session["outcome"] in ("answered", "flagged")  # its reason stands above
    if session["cause"] and not told:
        parts.append(shown(session["cause"], _WORDS))
    return " · ".join([*parts, *_cost(session, decision)])


def _cost(session: Mapping[str, Any], decision: Mapping[str, Any] | None) -> Iterator[str]:
    """Tokens and money; what is unknown is called so, except where code decided and counts nothing."""
    tokens = [session["input_tokens"], session["output_tokens"]]
    known = [one for one in tokens if one is not None]
    if not known and decision is not None and decision["decided_by"] == "code":
        return
    said = f"{sum(known)} tokens" if known else "tokens unknown"
    yield said if session["cost"] is None else f"{said}, ${session['cost']:.2f}"


def _plain(event: Mapping[str, Any], now: float) -> str:
    sentence = _SENTENCES.get(event["kind"])
    if sentence is not None:
        return sentence(event["data"], now)
    facts = ", ".join(
        f"{shown(key)} {shown(str(value), 80)}"
        for key, value in event["data"].items()
        if value not in (None, "", [])
    )
    return f"{shown(event['kind'])}: {facts}" if facts else shown(event["kind"])


def _origin(data: Mapping[str, Any]) -> str:
    return f"{shown(str(data.get('door', '?')))} {shown(str(data.get('origin', '')))}".strip()


def _by(data: Mapping[str, Any]) -> str:
    return f"by {shown(str(data.get('by', '?')))}"


def _because(data: Mapping[str, Any]) -> str:
    return f": {shown(data['reason'], _WORDS)}" if data.get("reason") else ""


def _resolved(data: Mapping[str, Any], now: float) -> str:
    flag = shown(str(data.get("flag")))
    until_at = data.get("until_at")
    if until_at is not None:
        return f"{flag} parked {_by(data)} until {times.moment(until_at, now)}{_because(data)}"
    number = f"{data['option']} " if data.get("option") else ""
    final = ", final" if data.get("final") else ""
    return f'{flag} answered {_by(data)}: "{number}{shown(str(data.get("answer")), _WORDS)}"{final}{_because(data)}'


def _crashed(data: Mapping[str, Any], _now: float) -> str:
    asked = f"; asked {data['flag']}" if data.get("flag") else ""
    how = shown(death_words(str(data.get("cause"))))
    return f"crashed ({how}), {data.get('crashes')} in a row of {data.get('limit')}{asked}"


def _paused(data: Mapping[str, Any], _now: float) -> str:
    return f"{'its session stopped, then ' if data.get('stopped') else ''}paused {_by(data)}"


def _sources(data: Mapping[str, Any], _now: float) -> str:
    if "count" not in data:
        problem = data.get("problem")
        return f"sources: {shown(str(problem), _WORDS)}" if problem else "sources: they can be read again"
    names = [shown(str(name)) for name in data.get("changed", [])]
    stale = f"; {screen.count(data['stale'], 'answer')} stale" if data.get("stale") else ""
    more = ", …" if len(names) > 3 else ""
    return f"{screen.count(data['count'], 'source')} read: {', '.join(names[:3])}{more}{stale}"


def _noticed(data: Mapping[str, Any], _now: float) -> str:
    words = [shown(str(data.get(name, "?"))) for name in ("id", "what", "alert", "channel", "outcome")]
    return f"notice {words[0]} ({words[1]}) of {words[2]} to {words[3]}: {words[4]}"


def _acked(data: Mapping[str, Any], now: float) -> str:
    until = times.moment(data["until_at"], now) if "until_at" in data else "?"
    return f"alert {shown(str(data.get('alert')))} quieted {_by(data)} until {until}"


_SENTENCES: dict[str, Callable[[Mapping[str, Any], float], str]] = {
    "intake": lambda data, _now: f"handed in: {_origin(data)} (v1)",
    "duplicate": lambda data, _now: f"handed in again: {_origin(data)}, a duplicate",
    "revision": lambda data, _now: (
        f"revised: {_origin(data)}, revision {data.get('revision')} counts from now on"
    ),
    "sources": _sources,
    "notice": _noticed,
    "ack": _acked,
    "resolve": _resolved,
    "crash": _crashed,
    "release": lambda data, _now: f"given back undecided ({shown(str(data.get('why')))}); nothing is counted",
    "pause": _paused,
    "resume": lambda data, _now: f"resumed {_by(data)}",
    "retry": lambda data, _now: f"retry {_by(data)}: {shown(str(data.get('did')))}",
    "abort": lambda data, _now: f"aborted {_by(data)}{_because(data)}",
}
