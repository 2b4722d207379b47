"""The limits of the HTTP server, in one place: sizes in bytes, times in seconds (FIELD 16)."""

from __future__ import annotations

import resource
from typing import NamedTuple


class Limits(NamedTuple):
    """One set of limits; the defaults are those of the daemon.

    head_s       from a connection's or request's first moment to the end of its headers
    request_s    from the end of the headers to the end of the body
    answer_s     from then on to the last byte of the answer
    idle_s       between two requests of one connection
    drain_s      what still comes after an early answer is read and dropped for so long, so that clients see it
    stop_s       running requests get so long when the daemon stops
    head         request line and headers together
    connections  more than that, and those that wait longest for their client are dropped
    bodies       of all requests that are being received, together
    pipelined    requests of one connection that may wait behind each other
    wire         of one request, chunk sizes and all: a body may come in small chunks, and not in nothing else
    """

    head_s: float = 10.0
    request_s: float = 30.0
    answer_s: float = 30.0
    idle_s: float = 5.0
    drain_s: float = 1.0
    stop_s: float = 6.0
    head: int = 16 << 10
    headers: int = 100
    url: int = 2 << 10
    connections: int = 512
    bodies: int = 64 << 20
    pipelined: int = 32
    wire: int = 64 << 20


def for_this_process() -> Limits:
    """The defaults, with room left for the other files of a process that may hold only few."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    few = soft if soft != resource.RLIM_INFINITY else 1 << 20
    return Limits(connections=max(16, min(Limits().connections, few // 2)))
