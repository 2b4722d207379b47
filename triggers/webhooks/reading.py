"""From a delivery's bytes to what is handed in: strict JSON, and JSON pointers to its parts. Pure.

    body    what the pointer names, else the whole text as it came
    title   what the pointer names, else the body's first line, else which delivery, or which key, it is
    key     what the pointer names, else source and delivery id, else a fresh one: no id, no dedup (FIELD 14)

A pointer that names nothing is refused for body and key (rule ``no-such-value``); a title does without.
"""

from __future__ import annotations

import json
from typing import Any

from store.errors import InputRefused
from store.intake import Handed
from store.text import shown
from triggers import intake, pointers, strictjson
from triggers.webhooks.hook import Hook

MAX_DELIVERY_ID = 128
"""So that source and id together make a key that is not too long."""


def read(hook: Hook, data: bytes, *, delivery: str, event: str, fresh: str) -> Handed:
    """What a delivery hands in. Raises InputRefused with a rule of ``triggers.intake`` or of this module.

    ``fresh`` is used as the key when nothing else names the item.
    """
    if len(delivery) > MAX_DELIVERY_ID or not delivery.isprintable():
        raise InputRefused(
            f"the delivery's id must be at most {MAX_DELIVERY_ID} characters, none of them control characters",
            rule="bad-delivery-id",
        )
    text = intake.decoded(data, max_bytes=hook.max_bytes)
    if not text.strip():
        raise InputRefused("empty: there is nothing to work on", rule="empty")
    value = strictjson.loads(text)
    body = text if hook.body is None else _body(hook, hook.body, value)
    key = _key(hook, value, delivery, fresh)
    draft = intake.from_table({"key": key}, body)
    return draft.handed(queue=hook.queue, door="webhook", origin=hook.name)._replace(
        title=_title(hook, value, _which(hook, key, delivery, event)) or draft.title,
        delivery=delivery,
        source=hook.source,
    )


def _body(hook: Hook, pointer: str, value: Any) -> str:
    """What the pointer names. GitHub says ``null`` for an issue without a description: then its title is all of it."""
    title = _title(hook, value, "") if pointers.is_null(value, pointer) else ""
    return title or _text(_named(value, pointer, "body"))


def _named(value: Any, pointer: str, what: str) -> Any:
    found = pointers.value_at(value, pointer)
    if found is None:
        raise InputRefused(
            f'{what}: there is nothing at "{shown(pointer, 60)}" in this delivery', rule="no-such-value"
        )
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _key(hook: Hook, value: Any, delivery: str, fresh: str) -> str:
    if hook.key is None:
        return f"{hook.name}:{delivery}" if delivery else fresh
    found = _named(value, hook.key, "key")
    if isinstance(found, dict | list):
        raise InputRefused(f'key: "{shown(hook.key, 60)}" names no text or number', rule="bad-value")
    return _text(found)


def _which(hook: Hook, key: str, delivery: str, event: str) -> str:
    """Which delivery it is, in words. With a key of its own what is sent again says the same of itself, under whatever
    id or event: else it would be other content, and revise its item.
    """
    words = (hook.name, event, delivery) if hook.key is None else (hook.name, key)
    return " ".join(" ".join(words).split())


def _title(hook: Hook, value: Any, which: str) -> str:
    """Empty where the body's first line is the best there is."""
    found = pointers.value_at(value, hook.title) if hook.title is not None else None
    if found is not None and not isinstance(found, dict | list):
        return " ".join(_text(found).split())[: intake.MAX_TITLE]
    return which[: intake.MAX_TITLE] if hook.body is None else ""
