"""What a queue's memory may hold and show. Sizes are characters of the finished context."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from store.settings import Many, Pattern, Section


class MemoryLimits(Section):
    """The keys of ``[queues.NAME]`` that bound sources, notes and the context."""

    sources: Many[Pattern] = ()
    notes_max: Annotated[int, Field(ge=1, le=1000)] = 20
    notes_chars: Annotated[int, Field(ge=200, le=1_000_000)] = 4000
    episodes_max: Annotated[int, Field(ge=0, le=100)] = 5
    passages_max: Annotated[int, Field(ge=0, le=100)] = 6
    context_chars: Annotated[int, Field(ge=2000, le=10_000_000)] = 24_000
