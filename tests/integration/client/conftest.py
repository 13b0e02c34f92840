"""Composite topics on a broker from the environment: made, written to and switched as the operator would.

Every test has topics of its own and leaves none behind.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

import pulsar
import pytest

from millrace.client import Connection, Position, Producer
from millrace.core.descriptor import Descriptor, begin_switch, complete_step, initial
from millrace.core.names import descriptor_topic_name, storage_topic_name
from millrace.core.routing import Routing
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

    async def create(self, *partitions: int) -> None:
        namespace, name = self.name.split("/")
        topics = [
            (storage_topic_name(support.NAMESPACE, namespace, name, index), count, False)
            for index, count in enumerate(partitions)
        ]
        self._topics = [self._where, *(topic for topic, _, _ in topics)]
        for topic, count, _ in topics:
            await self._admin.create_partitioned_topic(topic, count, OWNER)
            await self._admin.set_inactive_policy(topic, deletes=False)
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
        await self._publish(begin_switch(self.descriptor, self.descriptor.produce_pointer + 1))
        sealing = self._partitions_of(self.descriptor.produce_pointer)
        ends = [await seal_partition(self._admin, topic) for topic in sealing]
        await self._publish(complete_step(self.descriptor, ends))

    async def unload(self, storage_topic: int = 0) -> None:
        """Disconnect everybody from a storage topic, as a broker does that sheds load."""
        for topic in self._partitions_of(storage_topic):
            await self._admin.unload(topic)

    async def backlog(self, storage_topic: int, subscription: str) -> int:
        """Messages that the subscription has not acknowledged, in all partitions."""
        topic = self.descriptor.storage_topics[storage_topic].topic
        stats = await self._admin.partitioned_stats(topic)
        return int(stats["subscriptions"][subscription]["msgBacklog"])

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

        async def composite(*partitions: int) -> Composite:
            made.append(Composite(admin, client, connection))
            await made[-1].create(*partitions)
            return made[-1]

        yield composite
        for topic in made:
            await topic.remove()
