"""Every case of FIELD 13 to 18 with its exact outcome: what goes over a real socket, and what comes back."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time

import pytest
from http_world import HOOKS, Site, chunked, request
from webhook_world import GITHUB_SECRET, KEY, signed

HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "content-type": "application/json",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    site = Site(tmp_path_factory.mktemp("site"))
    yield site
    site.close()


def github(body: bytes, delivery: str | None = None, event: str = "issues", secret: str = GITHUB_SECRET):
    made = {"X-Hub-Signature-256": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}
    return made | {"X-GitHub-Delivery": delivery, "X-GitHub-Event": event}


def standard(**changes: str | None) -> dict[str, str | None]:
    """Signature headers of the body ``{}``, some of them changed."""
    return {**signed(b"{}", "msg_x"), **{name.replace("_", "-"): value for name, value in changes.items()}}


OTHER = b"another secret"


def cases() -> list[tuple]:
    """Name, the request, status, the rule or outcome, words of the message. Signed when asked for: it does not last."""
    now = int(time.time())
    return [
        # FIELD 13: who sent it
        ("signed", request(delivery="a1"), 202, "accepted", ""),
        ("signed by the second of several signatures",
         request(headers=standard(webhook_signature=f"v1a,AAAA v1,AAAA {signed(b'{}', 'msg_x')['webhook-signature']}")),
         202, "accepted", ""),
        ("no signature", request(headers=standard(webhook_signature=None)), 401, "no-signature", "signature"),
        ("no id", request(headers=standard(webhook_id=None)), 401, "no-signature", "no webhook-id"),
        ("no time", request(headers=standard(webhook_timestamp=None)), 401, "no-signature", "no webhook-timestamp"),
        ("a time that is a word", request(headers=standard(webhook_timestamp="soon")),
         401, "bad-timestamp", "number"),
        ("a time with a point", request(headers=standard(webhook_timestamp=f"{now}.5")), 401, "bad-timestamp", ""),
        ("a time that is too old", request(headers=signed(b"{}", "old", at=now - 4000)),
         401, "expired", "s ago; at most 300"),
        ("a time that is ahead", request(headers=signed(b"{}", "new", at=now + 4000)), 401, "expired", "s ahead"),
        ("another secret", request(headers=signed(b"{}", "x", key=OTHER)),
         401, "bad-signature", "this webhook's secret"),
        ("another body", request(body=b"[]", headers=signed(b"{}", "x")), 401, "bad-signature", ""),
        ("another id", request(headers=standard(webhook_id="msg_y")), 401, "bad-signature", ""),
        ("signatures of an unknown version only",
         request(headers=standard(webhook_signature="v2,AAAA")), 401, "bad-signature", ""),
        ("a signature that is no text", request(headers=standard(webhook_signature="v1,\xff\xfe")),
         401, "bad-signature", ""),
        ("an id that stands twice", request(headers=signed(b"{}", "twice"), more=b"webhook-id: twice\r\n"),
         401, "bad-signature", ""),
        ("GitHub", request("/hooks/code", headers=github(b"{}", "g1"), sign=False), 202, "accepted", ""),
        ("GitHub's ping", request("/hooks/code", headers=github(b"{}", "g2", "ping"), sign=False),
         200, "pong", "is set up"),
        ("GitHub with another secret",
         request("/hooks/code", headers=github(b"{}", "g3", secret="else"), sign=False), 401, "bad-signature", ""),
        ("GitHub without a signature", request("/hooks/code"), 401, "no-signature", "X-Hub-Signature-256"),
        ("a ping that is not signed",
         request("/hooks/code", headers={"X-GitHub-Event": "ping"}, sign=False), 401, "no-signature", ""),
        # FIELD 14: an id that cannot be kept
        ("an id of 129 characters", request(delivery="i" * 129), 400, "bad-delivery-id", "at most 128"),
        # FIELD 15: cannot commit
        ("a full queue", request("/hooks/tight", delivery="t"), 503, "full", "max_waiting"),
        # FIELD 16: sizes, methods, media
        ("too large by its length", request("/hooks/small", b'"' + b"a" * 1000 + b'"'),
         413, "too-large", "1,000 bytes"),
        ("as large as may be", request("/hooks/small", b'"' + b"a" * 998 + b'"', delivery="b"), 202, "accepted", ""),
        ("neither length nor chunks", request(headers={"Content-Length": None}), 411, "no-length", "Content-Length"),
        ("an empty body", request(body=b""), 400, "empty", "nothing to work on"),
        ("GET", request(method="GET", body=b""), 405, "bad-method", "only POST"),
        ("PUT", request(method="PUT"), 405, "bad-method", "only POST"),
        ("OPTIONS", request(method="OPTIONS", body=b""), 405, "bad-method", "only POST"),
        ("POST to health", request("/healthz"), 405, "bad-method", "only GET, HEAD"),
        ("text", request(headers={"Content-Type": "text/plain"}), 415, "not-json", "application/json"),
        ("a form", request(headers={"Content-Type": "application/x-www-form-urlencoded"}), 415, "not-json", ""),
        ("no type", request(headers={"Content-Type": None}), 415, "not-json", ""),
        ("JSON of another charset", request(headers={"Content-Type": "application/json; charset=latin-1"}),
         415, "not-json", ""),
        ("JSON of a kind", request(headers={"Content-Type": "application/ld+json; charset=utf-8"}, delivery="c"),
         202, "accepted", ""),
        ("compressed", request(headers={"Content-Encoding": "gzip"}), 415, "compressed", "uncompressed"),
        ("an unknown transfer coding",
         request(headers={"Content-Length": None, "Transfer-Encoding": "gzip, chunked"}, body=chunked(b"{}")),
         501, "bad-coding", "chunked"),
        ("an unknown webhook", request("/hooks/none"), 404, "no-such-webhook", '"none"'),
        ("a path below a webhook", request("/hooks/shop/x"), 404, "not-found", ""),
        ("a slash behind a webhook", request("/hooks/shop/"), 404, "not-found", ""),
        ("another path", request("/", method="GET", body=b""), 404, "not-found", ""),
        ("a name with signs", request("/hooks/%1b%5bred"), 404, "no-such-webhook", "\\x1b[red"),
        # FIELD 17: strict JSON
        ("not JSON", request(body=b"{"), 400, "json-syntax", "line 1"),
        ("a key twice", request(body=b'{"a": 1, "a": 2}'), 400, "json-duplicate-key", '"a"'),
        ("NaN", request(body=b'{"a": NaN}'), 400, "json-nan", "NaN"),
        ("Infinity", request(body=b"[-Infinity]"), 400, "json-nan", ""),
        ("too large a number", request(body=b"[1e999]"), 400, "json-nan", ""),
        ("a number of 5000 digits", request(body=b"9" * 5000), 400, "json-number", "5000 digits"),
        ("half a character", request(body=rb'"\ud800"'), 400, "json-lone-surrogate", ""),
        ("a NUL as text", request(body=rb'"\u0000"'), 400, "json-nul", ""),
        ("a NUL byte", request(body=b'"\x00"'), 400, "nul", "position 1"),
        ("101 levels", request(body=b"[" * 101 + b"]" * 101), 400, "json-depth", "100"),
        ("100 levels", request(body=b"[" * 100 + b"]" * 100, delivery="d"), 202, "accepted", ""),
        ("100,000 levels", request(body=b"[" * 100_000), 400, "json-depth", ""),
        ("text behind it", request(body=b"{} x"), 400, "json-trailing", '"x"'),
        ("not UTF-8", request(body=b'"\xff"'), 400, "not-utf8", "position 1"),
        ("a pointer that names nothing", request("/hooks/keyed", b'{"data": {"order": 1}}'),
         400, "no-such-value", "/data/text"),
        ("a key that is an object", request("/hooks/keyed", b'{"data": {"order": {}, "text": "t"}}'),
         400, "bad-value", "key"),
        # FIELD 18: who may ask
        ("no Host", request(headers={"Host": None}), 400, "bad-host", "one Host"),
        ("two Hosts", request(more=b"Host: localhost\r\n"), 400, "bad-host", "not two"),
        ("a foreign Host", request(headers={"Host": "evil.example"}), 421, "foreign-host", "allowed_hosts"),
        ("a foreign Host for health", request("/healthz", b"", method="GET", headers={"Host": "evil.example"}),
         421, "foreign-host", ""),
        ("a foreign Host for an unknown path", request("/x", headers={"Host": "evil.example"}),
         421, "foreign-host", ""),
        ("an allowed Host with a port", request(headers={"Host": "hooks.example.org:8443"}, delivery="h1"),
         202, "accepted", ""),
        ("an allowed Host in capitals", request(headers={"Host": "LOCALHOST."}, delivery="h2"), 202, "accepted", ""),
        ("an IPv6 Host", request(headers={"Host": "[::1]:8765"}, delivery="h3"), 202, "accepted", ""),
        ("a Host behind an IPv6 one", request(headers={"Host": "[::1].evil.example"}), 421, "foreign-host", ""),
        ("a Host with a user", request(headers={"Host": "localhost@evil.example"}), 421, "foreign-host", ""),
        ("an empty Host", request(headers={"Host": ""}), 421, "foreign-host", ""),
        ("a whole URL names the host", request("http://evil.example/hooks/shop"),
         421, "foreign-host", "evil.example"),
        ("a whole URL of ours", request("http://localhost/hooks/shop", delivery="u", headers={"Host": "evil.example"}),
         202, "accepted", ""),
        ("a foreign Origin", request(headers={"Origin": "https://evil.example"}),
         403, "foreign-origin", "another site"),
        ("the Origin null", request(headers={"Origin": "null"}), 403, "foreign-origin", ""),
        ("our own Origin", request(headers={"Origin": "http://localhost:8765"}, delivery="o"), 202, "accepted", ""),
        # what is no HTTP
        ("a bad method", b"BREW /hooks/shop HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad-request", "HTTP/1.1"),
        ("no HTTP at all", b"hello\r\n\r\n", 400, "bad-request", ""),
        ("two lengths", request(more=b"Content-Length: 3\r\n"), 400, "bad-request", ""),
        ("length and chunks", request(more=b"Transfer-Encoding: chunked\r\n"), 400, "bad-request", ""),
        ("a length below nothing", request(headers={"Content-Length": "-1"}), 400, "bad-request", ""),
        ("a length that is no number", request(headers={"Content-Length": "2x"}), 400, "bad-request", ""),
        ("a space before the colon", request(more=b"X-A : b\r\n"), 400, "bad-request", ""),
        ("a folded header", request(more=b"X-A: b\r\n c\r\n"), 400, "bad-request", ""),
        ("CONNECT", b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad-request", ""),
        ("a star", b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "not-found", ""),
        ("HTTP/2 without asking", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "bad-request", ""),
        ("a bad chunk", request(headers={"Content-Length": None, "Transfer-Encoding": "chunked"}, body=b"zz\r\n{}\r\n"),
         400, "bad-request", ""),
        ("an address of 3 KiB", request("/" + "a" * 3000), 414, "url-too-long", "2,048"),
        ("headers of 20 KiB", request(more=b"X-A: " + b"a" * 20_000 + b"\r\n"), 431, "headers-too-large", "16,384"),
        ("101 headers", request(more=b"X-A: b\r\n" * 101), 431, "headers-too-large", "100 headers"),
        ("a header without an end", b"GET /healthz HTTP/1.1\r\nX-A: " + b"a" * 70_000, 431, "headers-too-large", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("name", [case[0] for case in cases()])
def test_each_case_has_its_one_outcome(site, name):
    sent, status, word, words = next(case[1:] for case in cases() if case[0] == name)
    before = site.items()
    (answer,) = site.talk(sent)
    said = answer.body.get("error") or answer.body["outcome"]
    assert (answer.status, said) == (status, word), answer
    assert words in answer.body.get("message", "")
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "date" in answer.headers
    assert not {"server", "access-control-allow-origin", "set-cookie"} & set(answer.headers)
    assert ("retry-after" in answer.headers) == (status == 503)
    assert site.items() == before + (status == 202), "an item for each 202, and for nothing else"
    if status == 405:
        assert "POST" in answer.headers["allow"] or "GET" in answer.headers["allow"]


def test_health_and_readiness_are_told_apart(site):
    ask = [
        request(path, b"", method="GET", headers={"Content-Length": None}) for path in ("/healthz", "/readyz")
    ]
    (alive,), (ready,) = site.talk(ask[0]), site.talk(ask[1])
    assert (alive.status, alive.body) == (200, {"alive": True})
    assert (ready.status, ready.body) == (200, {"ready": True, "reasons": []})
    site.trouble.append("the store cannot be written")
    try:
        (alive,), (ready,) = site.talk(ask[0]), site.talk(ask[1])
        assert alive.status == 200
        assert (ready.status, ready.body["reasons"]) == (503, ["the store cannot be written"])
        (refused,) = site.talk(request(delivery="in trouble"))
        assert (refused.status, refused.headers["retry-after"]) == (503, "60")
    finally:
        site.trouble.clear()


def test_a_head_request_gets_no_body(site):
    with site.connect() as sock:
        sock.sendall(request("/healthz", b"", method="HEAD"))
        data = b""
        while piece := sock.recv(4096):
            data += piece
    assert data.startswith(b"HTTP/1.1 200 ")
    assert data.endswith(b"\r\n\r\n")


def test_the_same_delivery_again_is_the_same_item_whatever_its_content(site):
    """FIELD 14."""
    (first,) = site.talk(request(body=b'{"n": 1}', delivery="again"))
    (second,) = site.talk(request(body=b'{"n": 1}', delivery="again"))
    (third,) = site.talk(request(body=b'{"n": 2}', delivery="again"))
    assert (first.status, second.status, third.status) == (202, 200, 200)
    assert first.body["id"] == second.body["id"] == third.body["id"]
    assert second.body["outcome"] == "duplicate"


def test_the_same_delivery_id_at_two_webhooks_is_two_items(site):
    (one,) = site.talk(request(delivery="shared"))
    (two,) = site.talk(request("/hooks/small", delivery="shared"))
    assert (one.status, two.status) == (202, 202)
    assert one.body["id"] != two.body["id"]


def test_a_bad_signature_reserves_nothing(site):
    """FIELD 14: who cannot sign cannot take an id away from who can."""
    (bad,) = site.talk(request(headers=signed(b"{}", "wanted", key=OTHER)))
    assert bad.status == 401
    assert site.rows("SELECT * FROM deliveries WHERE delivery_id = 'wanted'") == []
    (good,) = site.talk(request(delivery="wanted"))
    assert good.status == 202


def test_a_delivery_that_was_refused_for_its_content_may_come_again_mended(site):
    assert site.talk(request(body=b"{", delivery="mended"))[0].status == 400
    assert site.talk(request(body=b"{}", delivery="mended"))[0].status == 202


def test_without_an_id_each_delivery_is_new(site):
    """FIELD 14: no id header, no dedup."""
    sent = request("/hooks/code", b'{"same": true}', headers=github(b'{"same": true}'), sign=False)
    (one,), (two,) = site.talk(sent), site.talk(sent)
    assert (one.status, two.status) == (202, 202)
    assert one.body["id"] != two.body["id"]


def test_a_key_makes_two_deliveries_one_item_and_other_content_revises_it(site):
    def send(delivery: str, text: str):
        body = json.dumps({"data": {"order": 17, "text": text, "subject": "Order 17"}}).encode()
        (answer,) = site.talk(request("/hooks/keyed", body, delivery=delivery))
        return answer

    first, same, other = send("k1", "one"), send("k2", "one"), send("k3", "two")
    assert (first.status, same.status, other.status) == (202, 200, 202)
    assert first.body["id"] == same.body["id"] == other.body["id"]
    assert site.rows("SELECT key, title, body, revision, door, origin FROM items WHERE id = ?", first.body["id"]) == [
        ("17", "Order 17", "two", 2, "webhook", "keyed")
    ]  # fmt: skip


def test_without_pointers_the_item_is_the_json_as_it_came_and_its_title_says_which_delivery(site):
    body = b'{ "b": 1,\n  "a": "\xc3\xa4" }'
    (answer,) = site.talk(request(body=body, delivery="whole"))
    rows = site.rows("SELECT title, body, key FROM items WHERE id = ?", answer.body["id"])
    assert rows == [("shop whole", body.decode(), "shop:whole")]


def test_an_accept_wakes_the_loop_and_a_duplicate_does_not(site):
    site.woken.clear()
    site.talk(request(delivery="wake"))
    site.talk(request(delivery="wake"))
    assert site.woken == ["webhook shop"]


def test_both_secrets_of_a_webhook_are_good_while_they_are_changed(site):
    new = base64.b64decode("bmV3IHNlY3JldCBvZiAyNCBieXRlcyE=")
    site.surface.hooks = HOOKS | {"shop": HOOKS["shop"]._replace(secrets=(new, KEY))}
    try:
        for number, key in enumerate((new, KEY)):
            (answer,) = site.talk(request(headers=signed(b"{}", f"rotated-{number}", key=key)))
            assert answer.status == 202
    finally:
        site.surface.hooks = HOOKS


def test_a_token_closes_all_but_webhooks_and_health(tmp_path):
    """FIELD 18. There is nothing else yet: what a later version adds is closed from its first day."""
    site = Site(tmp_path, token=b"hush")
    try:
        for path, status in (
            ("/", 401),
            ("/status", 401),
            ("/hooks", 401),
            ("/healthz", 200),
            ("/readyz", 200),
        ):
            (answer,) = site.talk(request(path, b"", method="GET"))
            assert answer.status == status, path
        assert site.talk(request("/", b"", method="GET"))[0].headers["www-authenticate"] == "Bearer"
        for given, status in (("Bearer hush", 404), ("Bearer hus", 401), ("Basic hush", 401)):
            (answer,) = site.talk(request("/", b"", method="GET", headers={"Authorization": given}))
            assert answer.status == status, given
        assert site.talk(request())[0].status == 202
    finally:
        site.close()
