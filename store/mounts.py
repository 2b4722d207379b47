"""The file system a folder is on: may other machines change it, and does it tell about changes (FIELD 8, 20)."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

MOUNTINFO = Path("/proc/self/mountinfo")

NETWORK_TYPES = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "afs",
        "ceph",
        "glusterfs",
        "lustre",
        "ncpfs",
        "virtiofs",
        "drvfs",
    ]
)
SHARED_TYPES = frozenset(
    ["beegfs", "coda", "gfs2", "gpfs", "ocfs2", "orangefs", "prl_fs", "vboxsf", "vmhgfs"]
)
"""Folders shared with other machines or with a virtual machine's host, beside the network types."""


class Mount(NamedTuple):
    """Where a folder lives: the mount point above it and the type of its file system (``ext4``, ``fuse.sshfs`` …)."""

    point: str
    kind: str

    @property
    def foreign(self) -> bool:
        """Whether it may be changed by other machines: no place for the store."""
        return self.kind in NETWORK_TYPES or self.kind.startswith("fuse")

    @property
    def silent(self) -> bool:
        """Whether changes may come without an event, so that polling is needed."""
        return self.foreign or self.kind in SHARED_TYPES


def mount_of(folder: Path) -> Mount:
    """The mount that ``folder`` lies in. Without /proc: a mount of an unknown kind, which counts as local."""
    try:
        text = MOUNTINFO.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return Mount("/", "unknown")
    return find_mount(os.path.realpath(folder), text)


def find_mount(path: str, mountinfo: str) -> Mount:
    """The mount of the absolute ``path`` in the text of a mountinfo file; of several on one point the last one."""
    found = Mount("/", "unknown")
    for line in mountinfo.splitlines():
        left, dash, right = line.partition(" - ")
        fields = left.split(" ")
        if not dash or len(fields) < 5:
            continue
        point = _unescaped(fields[4])
        if _within(path, point) and len(point) >= len(found.point):
            found = Mount(point, right.partition(" ")[0])
    return found


def _within(path: str, point: str) -> bool:
    return point in {"/", path} or path.startswith(point + "/")


def _unescaped(field: str) -> str:
    """The kernel writes space, tab, newline and backslash as octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
