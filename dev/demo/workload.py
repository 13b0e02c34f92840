"""Load with a memory: producers that number every group's messages, a reader that judges what comes back."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field

from millrace.client import Connection, Consumer, Producer
from millrace.core.positions import Position
from millrace.core.promise import PromiseChecker

SUBSCRIPTION = "judge"
"""Durable, so that Pulsar keeps what is not read yet, whatever happens to the broker meanwhile."""


@dataclass(slots=True)
class Workload:
    """Shared by the producers, the reader and the screen; everything runs in one event loop."""

    connection: Connection
    pulsar_namespace: str
    topic: str
    producers: int
    groups: int
    rate: float
    prefix: str = "customer"
    """What the groups are called."""
    checker: PromiseChecker = field(default_factory=PromiseChecker)
    acknowledged: int = 0
    per_storage_topic: Counter[int] = field(default_factory=Counter)
    read_per_storage_topic: Counter[int] = field(default_factory=Counter)
    positions: dict[tuple[str, int], Position] = field(default_factory=dict)
    """Where each message was first read: one that is read again from there was delivered twice, which a fault
    may cause; one that is read from elsewhere was stored twice, which nothing may cause."""
    stored_twice: list[str] = field(default_factory=list)
    also_told: list[PromiseChecker] = field(default_factory=list)
    """Further judges, of deliveries to elsewhere, who have to know what was sent."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def produce(self, index: int) -> None:
        """One producer, at its share of the rate, until told to stop; each group belongs to one producer."""
        mine = [f"{self.prefix}-{group:04d}" for group in range(index, self.groups, self.producers)]
        pause = self.producers / self.rate
        loop = asyncio.get_running_loop()
        async with await Producer.open(
            self.connection, self.topic, pulsar_namespace=self.pulsar_namespace
        ) as producer:
            due, sent = loop.time(), 0
            pending: set[asyncio.Task[None]] = set()
            while not self.stopping.is_set():
                group = mine[sent % len(mine)]
                number = self.checker.next_number(group)
                for judge in self.also_told:
                    judge.next_number(group)
                payload = json.dumps({"group": group, "number": number, "producer": index}).encode()
                future = producer.send_nowait(group, payload)
                task = asyncio.ensure_future(self._acknowledge(future))
                pending.add(task)
                task.add_done_callback(pending.discard)
                sent += 1
                due += pause
                if (delay := due - loop.time()) > 0:
                    await asyncio.sleep(delay)
                elif len(pending) > 2000:
                    await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*pending)

    async def _acknowledge(self, future: asyncio.Future[Position]) -> None:
        position = await future
        self.acknowledged += 1
        self.per_storage_topic[position.storage_topic] += 1

    async def read(self) -> None:
        """Read the whole composite topic in its order and judge every message."""
        async with await Consumer.open(
            self.connection, self.topic, pulsar_namespace=self.pulsar_namespace, subscription=SUBSCRIPTION
        ) as consumer:
            async for message in consumer:
                document = json.loads(message.payload)
                self._judge(document["group"], document["number"], message.position)
                await consumer.ack(message)

    def _judge(self, group: str, number: int, position: Position) -> None:
        self.read_per_storage_topic[position.storage_topic] += 1
        first = self.positions.setdefault((group, number), position)
        if first != position:
            self.stored_twice.append(f"{group} {number} at {first} and at {position}")
        self.checker.deliver(group, number)
