"""The types that the rooms' configuration models are made of. Only their ``config.py`` and ``plugin.py`` import this
module.

A model is a ``Section``: unknown keys refused, frozen, strict (no number out of a text, no true as 1). It is
written in TOML by people and in JSON between our processes, and both read back to the same values: durations
and sizes stay text in JSON, paths are absolute from the first reading on.

A secret's ``*_file`` may also be a credential of a service manager (``store.credentials``).
Relative paths need the configuration's folder: ``Model.model_validate(data, context={"folder": Path(...)})``.
"""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
)

from store import credentials
from store.units import duration_text, parse_duration, parse_size, size_text

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_LOOKS_LIKE_ID = re.compile(r"[A-Za-z]-[0-9a-f]+")


class Section(BaseModel):
    """A table of the configuration file: every key known, every value of its own type, frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _to_seconds(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError('must be a duration in quotes, such as "90s", "5m", "2h" or "3d"')  # noqa: TRY004
    return parse_duration(value)


def _to_bytes(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError('must be a size in quotes, such as "64KiB" or "1MiB"')  # noqa: TRY004
    return parse_size(value)


def _to_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _to_path(value: object, info: ValidationInfo) -> object:
    return value if isinstance(value, Path) else Path(os.path.normpath(_absolute(value, info, escape=False)))


def _to_pattern(value: object, info: ValidationInfo) -> object:
    return _absolute(value, info, escape=True)


def _absolute(value: object, info: ValidationInfo, *, escape: bool) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a path in quotes")  # noqa: TRY004
    if not value.strip() or "\0" in value:
        raise ValueError("must not be empty")
    if value.startswith("~"):
        raise ValueError('"~" is not expanded: write the whole path')
    if value.startswith("/"):
        return value
    folder = (info.context or {}).get("folder")
    if folder is None:
        raise ValueError("must be an absolute path here")
    base = os.path.abspath(folder)  # no realpath: links are set on purpose
    if info.field_name is not None and info.field_name.endswith(("_file", "_files")):
        secret = credentials.place(value, base)
        if secret is not None:
            return secret
    return os.path.join(glob.escape(base) if escape else base, value)


def _a_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError("a name is 1 to 64 of A-Z a-z 0-9 _ - . and starts with a letter or digit")
    if _LOOKS_LIKE_ID.fullmatch(value):
        raise ValueError("a name must not look like an id such as q-0007")
    return value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value


Duration = Annotated[float, BeforeValidator(_to_seconds), PlainSerializer(duration_text, return_type=str)]
"""Seconds, written ``90s``. Bounds go on top: ``Annotated[Duration, Field(gt=0)]``."""

Size = Annotated[int, BeforeValidator(_to_bytes), PlainSerializer(size_text, return_type=str)]
"""Bytes, written ``1MiB``."""

RelativePath = Annotated[Path, PlainValidator(_to_path), PlainSerializer(str, return_type=str)]
"""A path, absolute after reading; relative ones start at the configuration's folder."""

Pattern = Annotated[str, BeforeValidator(_to_pattern)]
"""A glob pattern, absolute after reading, the folder's own name escaped: ``glob.glob(…, recursive=True)``."""

Name = Annotated[str, AfterValidator(_a_name)]
"""The name of a queue, decider or trigger."""

Text = Annotated[str, AfterValidator(_not_blank)]
"""A text with words in it."""

Many = Annotated[tuple[T, ...], BeforeValidator(_to_tuple)]
"""A list in TOML and JSON, a tuple here: ``Many[Text]``."""
