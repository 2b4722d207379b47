"""The listening sockets, opened before anything else starts, so that a taken address ends the start with one line."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress

from daemon.sections import HttpSettings
from store.errors import ShiftworkError

BACKLOG = 512


def listen(settings: HttpSettings) -> list[socket.socket]:
    """A socket for each address that ``bind`` names. Raises ShiftworkError (exit 1) that names the key."""
    host, port = settings.address()
    opened: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sock = socket.socket(family, kind, protocol)
            opened.append(sock)
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # of any free port, the same one on each address
            taken = opened[0].getsockname()[1] if port == 0 and len(opened) > 1 else port
            sock.bind((address[0], taken, *address[2:]))
            sock.listen(BACKLOG)  # only a listening socket keeps others off
    except (OSError, UnicodeError) as error:
        close(opened)
        why = getattr(error, "strerror", None) or str(error)
        raise ShiftworkError(f"cannot listen on {settings.bind}: {why}. See [http] bind") from None
    return opened


def close(sockets: Sequence[socket.socket]) -> None:
    """Close them all."""
    for sock in sockets:
        with suppress(OSError):
            sock.close()


def url_of(settings: HttpSettings, sockets: Sequence[socket.socket] = ()) -> str:
    """What a client on this machine calls; with ``sockets`` the port that was really taken."""
    host, port = settings.address()
    if sockets:
        port = sockets[0].getsockname()[1]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
