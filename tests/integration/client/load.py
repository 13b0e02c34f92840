"""Producers under load, here or in processes of their own, and the judgement of what they stored.

A group belongs to one producer. Its messages are `GROUP NUMBER`, numbered from 0.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from millrace.client import Connection, Message, Position, Producer
from tests.support.waiting import eventually

OPERATOR = Path(__file__).parents[3] / "operator"
PAUSE = 0.03
PATIENCE = 120.0
"""Seconds: a native client that loses an answer while it connects tries again after half a minute."""


class Writer:
    """Sends each group's next message, round after round, until it is told to stop."""

    def __init__(self, producer: Producer, groups: Sequence[str]) -> None:
        self.producer = producer
        self.groups = groups
        self.sent: dict[tuple[str, int], asyncio.Future[Position]] = {}
        self.newest: Position | None = None
        self.failure: BaseException | None = None
        self.stopping = False

    async def run(self) -> None:
        for number in itertools.count():
            if self.stopping:
                break
            for group in self.groups:
                future = await self.producer.submit(group, f"{group} {number}".encode())
                self.sent[group, number] = future
                future.add_done_callback(self._acknowledged)
            await asyncio.sleep(PAUSE)
        await self.producer.flush()

    def positions(self) -> dict[tuple[str, int], Position]:
        """Of everything that was acknowledged; while nothing has failed, of everything that was sent."""
        return {key: f.result() for key, f in self.sent.items() if f.done() and f.exception() is None}

    async def reaches(self, storage_topic: int) -> None:
        await eventually(
            lambda: self._works() and self.newest is not None and self.newest.storage_topic >= storage_topic,
            timeout=PATIENCE,
            describe=lambda: f"the newest message is at {self.newest}",
        )

    async def proceeds(self) -> None:
        """Wait until everything is acknowledged that was sent so far, and some more was."""
        so_far = list(self.sent.values())
        await eventually(
            lambda: self._works() and len(self.sent) > len(so_far) and all(f.done() for f in so_far),
            timeout=PATIENCE,
        )

    def _works(self) -> bool:
        if self.failure is not None:
            raise self.failure
        return True

    def _acknowledged(self, future: asyncio.Future[Position]) -> None:
        if future.cancelled():
            return
        if (failure := future.exception()) is None:
            self.newest = future.result()
        elif self.failure is None:
            self.failure = failure


@asynccontextmanager
async def writers(
    connection: Connection, topic: str, count: int, groups_each: int
) -> AsyncIterator[list[Writer]]:
    """Producers that write at the same time; they end, with everything sent, when the block does."""
    producers = [await Producer.open(connection, topic) for _ in range(count)]
    made = [
        Writer(producer, [f"w{index}-g{group}" for group in range(groups_each)])
        for index, producer in enumerate(producers)
    ]
    running = [asyncio.ensure_future(writer.run()) for writer in made]
    try:
        yield made
        for writer in made:
            writer.stopping = True
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for producer in producers:
            await producer.close()


class Child:
    """A writer in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.acknowledged: set[tuple[str, int]] = set()
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            group, number = line.decode().split()
            self.acknowledged.add((group, int(number)))

    async def proceeds(self, by: int = 200) -> None:
        """Wait for so many more acknowledgements."""
        before = len(self.acknowledged)
        await eventually(
            lambda: len(self.acknowledged) >= before + by,
            timeout=60,
            describe=lambda: f"{len(self.acknowledged) - before} of {by}",
        )

    async def finish(self) -> None:
        """Let it send what it has, and end."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        async with asyncio.timeout(60):
            assert await self.process.wait() == 0
            await self._reading

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()
        await self._reading


@asynccontextmanager
async def child(topic: str, groups: Iterable[str]) -> AsyncIterator[Child]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("writer.py")),
        topic,
        *groups,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(OPERATOR)},
    )
    made = Child(process)
    try:
        yield made
    finally:
        if process.returncode is None:
            await made.kill()


def numbers(messages: Iterable[Message]) -> dict[str, list[int]]:
    """Each group's numbers as they are stored."""
    found: dict[str, list[int]] = {}
    newest: dict[str, Position] = {}
    for message in messages:
        group, number = message.payload.decode().split()
        assert message.group_id == group
        assert group not in newest or newest[group] < message.position, "read in another order than stored"
        newest[group] = message.position
        found.setdefault(group, []).append(int(number))
    return found


def assert_complete_and_in_order(messages: Iterable[Message], sent: Iterable[tuple[str, int]]) -> None:
    """What was sent is stored: once, in order, and nothing else."""
    expected: dict[str, list[int]] = {}
    for group, number in sent:
        expected.setdefault(group, []).append(number)
    found = numbers(messages)
    assert found.keys() == expected.keys()
    for group, stored in found.items():
        assert stored == sorted(expected[group]), f"{group} is stored as {stored}"
