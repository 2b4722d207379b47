r"""Strict JSON: one text, one meaning (FIELD 17).

What lenient parsers let through and two readers may understand differently is refused by a named rule:

    json-syntax          not JSON at all
    json-duplicate-key   an object says one key twice
    json-nan             NaN, Infinity, or a number too large to be one
    json-number          an integer of thousands of digits
    json-lone-surrogate  half a character (``\ud800``)
    json-nul             ``\u0000`` in a key or a string
    json-depth           more than 100 levels
    json-trailing        something after the value
"""

from __future__ import annotations

import json
from typing import Any

from store.errors import InputRefused
from store.text import shown

MAX_DEPTH = 100


def loads(text: str) -> Any:
    """The value of ``text``. Raises InputRefused with one of the rules above."""
    if text.count("[") + text.count("{") > MAX_DEPTH:  # else no need to walk through every character
        _check_depth(text)
    decoder = json.JSONDecoder(
        object_pairs_hook=_once_each, parse_constant=_no_constant, parse_float=_finite, parse_int=_integer
    )
    start = len(text) - len(text.lstrip(" \t\r\n"))
    try:
        value, end = decoder.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise InputRefused(
            f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}", rule="json-syntax"
        ) from None
    rest = text[end:].lstrip(" \t\r\n")
    if rest:
        line = text.count("\n", 0, len(text) - len(rest)) + 1
        raise InputRefused(
            f'text after the JSON value, at line {line}: "{shown(rest, 20)}"', rule="json-trailing"
        )
    _check_strings(value)
    return value


def _check_depth(text: str) -> None:
    """Count brackets outside strings, before the parser recurses into them."""
    depth = 0
    in_string = escaped = False
    for char in text:
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise InputRefused(f"JSON nested deeper than {MAX_DEPTH} levels", rule="json-depth")
        elif char in "]}":
            depth -= 1


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise InputRefused(
                f'the key "{shown(key, 40)}" stands twice in one object', rule="json-duplicate-key"
            )
        made[key] = value
    return made


def _no_constant(word: str) -> Any:
    raise InputRefused(f"{word} is not a JSON number", rule="json-nan")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise InputRefused(f"{shown(digits, 20)} is too large to be a number", rule="json-nan")
    return number


def _integer(digits: str) -> int:
    if len(digits) > 400:
        raise InputRefused(f"a number of {len(digits)} digits", rule="json-number")
    return int(digits)


def _check_strings(value: Any) -> None:
    """Every key and string, without recursion: the depth is bounded, the stack need not be."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            _check_string(one)
        elif isinstance(one, list):
            waiting.extend(one)
        elif isinstance(one, dict):
            for key, inner in one.items():
                _check_string(key)
                waiting.append(inner)


def _check_string(text: str) -> None:
    if "\x00" in text:
        raise InputRefused("a string holds \\u0000", rule="json-nul")
    if not text.isascii() and any(0xD800 <= ord(char) <= 0xDFFF for char in text):
        raise InputRefused("a string holds half a character (a lone surrogate)", rule="json-lone-surrogate")
