from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from daemon import folders, packages

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def open_folder():
    """A folder that other users can reach, unlike tmp_path."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_nobody(call):
    """What ``call()`` gives for a user without rights."""
    os.seteuid(NOBODY)
    try:
        return call()
    finally:
        os.seteuid(0)


def test_a_good_folder_passes_and_keeps_nothing_of_the_trial(tmp_path):
    assert folders.trial(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_does_not_exist_yet_is_tried_where_it_would_be_created(tmp_path):
    assert folders.trial(tmp_path / "a" / "b") is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path):
    (tmp_path / "f").touch()
    assert folders.trial(tmp_path / "f") == f"{tmp_path}/f is not a folder"
    assert folders.trial(tmp_path / "f" / "below") == f"{tmp_path}/f is not a folder"


def test_a_dangling_link_is_told(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    assert folders.trial(tmp_path / "link") == f"{tmp_path}/link is not a folder"


@needs_root
def test_a_folder_without_rights_is_told_with_owner_mode_and_user(open_folder):
    """FIELD 10"""
    problem = as_nobody(lambda: folders.trial(open_folder))
    assert problem == (
        f"{open_folder}: cannot create a file: Permission denied (owner root, drwxr-xr-x; you are nobody)"
    )


@needs_root
def test_a_sticky_folder_of_somebody_else_is_a_doubt(open_folder):
    open_folder.chmod(0o1777)
    assert as_nobody(lambda: folders.trial(open_folder)) is None
    assert as_nobody(lambda: folders.foreign_files_stay(open_folder))
    assert not folders.foreign_files_stay(open_folder)


def test_our_package_names_belong_to_us_alone():
    """STYLE, packaging: another distribution with a package ``daemon`` overwrites ours."""
    assert packages.strangers() == []


def test_a_distribution_that_installs_one_of_our_names_is_told(tmp_path, monkeypatch):
    info = tmp_path / "python_daemon-3.1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: python-daemon\nVersion: 3.1.2\n")
    (info / "RECORD").write_text("daemon/__init__.py,,\ndaemon/daemon.py,,\nlockfile.py,,\n")
    (tmp_path / "daemon").mkdir()
    (tmp_path / "daemon" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    (line,) = packages.strangers()
    assert line.startswith('python-daemon installs "daemon" too')


def test_a_folder_lying_around_that_hides_a_package_is_told(tmp_path, monkeypatch):
    import importlib.util

    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    import sys

    for name in [name for name in sys.modules if name.partition(".")[0] == "memory"]:
        monkeypatch.delitem(sys.modules, name)
    assert importlib.util.find_spec("memory").origin.startswith(str(tmp_path))
    (line,) = packages.strangers()
    assert line.startswith(f'"memory" is imported from {tmp_path}/memory/__init__.py, not from ')
