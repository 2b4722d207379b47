"""What kind of file system a folder is on, from ``/proc/self/mountinfo``."""

from __future__ import annotations

import os
from pathlib import Path

NETWORK_TYPES = frozenset(
    {
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
    }
)


def file_system(path: Path) -> str:
    """The file system's type (``ext4``, ``nfs4``, ``fuse.sshfs`` …) of the mount that ``path`` lies on."""
    target = os.path.realpath(path)
    best, kind = "", "unknown"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        for line in mounts:
            left, _, right = line.partition(" - ")
            point = left.split(" ")[4].encode("utf-8", "surrogateescape").decode("unicode_escape", "replace")
            inside = target == point or target.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, right.split(" ")[0]
    return kind


def is_foreign(kind: str) -> bool:
    """Whether a file system of this type may be changed by other machines, or sends no events."""
    return kind in NETWORK_TYPES or kind.startswith("fuse")
