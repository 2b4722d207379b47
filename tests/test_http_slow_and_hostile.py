"""Clients that are slow, many, rude or gone: each meets its end, and a good one beside them is served (FIELD 16)."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress

import pytest
from http_world import QUICK, Site, answers, chunked, read_all, request

CHUNKED = {"Content-Length": None, "Transfer-Encoding": "chunked"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    site = Site(tmp_path_factory.mktemp("site"))
    yield site
    site.close()


@pytest.fixture
def made(tmp_path):
    """Sites with limits of their own."""
    sites = []

    def make(**limits):
        sites.append(Site(tmp_path / str(len(sites)), limits=QUICK._replace(**limits)))
        return sites[-1]

    yield make
    for one in sites:
        one.close()


def in_chunks(*chunks: bytes, path: str = "/hooks/shop", trailer: bytes = b"", **words) -> bytes:
    """A signed request whose body comes in chunks."""
    whole = request(path, b"".join(chunks), headers=CHUNKED, **words)
    return whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" + chunked(*chunks, trailer=trailer)


# ---------------------------------------------------------------- sizes


def test_a_client_that_is_still_sending_sees_the_413(site):
    """The rest is read and dropped for a moment: closing at once would reset the connection under the answer."""
    body = b"a" * (4 << 20)
    with site.connect() as sock:
        sock.sendall(request("/hooks/small", body))
        (answer,) = answers(read_all(sock))
    assert (answer.status, answer.body["error"]) == (413, "too-large")
    assert answer.headers["connection"] == "close"


def test_a_client_that_never_stops_sending_is_cut_off(site):
    with site.connect() as sock:
        sock.sendall(request("/hooks/small", b"", headers={"Content-Length": str(1 << 40)}))
        end = time.monotonic() + 30
        with suppress(ConnectionResetError, BrokenPipeError):
            while time.monotonic() < end:
                sock.sendall(b"a" * 65536)
                time.sleep(0.001)
    assert time.monotonic() < end


def test_chunks_are_cut_at_the_cap(site):
    (answer,) = site.talk(in_chunks(*[b"a" * 100] * 11, path="/hooks/small"))
    assert (answer.status, answer.body["error"]) == (413, "too-large")


def test_chunks_are_one_body_whatever_their_sizes(site):
    (answer,) = site.talk(in_chunks(b'{"a":', b" ", b'"b"', b"}", delivery="chunks"))
    assert answer.status == 202
    assert site.rows("SELECT body FROM items WHERE id = ?", answer.body["id"]) == [('{"a": "b"}',)]


def test_a_trailer_says_nothing(site):
    """What was checked as headers cannot be said anew behind the body."""
    trailer = b"Host: evil.example\r\nwebhook-id: other\r\nOrigin: null\r\n"
    (answer,) = site.talk(in_chunks(b"{}", trailer=trailer, delivery="trailer"))
    assert answer.status == 202
    assert site.rows("SELECT delivery_id FROM deliveries WHERE item_id = ?", answer.body["id"]) == [
        ("trailer",)
    ]


def test_a_body_of_almost_nothing_but_chunk_sizes_is_refused(made):
    site = made(wire=4096)
    head = request(headers=CHUNKED).partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    extension = b"1;" + b"x" * 1000 + b"\r\na\r\n"
    (answer,) = site.talk(head, *[extension] * 6, pause_s=0.02)
    assert (answer.status, answer.body["error"]) == (400, "bad-chunks")


def test_too_many_bytes_at_once_are_refused_and_the_room_comes_back(made):
    site = made(bodies=50_000)
    (answer,) = site.talk(request(body=b'"' + b"a" * 60_000 + b'"'))
    assert (answer.status, answer.body["message"]) == (503, "too much comes at once")
    (answer,) = site.talk(request(body=b'"' + b"a" * 40_000 + b'"'))
    assert answer.status == 202


def test_a_client_that_waits_for_leave_gets_it_or_the_answer(site):
    """Expect: 100-continue."""
    waits = {"Expect": "100-continue"}
    with site.connect() as sock:
        head, _, body = request(delivery="leave", headers=waits).partition(b"\r\n\r\n")
        sock.sendall(head + b"\r\n\r\n")
        assert sock.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(body)
        (answer,) = answers(read_all(sock))
        assert answer.status == 202
    with site.connect() as sock:
        sock.sendall(request("/hooks/small", b"", headers={**waits, "Content-Length": "5000"}))
        assert read_all(sock).startswith(b"HTTP/1.1 413 ")


# ---------------------------------------------------------------- time


def test_a_client_that_says_nothing_is_let_go_without_a_word(site):
    with site.connect() as sock:
        assert read_all(sock) == b""


def test_headers_that_drip_are_ended_with_408(site):
    with site.connect() as sock:
        sock.sendall(b"POST /hooks/shop HTTP/1.1\r\nHost: localhost\r\n")
        (answer,) = drip(sock, b"X-A: b\r\n")
    assert (answer.status, answer.body["error"]) == (408, "too-slow")


def test_a_body_that_drips_is_ended_with_408_and_nothing_is_stored(site):
    before = site.items()
    with site.connect() as sock:
        sock.sendall(request(body=b"", headers={"Content-Length": "1000"}))
        (answer,) = drip(sock, b"a")
    assert (answer.status, answer.body["error"]) == (408, "too-slow")
    assert site.items() == before
    assert site.said == []


def drip(sock: socket.socket, piece: bytes):
    """Send a piece now and then until the server has had enough."""
    end = time.monotonic() + 20
    data = b""
    sock.settimeout(0.2)
    while time.monotonic() < end:
        try:
            sock.sendall(piece)
            more = sock.recv(65536)
            if not more:
                break
            data += more
        except TimeoutError:
            continue
        except OSError:
            break
    return answers(data)


def test_two_hundred_slow_clients_do_not_keep_a_good_one_out(tmp_path):
    """FIELD 16, with the limits of the daemon itself: all of them are still being waited for."""
    from daemon.http.limits import Limits

    site = Site(tmp_path, limits=Limits())
    slow = [site.connect() for _ in range(200)]
    try:
        half = request(body=b"", headers={"Content-Length": "9"})
        for number, sock in enumerate(slow):
            sock.sendall((b"POST /hooks/shop HTTP/1.1\r\n", half, b"")[number % 3])
        for number in range(10):
            (answer,) = site.talk(request(delivery=f"good-{number}"))
            assert answer.status == 202
    finally:
        for sock in slow:
            sock.close()
        site.close()


def test_beyond_the_cap_the_slowest_are_dropped(made):
    site = made(connections=20, head_s=60, request_s=60)
    slow = [site.connect() for _ in range(60)]
    try:
        for number in range(5):
            (answer,) = site.talk(request(delivery=f"good-{number}"))
            assert answer.status == 202
        slow[0].settimeout(10)
        assert read_all(slow[0]) == b"", "the one that waited longest is gone"
        slow[-1].settimeout(0.1)
        with pytest.raises(TimeoutError):
            slow[-1].recv(1)
    finally:
        for sock in slow:
            sock.close()


def test_with_all_connections_at_work_a_new_one_is_told_so(made):
    site = made(connections=3)
    busy = []
    with site.store.db.gate.held(20):
        for number in range(3):
            sock = site.connect()
            sock.sendall(request(delivery=f"busy-{number}"))
            busy.append(sock)
        wait_until(lambda: [one.stage for one in site.server._open()] == ["answer"] * 3)
        (answer,) = site.talk(b"")
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    for sock in busy:
        assert answers(read_all(sock))[0].status == 202
        sock.close()


# ---------------------------------------------------------------- manners


def test_one_connection_takes_many_requests_and_is_closed_when_it_idles(site):
    with site.connect() as sock:
        for number in range(3):
            sock.sendall(request(delivery=f"kept-{number}", close=False))
            assert read_one(sock).status == 202
        assert read_all(sock) == b""


def read_one(sock: socket.socket):
    data = b""
    while not data.endswith(b"}\n"):
        data += sock.recv(65536)
    (answer,) = answers(data)
    return answer


def test_requests_in_one_packet_are_answered_in_their_order(site):
    sent = [request(delivery=f"piped-{number}", close=False) for number in range(5)]
    sent += [request(body=b"{", delivery="piped-bad", close=False), request("/healthz", b"", method="GET")]
    found = site.talk(b"".join(sent))
    assert [answer.status for answer in found] == [202] * 5 + [400, 200]


def test_rubbish_behind_a_good_request_does_not_take_its_answer(site):
    found = site.talk(request(delivery="before", close=False) + b"rubbish\r\n\r\n")
    assert [answer.status for answer in found] == [202, 400]
    assert found[0].body["outcome"] == "accepted"


def test_too_many_requests_in_one_packet_are_refused_behind_the_good_ones(made):
    site = made(pipelined=4)
    found = site.talk(b"".join(request(delivery=f"many-{number}", close=False) for number in range(12)))
    assert [answer.status for answer in found][-1] == 503
    assert {answer.status for answer in found[:-1]} == {202}
    assert len(found) >= 5


def test_a_client_that_half_closes_gets_its_answer(site):
    (answer,) = site.talk(request(delivery="half", close=False), half_close=True)
    assert answer.status == 202


def test_a_client_that_goes_away_in_the_middle_leaves_nothing(site):
    before = site.items()
    with site.connect() as sock:
        sock.sendall(request(body=b"", headers={"Content-Length": "100"}) + b"{")
    (answer,) = site.talk(request(delivery="after the gone one"))
    assert answer.status == 202
    assert site.items() == before + 1
    assert site.said == []


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_nobody_is_upgraded_and_nobody_is_refused_for_offering_it(site, protocol):
    """Some clients offer HTTP/2 with every request; their bodies count all the same."""
    offer = {"Connection": "Upgrade", "Upgrade": protocol, "HTTP2-Settings": "x"}
    get = request("/healthz", b"", method="GET", headers={**offer, "Content-Length": None})
    sent = get + request(delivery=f"offered-{protocol}", headers=offer)
    sent += in_chunks(b"{", b"}", delivery=f"offered-{protocol}-2") if protocol == "h2c" else get
    sent += request("/healthz", b"", method="GET")
    for pieces in ([sent], [sent[place : place + 7] for place in range(0, len(sent), 7)]):
        found = site.talk(*pieces)
        assert [answer.status for answer in found][:2] == [200, 202 if pieces == [sent] else 200]
    assert len(found) in {3, 4}


def test_every_byte_of_a_request_may_come_alone(site):
    sent = request(delivery="alone")
    (answer,) = site.talk(*[sent[place : place + 1] for place in range(len(sent))])
    assert answer.status == 202


# ---------------------------------------------------------------- the end


def test_a_stop_answers_what_came_whole_and_sends_the_rest_away(tmp_path):
    site = Site(tmp_path)
    whole, half, silent = site.connect(), site.connect(), site.connect()
    with site.store.db.gate.held(20):
        whole.sendall(request(delivery="whole"))
        half.sendall(request(body=b"", headers={"Content-Length": "9"}))
        wait_until(lambda: sorted(one.stage for one in site.server._open()) == ["answer", "body", "head"])
        site._end.set()
        (answer,) = answers(read_all(half))
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert read_all(silent) == b""
    (answer,) = answers(read_all(whole))
    assert answer.status == 202
    with pytest.raises(OSError, match="refused"):
        site.connect()
    assert site.items() == 1
    for sock in (whole, half, silent):
        sock.close()
    site.close()


def wait_until(condition, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# ---------------------------------------------------------------- many at once


def test_deliveries_that_wait_together_share_one_commit(site):
    before = site.rows("SELECT seq FROM commits")[0][0]
    found: list[int] = []

    def send(number: int) -> None:
        found.append(site.talk(request(delivery=f"together-{number}"))[0].status)

    with site.store.db.gate.held(20):
        threads = [threading.Thread(target=send, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        wait_until(lambda: [one.stage for one in site.server._open()].count("answer") == 16)
    for thread in threads:
        thread.join(20)
    assert found == [202] * 16
    assert site.rows("SELECT seq FROM commits")[0][0] == before + 1


def test_one_that_cannot_be_stored_does_not_take_the_others_with_it(site):
    """A row that SQLite itself refuses: the batch is rolled back, and each is tried alone."""
    with site.store.db.write(point="events.note") as conn:
        conn.execute(
            "CREATE TRIGGER poison BEFORE INSERT ON items WHEN new.body LIKE '%poison%' "
            "BEGIN SELECT RAISE(ABORT, 'poisoned'); END"
        )
    found: dict[str, int] = {}

    def send(word: str) -> None:
        body = json.dumps({"word": word}).encode()
        found[word] = site.talk(request(body=body, delivery=f"mixed-{word}"))[0].status

    words = ["a", "b", "poison", "c"]
    with site.store.db.gate.held(20):
        threads = [threading.Thread(target=send, args=(word,)) for word in words]
        for thread in threads:
            thread.start()
        wait_until(lambda: [one.stage for one in site.server._open()].count("answer") == 4)
    for thread in threads:
        thread.join(20)
    with site.store.db.write(point="events.note") as conn:
        conn.execute("DROP TRIGGER poison")
    assert found == {"a": 202, "b": 202, "poison": 500, "c": 202}
    assert site.talk(request(body=b'{"word": "poison"}', delivery="mixed-poison"))[0].status == 202
    site.said.clear()


def test_a_full_queue_refuses_its_own_and_nobody_elses(site):
    found: dict[str, int] = {}

    def send(path: str) -> None:
        found[path] = site.talk(request(path, delivery="beside"))[0].status

    with site.store.db.gate.held(20):
        threads = [threading.Thread(target=send, args=(path,)) for path in ("/hooks/tight", "/hooks/shop")]
        for thread in threads:
            thread.start()
        wait_until(lambda: [one.stage for one in site.server._open()].count("answer") == 2)
    for thread in threads:
        thread.join(20)
    assert found == {"/hooks/tight": 503, "/hooks/shop": 202}
    assert site.rows("SELECT * FROM deliveries WHERE source = 'webhook:tight'") == []


def test_a_store_that_stays_busy_is_a_503_and_nothing_is_stored(site, monkeypatch):
    """FIELD 15."""
    monkeypatch.setattr("triggers.webhooks.accept.GATE_WAIT_S", 0.3)
    with site.store.db.gate.held(20):
        (answer,) = site.talk(request(delivery="busy"))
    assert (answer.status, answer.body["error"], answer.headers["retry-after"]) == (503, "busy", "5")
    assert site.rows("SELECT * FROM deliveries WHERE delivery_id = 'busy'") == []
    assert site.talk(request(delivery="busy"))[0].status == 202


def test_more_than_may_wait_are_told_to_come_again(site, monkeypatch):
    monkeypatch.setattr("triggers.webhooks.accept.MAX_WAITING", 2)
    monkeypatch.setattr("triggers.webhooks.accept.MAX_BATCH", 1)
    found: list[int] = []

    def send(number: int) -> None:
        found.append(site.talk(request(delivery=f"crowd-{number}"))[0].status)

    with site.store.db.gate.held(20):
        threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        wait_until(lambda: found.count(503) >= 5)
    for thread in threads:
        thread.join(20)
    assert len(found) == 8
    assert 2 <= found.count(202) <= 3, "one that is being stored, and two that wait"
    assert found.count(202) + found.count(503) == 8


def test_a_store_that_was_replaced_ends_the_daemon_and_stores_nothing(tmp_path):
    """FIELD 22."""
    site = Site(tmp_path)
    assert site.talk(request(delivery="before"))[0].status == 202
    site.store.db.path.rename(tmp_path / "moved.db")
    (answer,) = site.talk(request(delivery="after"))
    assert (answer.status, answer.body["error"]) == (503, "store")
    wait_until(lambda: site.fatal)
    assert "replaced or removed" in str(site.fatal[0])
    site.close()
