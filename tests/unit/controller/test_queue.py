"""The work queue's tasks: it happens, once at a time per key, and a failing key stops nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from millrace.controller.queue import Done, Outcome, Retry, WorkQueue
from millrace.controller.schedules import Backoff


class Recorded:
    """Measurements kept in lists."""

    def __init__(self) -> None:
        self.waits: list[str] = []
        self.outcomes: list[tuple[str, str]] = []

    def waited(self, key: str, seconds: float) -> None:
        self.waits.append(key)

    def worked(self, key: str, seconds: float, outcome: str) -> None:
        self.outcomes.append((key, outcome))


@asynccontextmanager
async def running(
    work: Callable[[str], Awaitable[Outcome]], workers: int = 2
) -> AsyncIterator[tuple[WorkQueue[str], Recorded]]:
    recorded = Recorded()
    queue = WorkQueue(work, recorded, workers=workers, backoff=Backoff(first=0.001), chance=lambda: 0.0)
    task = asyncio.create_task(queue.run())
    try:
        yield queue, recorded
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_key_is_worked_on() -> None:
    seen: asyncio.Queue[str] = asyncio.Queue()

    async def work(key: str) -> Outcome:
        await seen.put(key)
        return Done()

    async with asyncio.timeout(5), running(work) as (queue, _):
        queue.add("a")
        assert await seen.get() == "a"


async def test_workers_run_side_by_side_but_one_key_never_does() -> None:
    busy: set[str] = set()
    started = asyncio.Event()
    both = asyncio.Event()
    twice = asyncio.Event()
    count = 0

    async def work(key: str) -> Outcome:
        nonlocal count
        assert key not in busy
        busy.add(key)
        started.set()
        if busy == {"a", "b"}:
            both.set()
        await both.wait()
        busy.discard(key)
        count += key == "a"
        if count == 2:
            twice.set()
        return Done()

    async with asyncio.timeout(5), running(work) as (queue, recorded):
        queue.add("a")
        await started.wait()
        queue.add("a")
        queue.add("b")
        await twice.wait()
    assert all(outcome == "done" for _, outcome in recorded.outcomes)


async def test_a_retry_comes_back_by_itself() -> None:
    finished = asyncio.Event()
    attempts = 0

    async def work(key: str) -> Outcome:
        nonlocal attempts
        attempts += 1
        if attempts < 4:
            return Retry("Pulsar is away")
        finished.set()
        return Done()

    async with asyncio.timeout(5), running(work) as (queue, recorded):
        queue.add("a")
        await finished.wait()
    assert [outcome for _, outcome in recorded.outcomes][:3] == ["retry"] * 3


async def test_a_bug_in_one_object_stops_no_other() -> None:
    fine = asyncio.Event()

    async def work(key: str) -> Outcome:
        if key == "broken":
            raise KeyError("a bug")
        fine.set()
        return Done()

    async with asyncio.timeout(5), running(work, workers=1) as (queue, recorded):
        queue.add("broken")
        queue.add("sound")
        await fine.wait()
    assert ("broken", "error") in recorded.outcomes


async def test_a_resync_comes_after_its_time() -> None:
    times = 0
    second = asyncio.Event()

    async def work(key: str) -> Outcome:
        nonlocal times
        times += 1
        if times == 2:
            second.set()
        return Done(again_after=0.01)

    async with asyncio.timeout(5), running(work) as (queue, _):
        queue.add("a")
        await second.wait()


async def test_a_forgotten_key_does_not_come_back() -> None:
    seen: list[str] = []
    last = asyncio.Event()

    async def work(key: str) -> Outcome:
        seen.append(key)
        if key == "last":
            last.set()
        return Done()

    async with asyncio.timeout(5), running(work) as (queue, _):
        queue.add("gone", after=0.02)
        queue.add("last", after=0.04)
        queue.forget("gone")
        await last.wait()
    assert seen == ["last"]
