"""FIELD 8, 20: what kind of file system a folder is on."""

from __future__ import annotations

import pytest

from store import mounts

MOUNTINFO = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 0:50 / /srv/with\\040space rw - nfs4 host:/x rw
41 27 0:51 / /mnt/c rw shared:1 - 9p C: rw
42 27 0:52 / /media/ssh rw - fuse.sshfs me@there: rw
43 27 0:53 / /srv/twice rw - ext4 /dev/vdb rw
44 43 0:54 / /srv/twice rw - cifs //host/share rw
45 27 0:55 / /srv/twicenot rw - ext4 /dev/vdc rw
46 27 0:56 / /srv/häuser rw - nfs host:/y rw
47 27 0:57 / /media/sf_in rw - vboxsf in rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "foreign", "silent"),
    [
        ("/home/me/inbox", "ext4", False, False),
        ("/srv/with space/in", "nfs4", True, True),
        ("/mnt/c/Users", "9p", True, True),
        ("/media/ssh", "fuse.sshfs", True, True),
        ("/srv/twice/in", "cifs", True, True),
        ("/srv/twicenot", "ext4", False, False),
        ("/srv/häuser/in", "nfs", True, True),
        ("/media/sf_in", "vboxsf", False, True),
    ],
)
def test_the_mount_type_says_who_may_change_a_folder_and_whether_it_tells(path, kind, foreign, silent):
    mount = mounts.find_mount(path, MOUNTINFO)
    assert (mount.kind, mount.foreign, mount.silent) == (kind, foreign, silent)
