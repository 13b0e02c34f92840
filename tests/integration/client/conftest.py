"""Composite topics on a broker from the environment: made, written to and switched as the operator would.

Every test has topics of its own and leaves none behind.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

import pulsar
import pytest

from millrace.client import Connection, Consumer, Message, Position, Producer
from millrace.core.descriptor import Descriptor, begin_switch, complete_step, initial
from millrace.core.names import descriptor_topic_name, storage_topic_name
from millrace.core.positions import EntryId
from millrace.core.routing import Routing, partition_of
from millrace.pulsar import descriptors
from millrace.pulsar.admin import Admin, Retention
from millrace.pulsar.termination import seal_partition
from tests.support import pulsar as support

OWNER = {"millrace.dev/name": "client-test"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = __file__.rpartition("/")[0]
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.integration)
            if not support.available():
                item.add_marker(pytest.mark.skip("PULSAR_SERVICE_URL and PULSAR_ADMIN_URL are not set"))


class Composite:
    """A composite topic. `name` is what applications call it."""

    def __init__(self, admin: Admin, client: pulsar.Client, connection: Connection) -> None:
        self.name = f"test/client-{uuid.uuid4().hex[:8]}"
        self.connection = connection
        self._admin = admin
        self._client = client
        self._where = descriptor_topic_name(support.NAMESPACE, *self.name.split("/"))
        self._descriptor: Descriptor | None = None
        self._topics: list[str] = []

    @property
    def descriptor(self) -> Descriptor:
        assert self._descriptor is not None, "create it first"
        return self._descriptor

    async def create(self, *partitions: int, adopted: int | None = None) -> None:
        """With storage topics of so many partitions. The adopted one counts as routed by somebody else."""
        namespace, name = self.name.split("/")
        topics = [
            (storage_topic_name(support.NAMESPACE, namespace, name, index), count, index == adopted)
            for index, count in enumerate(partitions)
        ]
        self._topics = [self._where, *(topic for topic, _, _ in topics)]
        for topic, count, _ in topics:
            await self._admin.create_partitioned_topic(topic, count, OWNER)
            await self._admin.set_inactive_policy(topic, deletes=False)
            await self._admin.set_deduplication(topic, enabled=True)
            await self._admin.set_retention(topic, Retention(minutes=60, megabytes=-1))
        await descriptors.ensure_descriptor_topic(self._admin, self._where, OWNER)
        await self._publish(initial(self.name, Routing.SHARD_CONSISTENT, topics))

    async def send(self, groups: Iterable[str], numbers: Iterable[int]) -> list[Position]:
        """Each group's next messages, with its name and number as the payload."""
        async with await Producer.open(self.connection, self.name) as producer:
            futures = [
                await producer.submit(group, f"{group} {number}".encode())
                for number in list(numbers)
                for group in groups
            ]
            return await asyncio.gather(*futures)

    async def switch(self) -> None:
        """The produce pointer to the next storage topic, by way of announcing, sealing and publishing."""
        await self.announce(self.descriptor.produce_pointer + 1)
        await self.step()

    async def announce(self, pointer: int) -> None:
        """Begin a switch to this storage topic."""
        await self._publish(begin_switch(self.descriptor, pointer))

    async def step(self) -> None:
        """Seal the produce topic, one partition after the other, and move the pointer to the next."""
        await self._publish(complete_step(self.descriptor, await self.close_partitions()))

    async def close_partitions(self) -> list[EntryId]:
        """Seal the produce topic, and leave it at that: producers learn of it, but not what comes next."""
        partitions = self._partitions_of(self.descriptor.produce_pointer)
        return [await seal_partition(self._admin, topic) for topic in partitions]

    async def unload(self, storage_topic: int = 0) -> None:
        """Disconnect everybody from a storage topic, as a broker does that sheds load."""
        for topic in self._partitions_of(storage_topic):
            await self._admin.unload(topic)

    async def backlog(self, storage_topic: int, subscription: str) -> int:
        """Messages that the subscription has not acknowledged, in all partitions."""
        topic = self.descriptor.storage_topics[storage_topic].topic
        stats = await self._admin.partitioned_stats(topic)
        return int(stats["subscriptions"][subscription]["msgBacklog"])

    async def entries(self) -> int:
        """Entries that are stored in the produce topic; a batch is one."""
        topics = self._partitions_of(self.descriptor.produce_pointer)
        return sum([(await self._admin.internal_stats(topic)).entries for topic in topics])

    async def publishers(self, storage_topic: int = 0) -> int:
        """Native producers that are connected to a storage topic."""
        stats = await self._admin.partitioned_stats(self.descriptor.storage_topics[storage_topic].topic)
        return sum(len(partition["publishers"]) for partition in stats["partitions"].values())

    async def everything(self) -> list[Message]:
        """All messages of all storage topics in their order, from the oldest to the newest there is now.

        The last message of each partition is one of our own, sent here: nothing before it is missed.
        """
        topic = self.descriptor.produce_topic
        ends: dict[int, str] = {}
        token = uuid.uuid4().hex
        for name in (f"end-{token}-{number}" for number in itertools.count()):
            ends.setdefault(partition_of(name, topic.layout), name)
            if len(ends) == topic.layout.partitions:
                break
        messages: list[Message] = []
        missing = set(ends.values())
        async with asyncio.timeout(60), await Consumer.open(self.connection, self.name) as consumer:
            await self.send(list(missing), [0])
            while missing:
                message = await consumer.receive()
                if message.group_id in missing:
                    missing.remove(message.group_id)
                else:
                    messages.append(message)
        return messages

    async def remove(self) -> None:
        await support.remove(self._admin, *self._topics)

    def _partitions_of(self, storage_topic: int) -> list[str]:
        topic = self.descriptor.storage_topics[storage_topic]
        return [topic.partition_topic(partition) for partition in range(topic.layout.partitions)]

    async def _publish(self, descriptor: Descriptor) -> None:
        expected = 0 if self._descriptor is None else self._descriptor.generation
        await descriptors.publish(self._client, self._where, descriptor, expected_generation=expected)
        self._descriptor = descriptor


Create = Callable[..., Awaitable[Composite]]


@pytest.fixture
async def connection() -> AsyncIterator[Connection]:
    async with Connection.from_environment(os.environ) as connection:
        yield connection


@pytest.fixture
async def create(connection: Connection) -> AsyncIterator[Create]:
    """Makes composite topics with these partition counts; they are removed afterwards."""
    made: list[Composite] = []
    async with Admin(support.credentials()) as admin, support.open_client() as client:

        async def composite(*partitions: int, adopted: int | None = None) -> Composite:
            made.append(Composite(admin, client, connection))
            await made[-1].create(*partitions, adopted=adopted)
            return made[-1]

        yield composite
        for topic in made:
            await topic.remove()
