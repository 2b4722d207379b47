"""What nobody thought of: requests made from the description of the surface, and bytes made from requests."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
import schemathesis
from http_world import QUICK, Site, answers, chunked, read_all, request
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance
from webhook_world import signed

schema = schemathesis.openapi.from_dict(json.loads((Path(__file__).parent / "openapi.json").read_text()))
QUIETLY = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    site = Site(tmp_path_factory.mktemp("site"), limits=QUICK._replace(drain_s=0.05))
    yield site
    assert site.said == [], "a fault of ours was told"
    site.close()


@schema.parametrize()
@QUIETLY
def test_what_the_description_allows_is_answered_as_it_says(site, case):
    response = case.call(base_url=f"http://127.0.0.1:{site.port}")
    checks = [not_a_server_error, status_code_conformance, response_schema_conformance]
    case.validate_response(response, checks=checks)


@QUIETLY
@given(body=st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
), delivery=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40))  # fmt: skip
def test_any_signed_json_is_stored_as_it_came_or_refused_by_name(site, body, delivery):
    text = json.dumps(body).encode()
    (answer,) = site.talk(request(body=text, delivery=delivery))
    assert answer.status in {200, 202, 400}, answer
    if answer.status == 400:
        assert answer.body["error"] in {"json-nul", "json-lone-surrogate", "json-number", "json-nan"}
    elif answer.status == 202:
        assert site.rows("SELECT body FROM items WHERE id = ?", answer.body["id"]) == [(text.decode(),)]


@QUIETLY
@given(body=st.binary(max_size=300))
def test_any_signed_bytes_get_one_named_answer(site, body):
    (answer,) = site.talk(request(body=body, delivery=f"bytes-{body.hex()[:80]}"))
    assert answer.status in {200, 202, 400}
    assert answer.status != 400 or answer.body["error"]


def whole() -> bytes:
    health = request("/healthz", b"", method="GET", close=False)
    return request(delivery="mangled", close=False) + health


def packed() -> bytes:
    headers = {**signed(b"{}", "mangled"), "Content-Length": None, "Transfer-Encoding": "chunked"}
    return request(body=b"", headers=headers) + chunked(b"{", b"}")


ENDS = st.sampled_from([b"\r\n", b"\r\n\r\n", b"\n", b" ", b"\x00", b"0\r\n\r\n", b":"])
EXPECTED = {200, 202, 400, 401, 403, 404, 405, 408, 411, 413, 414, 415, 421, 431, 501}


@QUIETLY
@given(
    made=st.sampled_from([whole, packed]),
    place=st.integers(0, 600),
    cut=st.integers(0, 40),
    put=st.binary(max_size=12) | ENDS,
)
def test_mangled_bytes_never_get_more_than_they_asked_for(site, made, place, cut, put):
    """Whatever a parser may make of it: no fault of ours, whole answers, and one item of this id at most."""
    source = made()
    mangled = source[:place] + put + source[place + cut :]
    with site.connect() as sock:
        with suppress(OSError):
            for piece in (mangled[: place // 2], mangled[place // 2 :]):
                sock.sendall(piece)
            sock.shutdown(1)
        found = answers(read_all(sock))
    assert {answer.status for answer in found} <= EXPECTED
    assert len(site.rows("SELECT 1 FROM deliveries WHERE delivery_id = 'mangled'")) <= 1
