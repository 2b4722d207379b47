"""A session that faults, is killed, eats memory or hangs harms nobody else (DESIGN 4, FIELD 25–27, 31)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from daemon.workers import CannotStart, Pool
from store import owners


@pytest.fixture(autouse=True)
def _helper_jobs(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


class Watched(Pool):
    """A pool whose callbacks are kept."""

    def __init__(self, **kwargs):
        self.said, self.deaths, self.logged = [], [], []
        super().__init__(
            on_message=lambda worker, message: self.said.append((worker.pid, message)),
            on_death=self.deaths.append,
            log=self.logged.append,
            entry="helper_jobs:work",
            **kwargs,
        )

    def of_type(self, kind):
        return [message for _, message in self.said if message["type"] == kind]

    async def until(self, condition, seconds=20.0):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, (self.said, self.deaths, self.logged)
            await asyncio.sleep(0.005)

    async def death_of(self, worker):
        await self.until(lambda: any(death.worker is worker for death in self.deaths))
        return next(death for death in self.deaths if death.worker is worker)


@asynccontextmanager
async def pool(**kwargs):
    watched = Watched(**kwargs)
    await watched.start()
    try:
        yield watched
    finally:
        await watched.stop(0)


def run(story):
    asyncio.run(asyncio.wait_for(story(), 90))


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(
    ("job", "cause", "words"),
    [
        ({"do": "segfault"}, "killed", "killed by SIGSEGV"),
        ({"do": "kill_self"}, "killed", "killed by SIGKILL"),
        ({"do": "eat_memory"}, "failed", "exit 1: MemoryError: "),
        ({"do": "fail", "why": "bad"}, "failed", "exit 1: ValueError: bad"),
        ({"do": "hang", "seconds": 0.3}, "deadline", "killed past its deadline"),
    ],
)
def test_one_bad_worker_harms_no_other(job, cause, words):
    async def story():
        async with pool(memory_bytes=512 << 20) as workers:
            good = await workers.start_worker({"do": "sessions_until_stopped"})
            bad = await workers.start_worker(job)
            death = await workers.death_of(bad)
            assert (death.cause, death.words()) == (cause, words)
            heard = len(workers.said)
            await workers.until(lambda: len(workers.said) > heard + 2)  # the other one works on
            assert list(workers.workers) == [good.pid]
            assert len(workers.deaths) == 1
            after = await workers.start_worker({"do": "echo", "value": "still here"})
            assert (await workers.death_of(after)).cause == "returned"

    run(story)


def test_a_hung_workers_children_die_with_it():
    """A command that a decider started is in the worker's group (FIELD 27)."""

    async def story():
        async with pool() as workers:
            await workers.start_worker({"do": "hang", "seconds": 0.3})
            await workers.until(lambda: workers.of_type("session_started"))
            child = workers.of_type("session_started")[0]["child"]
            assert not gone(child)
            await workers.until(lambda: workers.deaths and gone(child))

    run(story)


def test_a_worker_that_declares_a_later_deadline_in_time_may_go_on():
    async def story():
        async with pool() as workers:
            worker = await workers.start_worker({"do": "short_then_long", "times": 5, "seconds": 0.6})
            assert (await workers.death_of(worker)).cause == "returned"

    run(story)


def test_a_worker_that_says_nothing_at_all_is_killed_too():
    async def story():
        async with pool(quiet_s=0.3) as workers:
            worker = await workers.start_worker({"do": "sessions_until_stopped", "each": 0.1})
            await asyncio.sleep(0.6)
            assert not workers.deaths  # it talks
            silent = await workers.start_worker({"do": "leave_a_child"})
            assert (await workers.death_of(silent)).cause == "returned"
            hung = await workers.start_worker({"do": "hang_before_anything"})
            assert (await workers.death_of(hung)).cause == "deadline"
            assert worker.pid in workers.workers

    run(story)


def test_a_jump_of_the_wall_clock_kills_nobody():
    async def story():
        jump = 0.0
        async with pool(clock=lambda: time.time() + jump) as workers:
            worker = await workers.start_worker({"do": "hang", "seconds": 60})
            await workers.until(lambda: workers.of_type("session_started"))
            jump = 86400.0
            await asyncio.sleep(0.3)
            assert worker.pid in workers.workers

    run(story)


def test_what_a_worker_said_right_before_it_died_is_heard_before_its_death():
    async def story():
        async with pool() as workers:
            worker = await workers.start_worker({"do": "flood", "count": 3000})
            await workers.death_of(worker)
            assert [message["number"] for message in workers.of_type("n")] == list(range(3000))

    run(story)


def test_noise_is_logged_and_the_good_message_heard():
    async def story():
        async with pool() as workers:
            await workers.death_of(await workers.start_worker({"do": "noise"}))
            assert [message["type"] for _, message in workers.said] == ["good"]
            assert len(workers.logged) == 4
            flooder = await workers.start_worker({"do": "endless_line"})
            assert (await workers.death_of(flooder)).cause == "failed"

    run(story)


def test_stopping_lets_sessions_finish_within_the_grace_and_kills_the_rest():
    """FIELD 31: the running session gets its grace."""

    async def story():
        workers = Watched()
        await workers.start()
        polite = await workers.start_worker({"do": "sessions_until_stopped", "each": 0.2})
        stubborn = await workers.start_worker({"do": "hang", "seconds": 60})
        await workers.until(lambda: len(workers.of_type("session_started")) >= 2)
        started = time.monotonic()
        await workers.stop(1.0)
        assert 0.9 < time.monotonic() - started < 5
        causes = {death.worker.pid: death.cause for death in workers.deaths}
        assert causes == {polite.pid: "returned", stubborn.pid: "stopped"}
        assert workers.of_type("idle")
        assert workers.zygote_pid is None
        with pytest.raises(CannotStart, match="stopping"):
            await workers.start_worker({"do": "nothing"})

    run(story)


def test_a_second_wish_to_stop_ends_at_once():
    async def story():
        workers = Watched()
        await workers.start()
        await workers.start_worker({"do": "hang", "seconds": 60})
        await workers.until(lambda: workers.of_type("session_started"))
        stopping = asyncio.create_task(workers.stop(60))
        await asyncio.sleep(0.1)
        workers.kill_all("stopped")
        await asyncio.wait_for(stopping, 5)
        assert [death.cause for death in workers.deaths] == ["stopped"]

    run(story)


def test_a_killed_zygote_takes_its_workers_and_another_one_starts():
    async def story():
        async with pool() as workers:
            lost = [await workers.start_worker({"do": "hang", "seconds": 60}) for _ in range(2)]
            await workers.until(lambda: len(workers.of_type("session_started")) == 2)
            children = [message["child"] for message in workers.of_type("session_started")]
            first = workers.zygote_pid
            os.kill(first, signal.SIGKILL)
            await workers.until(lambda: len(workers.deaths) == 2)
            assert {death.cause for death in workers.deaths} == {"zygote"}
            assert {death.worker for death in workers.deaths} == set(lost)
            assert all(owners.verdict(worker.owner) == "dead" for worker in lost)
            await workers.until(lambda: workers.zygote_pid not in (None, first))
            worker = await workers.start_worker({"do": "nothing"})
            assert (await workers.death_of(worker)).cause == "returned"
            assert workers.zygotes_lost == 1
            await workers.until(lambda: all(gone(child) for child in children))

    run(story)


def test_a_frozen_zygote_is_replaced(monkeypatch):
    monkeypatch.setattr("daemon.forker.FORK_WAIT_S", 0.5)

    async def story():
        async with pool() as workers:
            first = workers.zygote_pid
            os.kill(first, signal.SIGSTOP)
            with pytest.raises(CannotStart, match=r"within 0\.5 s"):
                await workers.start_worker({"do": "nothing"})
            await workers.until(lambda: workers.zygote_pid not in (None, first))
            worker = await workers.start_worker({"do": "nothing"})
            assert (await workers.death_of(worker)).cause == "returned"

    run(story)


def test_many_short_workers_are_each_reported_once():
    async def story():
        async with pool() as workers:
            started = await asyncio.gather(*(workers.start_worker({"do": "nothing"}) for _ in range(60)))
            await workers.until(lambda: len(workers.deaths) == 60)
            assert {death.worker.pid for death in workers.deaths} == {worker.pid for worker in started}
            assert all(death.cause == "returned" for death in workers.deaths)
            assert len(workers) == 0

    run(story)
