"""What a worker is told: everything a session needs of the configuration, as one JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from sessions import papers
from sessions.config import AnyDecider, DaemonLimits, QueuePolicy
from store.settings import RelativePath, Section


class Plan(Section):
    """One worker's orders. ``sessions_max`` ends it after so many sessions.

    ``command`` is what stands before and after the words of a command in files for people.
    """

    state_dir: RelativePath
    folder: RelativePath
    limits: DaemonLimits
    queues: dict[str, QueuePolicy]
    deciders: dict[str, AnyDecider]
    daemon: str = ""
    trigger: str = ""
    command: tuple[str, str] = papers.COMMAND
    sessions_max: int | None = Field(default=None, ge=1)


def policy_of(section: QueuePolicy) -> QueuePolicy:
    """Only the policy part of a queue's section, whatever its class adds."""
    return QueuePolicy.model_validate({name: getattr(section, name) for name in QueuePolicy.model_fields})


def job(plan: Plan) -> dict[str, Any]:
    """The plan as it travels to a worker."""
    return plan.model_dump(mode="json")


def plan_of(job: Mapping[str, Any]) -> Plan:
    """The plan a worker was given."""
    import json

    return Plan.model_validate_json(json.dumps(job))
