"""``credential:NAME``: one configuration under a manager, for commands, and on a laptop (FIELD 50, 53)."""

from __future__ import annotations

import pytest

from daemon import config as configuration
from notify.start_alert import salvage, services_of
from store import credentials
from store.errors import ConfigProblem

TEXT = """
[queues.q]
decider = "local"
sources = ["*.md"]
[deciders.local]
kind = "extractive"
[webhooks.shop]
scheme = "github"
secret_file = ["credential:new", "credential:old"]
queue = "q"
[notify]
heartbeat_url_file = "credential:beat.url"
services = [{ url_file = "credential:page.url" }]
"""
NAMES = ("new", "old", "beat.url", "page.url")


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.delenv(credentials.VARIABLE, raising=False)
    (tmp_path / "a.md").write_text("# A\n\nText.\n")
    file = tmp_path / "config.toml"
    file.write_text(TEXT)
    return file


def fill(folder, names=NAMES, before=""):
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{before}{name}").write_text(f"https://example.org/{name}")
        (folder / f"{before}{name}").chmod(0o600)


def test_without_a_manager_it_is_a_file_beside_the_configuration(file):
    fill(file.parent / "credentials")
    loaded = configuration.load(file)
    assert loaded.notify.heartbeat_url_file == file.parent / "credentials" / "beat.url"
    assert [one.name for one in loaded.webhooks["shop"].secret_file] == ["new", "old"]


def test_what_a_manager_handed_over_counts_first(file, tmp_path, monkeypatch):
    fill(file.parent / "credentials")
    given = tmp_path / "given"
    fill(given, NAMES[1:], before="shiftwork_")
    fill(given, NAMES[:1])
    monkeypatch.setenv(credentials.VARIABLE, str(given))
    loaded = configuration.load(file)
    assert loaded.notify.services[0].url_file == given / "shiftwork_page.url"
    assert list(loaded.webhooks["shop"].secret_file) == [given / "new", given / "shiftwork_old"]


def test_one_that_was_not_handed_over_says_what_to_do(file, tmp_path, monkeypatch):
    (tmp_path / "given").mkdir()
    monkeypatch.setenv(credentials.VARIABLE, str(tmp_path / "given"))
    with pytest.raises(ConfigProblem, match=r"then restart the service \(a reload hands over nothing new\)"):
        configuration.load(file)


@pytest.mark.parametrize("name", ["", "../etc/passwd", "a/b", ".hidden", "a\nb"])
def test_a_name_leads_nowhere_else(file, name):
    with pytest.raises(ValueError, match="is followed by the name of a file"):
        credentials.place(f"credential:{name}", str(file.parent))


def test_a_file_of_that_name_is_no_inbox(file):
    """Only keys that end in _file know the word."""
    file.write_text(TEXT.replace("[queues.q]", '[queues.q]\ninbox = "credential:x"'))
    fill(file.parent / "credentials")
    assert configuration.load(file).queues["q"].inbox == file.parent / "credential:x"


def test_a_page_about_a_refused_start_finds_its_service_too(file):
    fill(file.parent / "credentials")
    found = services_of(salvage("[nonsense\n" + TEXT), file.parent)
    assert [one.name for one in found] == [str(file.parent / "credentials" / "page.url")]
