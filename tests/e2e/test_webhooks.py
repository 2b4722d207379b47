"""Webhooks as a person sets them up: a real daemon, real curl, real signals."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from daemon_world import ENVIRONMENT, World
from webhook_world import GITHUB_SECRET, SECRET, TABLES, port_of, send, signed, write_secret


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path, extra=TABLES)
    write_secret(tmp_path / "shop.secret")
    write_secret(tmp_path / "code.secret", GITHUB_SECRET)
    yield world
    world.kill()


def test_a_delivery_becomes_an_item_and_its_answer(world):
    """FIELD 15: what was answered 202 is worked on."""
    world.start()
    reply = send(port_of(world), "/hooks/shop", b'{"n": 1}', signed(b'{"n": 1}', "msg_1"))
    assert (reply.status, reply.body) == (202, {"outcome": "accepted", "id": "q-0001"})
    world.until_done(1)
    assert world.rows("SELECT door, origin, key FROM items") == [("webhook", "shop", "shop:msg_1")]
    assert world.value("SELECT trigger FROM sessions") == "webhook shop"
    again = send(port_of(world), "/hooks/shop", b'{"n": 1}', signed(b'{"n": 1}', "msg_1"))
    assert (again.status, again.body["id"]) == (200, "q-0001")


def test_the_first_screen_and_check_config_name_the_address_and_the_webhooks(world):
    checked = world.command("check-config")
    assert "webhook shop  POST http://127.0.0.1:0/hooks/shop  → work  (standard)" in checked.stdout
    assert json.loads(world.command("check-config", "--json").stdout)["webhooks"] == {
        "shop": {"queue": "work", "scheme": "standard"},
        "code": {"queue": "work", "scheme": "github"},
    }
    shown = world.command("check-config", "--show").stdout
    assert "[webhooks.shop]" in shown
    assert SECRET not in shown
    world.start()
    assert (
        f"webhook code  POST http://127.0.0.1:{port_of(world)}/hooks/code  → work  (github)" in world.said()
    )


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_what_sign_prints_can_be_pasted_behind_curl(world):
    world.start()
    port = port_of(world)
    body = world.folder / "it's a body.json"
    body.write_text('{"issue": {"title": "A title", "body": "answer me"}}\n')
    for hook, words in (("shop", ()), ("code", ("--event", "issues", "--id", "72d3162e"))):
        signing = world.command("sign", body.name, "--webhook", hook, *words)
        line = signing.stderr.partition("Deliver it:  ")[2].strip().replace(":PORT/", f":{port}/")
        for status, outcome in (("202", "accepted"), ("200", "duplicate")):
            done = subprocess.run(
                line.replace("curl ", "curl -sS -w '%{http_code}' "), shell=True, cwd=world.folder,
                capture_output=True, text=True, timeout=30, check=True,
            )  # fmt: skip
            assert done.stdout.endswith(status), (line, done.stdout)
            assert f'"outcome": "{outcome}"' in done.stdout
        assert signing.stdout.strip() in signing.stderr
    assert world.rows("SELECT title, body FROM items WHERE origin = 'code'") == [("A title", "answer me")]
    headers = world.command(
        "sign", "-", "--webhook", "shop", "--id", "old", "--at", "2026-01-01T00:00:00Z", input="{}"
    )
    assert "-H 'webhook-timestamp: 1767225600'" in headers.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--webhook", "shoop"), 3, 'there is no webhook "shoop"; there are: code, shop'),
        (("--webhook", "shop", "--event", "push"), 2, "no event header"),
        (("--webhook", "shop", "--at", "soon"), 2, '--at "soon" is neither'),
        (("--webhook", "shop", "--id", "a\nb"), 2, "no line ends"),
        ((), 2, "--webhook"),
    ],
)
def test_sign_says_what_is_wrong_with_its_words(world, words, code, said):
    assert said in world.command("sign", "decider.py", *words, check=code).stderr


def test_sign_needs_the_secret_and_loads_nothing_heavy(world):
    heavy = ("pydantic", "asyncio", "sqlite3", "starlette", "uvicorn", "httpx")
    program = (
        "import sys; from daemon.cli.main import main; "
        "code = main(['sign', 'decider.py', '--webhook', 'shop']); "
        f"print(code, [name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=world.folder, env=ENVIRONMENT,
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "0 []"
    folder = world.folder / "credentials"
    folder.mkdir(mode=0o700)
    write_secret(folder / "shop")
    world.write_config(extra=TABLES.replace('"shop.secret"', '"credential:shop"'))
    assert "webhook-signature" in world.command("sign", "decider.py", "--webhook", "shop").stdout
    world.write_config(extra=TABLES)
    (world.folder / "shop.secret").unlink()
    assert (
        "shop.secret: cannot be read"
        in world.command("sign", "decider.py", "--webhook", "shop", check=78).stderr
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read: No such file"),
        ("", "is empty"),
        ("hello", 'must hold "whsec_" and base64'),
    ],
)
def test_a_start_without_a_usable_secret_is_refused(world, text, said):
    """FIELD 13: no secret, no endpoint, and a person is told before anything is lost."""
    secret = world.folder / "shop.secret"
    secret.unlink() if text is None else secret.write_text(text)
    for verb in ("check-config", "run"):
        done = world.command(verb, check=78)
        assert "webhooks.shop.secret_file" in done.stdout + done.stderr
        assert said in done.stdout + done.stderr


def test_a_webhook_of_an_unknown_queue_or_scheme_or_pointer_is_refused(world):
    keys = 'scheme = "stripe"\nsecret_file = "shop.secret"\nqueue = "wrk"\ntitle = "title"\nkeey = ""\n'
    world.write_config(extra=f"[webhooks.a]\n{keys}")
    said = world.command("check-config", check=78).stdout
    assert 'webhooks.a.queue = "wrk"    there is no [queues.wrk]; did you mean "work"?' in said
    assert 'webhooks.a.title = "title"    must be a JSON pointer' in said
    assert 'webhooks.a.keey = ""    unknown key; did you mean "key"?' in said
    assert 'webhooks.a.scheme = "stripe"' in said


def test_a_taken_address_ends_the_start_and_names_the_key(world):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        world.write_config(extra=TABLES.replace("127.0.0.1:0", bind))
        done = world.command("run", check=1)
        assert f"cannot listen on {bind}: Address already in use. See [http] bind" in done.stderr
        assert not world.daemon().running
    world.start().stop()


def test_a_second_daemon_is_told_of_the_first_one_not_of_the_address(world):
    """The lock comes before the address."""
    world.start()
    world.write_config(extra=TABLES.replace("127.0.0.1:0", f"127.0.0.1:{port_of(world)}"))
    assert "already running" in world.command("run", check=4).stderr


def test_without_webhook_and_table_nothing_listens_and_nothing_of_it_is_loaded(world):
    world.write_config()
    world.start()
    assert "http" not in world.said()
    assert "httptools" not in Path(f"/proc/{world.process.pid}/maps").read_text()
    assert world.stop() == 0


def test_the_table_alone_serves_health(world):
    world.write_config(extra='[http]\nbind = "127.0.0.1:0"\n')
    world.start()
    assert send(port_of(world), "/healthz", b"", {}, "GET").status == 200
    assert send(port_of(world), "/hooks/shop", b"{}", signed(b"{}", "x")).status == 404
    assert "health only: there is no webhook" in world.said()


def test_a_reload_takes_new_webhooks_hosts_and_secrets_and_cannot_move(world):
    world.write_config(extra=TABLES.partition("[webhooks.shop]")[0])
    world.start()
    port = port_of(world)
    assert send(port, "/hooks/shop", b"{}", signed(b"{}", "a")).status == 404
    assert send(port, "/healthz", b"", {"Host": "hooks.example.org"}, "GET").status == 421
    hosts = 'allowed_hosts = ["127.0.0.1", "hooks.example.org"]\n[webhooks.shop]'
    world.write_config(extra=TABLES.replace("[webhooks.shop]", hosts))
    reload(world, "it is in force")
    assert send(port, "/hooks/shop", b"{}", signed(b"{}", "a")).status == 202
    assert send(port, "/healthz", b"", {"Host": "hooks.example.org"}, "GET").status == 200
    world.write_config(extra=TABLES.replace("127.0.0.1:0", "127.0.0.2:0"))
    reload(world, "[http] bind cannot change while the daemon runs")
    assert send(port, "/hooks/shop", b"{}", signed(b"{}", "a")).status == 200
    world.write_config()
    reload(world, "it is in force", 2)
    with pytest.raises(OSError, match="refused"):
        send(port, "/healthz", b"", {}, "GET")
    world.write_config(extra=TABLES)
    reload(world, "it is in force", 3)
    assert world.stop() == 0


def reload(world, words: str, times: int = 1) -> None:
    world.send(signal.SIGHUP)
    world.until(lambda: world.said().count(words) >= times)


def test_a_person_is_told_of_refusals_once_in_a_while(world):
    world.start()
    for number in range(5):
        assert (
            send(port_of(world), "/hooks/shop", b"{}", signed(b"{}", f"x{number}", key=b"no")).status == 401
        )
    told = "webhook shop refused a delivery (401 bad-signature): the signature was not made with this webhook's secret"
    world.until(lambda: told in world.said())
    assert world.said().count("refused a delivery") == 1
    assert world.value("SELECT count(*) FROM events WHERE kind <> 'start'") == 0


def test_a_stop_ends_silent_connections_and_leaves_nothing_listening(world):
    world.start()
    port = port_of(world)
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    assert world.stop() == 0
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port))
    for sock in silent:
        sock.close()
