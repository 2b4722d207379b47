"""Who loses a claim, and who must go for holding the gate: pure judgements, and the gate as the kernel shows it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from daemon import sweep
from daemon.gatewatch import BUSY_S, HUNG_S, GateWatch, Look, look_at
from daemon.sweep import judge
from store import owners
from store.claims import Lease

ME, OLD = "b:n:1:10:x", "b:n:2:5:x"
WORKER = "b:n:9:50:w"


def lease(*, owner=WORKER, daemon=ME, expires_at=100.0):
    return Lease("n", "q-1", "work", 1, "t", owner, daemon, expires_at, 0.0, None)


def judged(one, *, now=50.0, mine=(), **seen):
    verdicts = {ME: "alive", OLD: "dead"} | seen.get("seen", {})
    found = judge([one], now=now, me=ME, mine=mine, verdict=lambda owner: verdicts.get(owner, "dead"))
    return [(item.cause, item.kill) for item in found]


def test_a_living_worker_of_ours_is_left_to_its_deadline():
    assert judged(lease(), mine=[WORKER], seen={WORKER: "alive"}) == []
    assert judged(lease(expires_at=1.0), mine=["b:n:9:50:"], seen={WORKER: "alive"}) == []


def test_a_dead_owner_is_taken_from_at_once():
    assert judged(lease(), seen={WORKER: "dead"}) == [("worker", False)]
    assert judged(lease(daemon=OLD), seen={WORKER: "dead"}) == [("daemon", False)]


def test_an_orphan_of_a_dead_daemon_is_killed_first():
    assert judged(lease(daemon=OLD), seen={WORKER: "alive"}) == [("daemon", True)]


def test_any_other_living_owner_keeps_its_claim_until_the_lease_is_over():
    assert judged(lease(), seen={WORKER: "alive"}) == []
    assert judged(lease(), now=100.0, seen={WORKER: "alive"}) == [("expired", True)]


def test_an_owner_of_another_namespace_loses_its_claim_by_time_alone_and_is_not_killed():
    assert judged(lease(daemon=OLD), seen={WORKER: "unknown"}) == []
    assert judged(lease(daemon=OLD), now=101.0, seen={WORKER: "unknown"}) == [("expired", False)]


def test_an_owner_is_dead_before_its_claim_is_taken():
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    one = lease(owner=owners.of(child.pid))
    assert sweep.make_sure([sweep.Judged(one, "expired", kill=True)]) == [(one, "expired")]
    assert owners.verdict(one.owner) == "dead"
    assert child.wait(5) == -signal.SIGKILL


# ------------------------------------------------------------------ the gate


def looks(*, pid=7, awaited=True, commit=b"5", work=(1, 1)):
    return Look(pid, awaited=awaited, commit=commit, work=work)


def test_a_still_holder_that_others_wait_for_is_hung_after_two_seconds(tmp_path):
    watch = GateWatch(tmp_path / "x")
    assert [watch.hung(at, looks()) for at in (0.0, 1.0, HUNG_S)] == [None, None, 7]


def test_nobody_is_hung_while_commits_go_on_or_nobody_waits(tmp_path):
    watch = GateWatch(tmp_path / "x")
    assert [watch.hung(float(at), looks(commit=b"%d" % at)) for at in range(20)] == [None] * 20
    watch = GateWatch(tmp_path / "x")
    assert [watch.hung(float(at), looks(awaited=False)) for at in range(20)] == [None] * 20


def test_a_holder_that_works_on_gets_as_long_as_writers_wait_anyway(tmp_path):
    watch = GateWatch(tmp_path / "x")
    found = [watch.hung(float(at), looks(work=(at, at))) for at in range(12)]
    assert found.index(7) == int(BUSY_S)


HOLDER = """
import fcntl, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(fd, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def test_the_kernel_shows_who_holds_the_gate_and_whether_anybody_waits(tmp_path):
    lock = tmp_path / "store.lock"
    lock.write_bytes(b"%015d\n" % 41)
    assert look_at(lock).pid is None
    assert look_at(tmp_path / "none").pid is None

    def start():
        return subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdout=subprocess.PIPE, text=True)

    with start() as holder:
        holder.stdout.readline()
        seen = look_at(lock)
        assert (seen.pid, seen.awaited) == (holder.pid, False)
        with start() as waiter:
            end = time.monotonic() + 20
            while not look_at(lock).awaited:
                assert time.monotonic() < end
                time.sleep(0.01)
            seen = look_at(lock)
            assert (seen.pid, seen.commit.strip()) == (holder.pid, b"000000000000041")
            assert seen.work == look_at(lock).work  # it sleeps
            waiter.kill()
        holder.kill()
    if look_at(lock).pid is not None:
        pytest.fail(f"somebody else holds it: {os.listdir(tmp_path)}")
