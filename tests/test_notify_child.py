"""The sending child against real receivers: what arrives, what counts as delivered, and what never leaks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from aiosmtpd.controller import Controller
from notify_receivers import web

from notify import sender
from notify.messages import Message

MESSAGE = Message(
    "E-0007", "[Shiftwork] 3 flags wait (E-0007)", "E-0007 · page\nLook:  shiftwork flags", "failure"
)

PROGRAM = f"from notify import sender; from notify.messages import Message; MESSAGE = {MESSAGE!r}"


@pytest.fixture
def receiver():
    with web() as one:
        yield one


def url_file(tmp_path: Path, url: str) -> str:
    path = tmp_path / "pager"
    path.write_text(f"# who is paged\n\n{url}\n", encoding="utf-8")
    return str(path)


def test_a_json_service_gets_the_message_whole(tmp_path, receiver):
    outcome = sender.by_child(url_file(tmp_path, f"json://127.0.0.1:{receiver.port}/topsecret"), MESSAGE)
    assert outcome.delivered
    assert receiver.got[0]["title"] == MESSAGE.title
    assert receiver.got[0]["message"] == MESSAGE.body
    assert receiver.ids == ["E-0007"]


def test_a_mail_server_gets_the_message(tmp_path):
    mails = []

    class Keep:
        async def handle_DATA(self, server, session, envelope):  # noqa: N802 – aiosmtpd calls it so
            mails.append(envelope.content.decode())
            return "250 OK"

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = Controller(Keep(), hostname="127.0.0.1", port=port)
    server.start()
    try:
        url = f"mailto://127.0.0.1:{port}?from=shiftwork@example.org&to=anna@example.org&mode=insecure"
        assert sender.by_child(url_file(tmp_path, url), MESSAGE).delivered
    finally:
        server.stop()
    assert len(mails) == 1
    assert "E-0007" in mails[0]


@pytest.mark.parametrize("status", [404, 500, 503])
def test_a_service_that_refuses_has_not_delivered(tmp_path, receiver, status):
    receiver.status = status
    assert not sender.by_child(url_file(tmp_path, f"json://127.0.0.1:{receiver.port}/"), MESSAGE).delivered


def test_a_service_that_is_not_there_has_not_delivered(tmp_path, receiver):
    receiver.server.server_close()
    outcome = sender.by_child(url_file(tmp_path, f"json://127.0.0.1:{receiver.port}/"), MESSAGE)
    assert outcome == (False, "the service refused it or could not be reached")


@pytest.mark.parametrize("query", ["", "?redirect=yes"])
def test_a_redirect_is_not_followed_and_is_no_delivery(tmp_path, receiver, query):
    with web() as elsewhere:
        receiver.status, receiver.location = 302, f"http://127.0.0.1:{elsewhere.port}/"
        outcome = sender.by_child(url_file(tmp_path, f"json://127.0.0.1:{receiver.port}/{query}"), MESSAGE)
        assert not outcome.delivered
        assert elsewhere.paths == []


def test_a_failure_of_a_service_called_optional_is_a_failure(tmp_path, receiver):
    receiver.status = 500
    url = f"json://127.0.0.1:{receiver.port}/?optional=yes"
    assert not sender.by_child(url_file(tmp_path, url), MESSAGE).delivered


def test_a_service_that_hangs_is_given_up_and_its_process_is_gone(tmp_path, receiver):
    receiver.sleep_s = 5
    path = url_file(tmp_path, f"json://127.0.0.1:{receiver.port}/")
    began = time.monotonic()
    outcome = sender.by_child(path, MESSAGE, timeout_s=1, deadline_s=15)
    assert outcome == (False, "the service did not answer in time")
    assert time.monotonic() - began < 5
    assert len(receiver.got) == 1
    assert children() == []


def test_a_child_that_overruns_its_deadline_is_killed_with_its_group(tmp_path, receiver):
    receiver.sleep_s = 30
    path = url_file(tmp_path, f"json://127.0.0.1:{receiver.port}/")
    began = time.monotonic()
    outcome = sender.by_child(path, MESSAGE, timeout_s=60, deadline_s=3)
    assert outcome == (False, "the service did not answer in time")
    assert time.monotonic() - began < 6
    assert children() == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file or directory"),
        ("", "it is empty"),
        ("# nothing\n", "it is empty"),
        ("json://a/topsecret\njson://b/topsecret\n", "2 lines; one URL per file"),
        ("nosuchthing://topsecret\n", "none that Apprise knows"),
        ("topsecret " * 4000, "larger than 16 KiB"),
    ],
)
def test_a_url_file_that_cannot_be_used_is_said_without_its_content(tmp_path, content, words):
    path = tmp_path / "pager"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    for outcome in (sender.by_child(str(path), MESSAGE), sender.loads(str(path))):
        assert not outcome.delivered
        assert words in outcome.words
        assert "topsecret" not in outcome.words


def test_a_service_can_be_looked_at_without_sending(tmp_path, receiver):
    assert sender.loads(url_file(tmp_path, f"json://127.0.0.1:{receiver.port}/")).delivered
    assert receiver.paths == []


def test_the_url_is_in_no_argv_and_no_environment(tmp_path, receiver):
    """Looked at from outside while the child waits for its answer."""
    receiver.sleep_s = 1.5
    path = url_file(tmp_path, f"json://127.0.0.1:{receiver.port}/topsecret")
    os.environ["SHIFTWORK_TEST_SECRET"] = "topsecret"
    try:
        program = f"{PROGRAM}; print(sender.by_child({path!r}, MESSAGE))"
        parent = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=Path(__file__).parent.parent
        )
        seen = b""
        deadline = time.monotonic() + 20
        while not receiver.paths and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in children(parent.pid):
            seen += Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        out, _ = parent.communicate(timeout=20)
    finally:
        del os.environ["SHIFTWORK_TEST_SECRET"]
    assert b"notify.child" in seen
    assert b"topsecret" not in seen
    assert b"delivered=True" in out


def test_a_child_dies_with_the_process_that_waits_for_it(tmp_path, receiver):
    receiver.sleep_s = 20
    path = url_file(tmp_path, f"json://127.0.0.1:{receiver.port}/")
    program = f"{PROGRAM}; sender.by_child({path!r}, MESSAGE)"
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parent.parent)
    deadline = time.monotonic() + 20
    while not receiver.paths and time.monotonic() < deadline:
        time.sleep(0.05)
    (child,) = children(parent.pid)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 5
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{child}").exists()


def test_the_sending_process_alone_imports_apprise():
    heavy = ("apprise", "httpx", "requests", "pydantic")
    program = f"""
import sys, notify.pager, notify.start_alert, notify.heartbeat
print([name for name in {heavy} if name in sys.modules])
"""
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, cwd=Path(__file__).parent.parent
    )
    assert out.stdout == b"[]\n"


def children(parent: int | None = None) -> list[int]:
    path = Path(f"/proc/{parent or os.getpid()}/task")
    found = []
    for task in path.iterdir():
        found += [int(pid) for pid in (task / "children").read_text().split()]
    return found
