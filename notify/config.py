"""Who is paged, for what age, and how often again."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from store.settings import Duration, Many, RelativePath, Section
from store.units import parse_duration


class Service(Section):
    """One Apprise URL, alone in a file, and the severities it gets."""

    url_file: RelativePath
    tags: Annotated[Many[Literal["page", "ticket"]], Field(min_length=1)] = ("page", "ticket")


class NotifySettings(Section):
    """``[notify]``. Without services nobody is paged; ``alerts`` still lists what fires."""

    services: Many[Service] = ()
    flag_age: Annotated[Duration, Field(ge=1)] = parse_duration("60m")
    repeat: Annotated[Duration, Field(ge=60)] = parse_duration("4h")
    escalate: Annotated[Duration, Field(ge=60)] = parse_duration("2h")
    clear_hold: Annotated[Duration, Field(ge=0)] = parse_duration("10m")
    heartbeat_url_file: RelativePath | None = None
