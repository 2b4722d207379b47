"""JSON pointers (RFC 6901): the name of one value inside another, such as ``/issue/title`` or ``/lines/0``. Pure."""

from __future__ import annotations

from typing import Any


def value_at(value: Any, pointer: str) -> Any:
    """What ``pointer`` names in ``value``; None where there is nothing."""
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and _is_index(name):
            value = value[int(name)] if int(name) < len(value) else None
        else:
            return None
    return value


def is_null(value: Any, pointer: str) -> bool:
    """Whether ``pointer`` names a member that is there and says null: somebody left it out on purpose."""
    above, _, last = pointer.rpartition("/")
    holder = value_at(value, above)
    name = last.replace("~1", "/").replace("~0", "~")
    return isinstance(holder, dict) and name in holder and holder[name] is None


def problem(pointer: str) -> str | None:
    """What is wrong with the text of a pointer, if anything."""
    if pointer and not pointer.startswith("/"):
        return 'must be a JSON pointer: it starts with "/", such as "/issue/title"'
    if any(part[:1] not in {"0", "1"} for part in pointer.split("~")[1:]):
        return 'must be a JSON pointer: write "~0" for "~" and "~1" for "/" in a name'
    return None


def _is_index(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= 9 and (name == "0" or name[0] != "0")
