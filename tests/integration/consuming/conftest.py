"""A subscription on a real broker, made as the operator makes it, with an endpoint in this process."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pulsar
import pytest

from millrace.client import Connection, Producer
from millrace.consuming.settings import Answered, Parcel, Settings, Timing, Topics
from millrace.consuming.terms import Clients, Term
from millrace.core.backoff import Backoff
from millrace.core.descriptor import Descriptor, begin_switch, complete_step, initial
from millrace.core.names import descriptor_topic_name, storage_topic_name
from millrace.core.outcomes import SUCCESS, Outcome
from millrace.core.promise import PromiseChecker
from millrace.core.routing import Routing
from millrace.pulsar import descriptors
from millrace.pulsar.admin import Admin
from millrace.pulsar.clients import connect
from millrace.pulsar.statetables import ensure_state_topic
from millrace.pulsar.termination import seal_partition
from tests.support import pulsar as support

OWNER = {"millrace.dev/name": "consuming-test"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = __file__.rpartition("/")[0]
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.integration)
            if not support.available():
                item.add_marker(pytest.mark.skip("PULSAR_SERVICE_URL and PULSAR_ADMIN_URL are not set"))


@dataclass
class Endpoint:
    """Judges what it gets; answers as `decide` says, after the event loop has turned."""

    decide: Callable[[str, int, int], Outcome] = lambda group, number, attempt: SUCCESS
    checker: PromiseChecker = field(default_factory=PromiseChecker)
    accepted: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    attempts: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    pause: float = 0.0
    closed: bool = False

    def deliver(self, parcel: Parcel, answered: Answered) -> None:
        assert parcel.message is not None
        number = int(parcel.message.payload)
        self.checker.deliver(parcel.group, number)
        self.attempts[parcel.group, number] += 1
        outcome = self.decide(parcel.group, number, self.attempts[parcel.group, number])
        if outcome is SUCCESS:
            self.accepted[parcel.group].append(number)
        asyncio.get_running_loop().call_later(self.pause, answered, parcel, outcome)

    async def close(self, seconds: float) -> None:
        self.closed = True


class Queues:
    """The topics of one subscription: main, retry, dead letters and the state tables."""

    def __init__(self, admin: Admin, client: pulsar.Client, connection: Connection) -> None:
        self.name = f"test/sub-{uuid.uuid4().hex[:8]}"
        self.admin = admin
        self.connection = connection
        self._client = client
        self._made: list[str] = []
        self._descriptors: dict[str, Descriptor] = {}

    async def create(self, *partitions: int, shards: int = 1) -> None:
        await self._composite("", partitions)
        for queue in ("_rq", "_dlq"):
            await self._composite(queue, partitions[:1])
        for shard in range(shards):
            topic = f"{self._state_prefix}{shard}"
            await ensure_state_topic(self.admin, topic, OWNER)
            self._made.append(topic)

    @property
    def _state_prefix(self) -> str:
        return f"persistent://{support.NAMESPACE}/{self.name.replace('/', '.')}_state-0-"

    async def _composite(self, suffix: str, partitions: tuple[int, ...]) -> None:
        namespace, name = self.name.split("/")
        name += suffix
        topics = [
            (storage_topic_name(support.NAMESPACE, namespace, name, index), count, False)
            for index, count in enumerate(partitions)
        ]
        where = self.where(suffix)
        for topic, count, _ in topics:
            await self.admin.create_partitioned_topic(topic, count, OWNER)
            await self.admin.set_inactive_policy(topic, deletes=False)
            await self.admin.create_subscription(topic, "sub", "earliest")
            self._made.append(topic)
        await descriptors.ensure_descriptor_topic(self.admin, where, OWNER)
        self._made.append(where)
        first = initial(f"{namespace}/{name}", Routing.SHARD_CONSISTENT, topics)
        await descriptors.publish(self._client, where, first, expected_generation=0)
        self._descriptors[suffix] = first

    def where(self, suffix: str = "") -> str:
        namespace, name = self.name.split("/")
        return descriptor_topic_name(support.NAMESPACE, namespace, name + suffix)

    def topic(self, suffix: str = "", storage_topic: int = 0) -> str:
        return self._descriptors[suffix].storage_topics[storage_topic].topic

    def state_topic(self, shard: int = 0) -> str:
        return f"{self._state_prefix}{shard}"

    async def switch(self) -> None:
        descriptor = self._descriptors[""]
        begun = begin_switch(descriptor, descriptor.produce_pointer + 1)
        await self._publish(begun)
        topic = begun.produce_topic
        ends = [
            await seal_partition(self.admin, topic.partition_topic(partition))
            for partition in range(topic.layout.partitions)
        ]
        await self._publish(complete_step(begun, ends))

    async def _publish(self, descriptor: Descriptor) -> None:
        before = self._descriptors[""].generation
        await descriptors.publish(self._client, self.where(), descriptor, expected_generation=before)
        self._descriptors[""] = descriptor

    async def send(self, checker: PromiseChecker, groups: list[str], each: int) -> None:
        async with await Producer.open(self.connection, self.name) as producer:
            futures = [
                await producer.submit(group, str(checker.next_number(group)).encode())
                for _ in range(each)
                for group in groups
            ]
            await asyncio.gather(*futures)

    async def backlog(self, suffix: str = "", storage_topic: int = 0) -> int:
        stats = await self.admin.partitioned_stats(self.topic(suffix, storage_topic))
        return int(stats["subscriptions"]["sub"]["msgBacklog"])

    def settings(self, shard: int = 0, shard_count: int = 1, **changes: object) -> Settings:
        topics = Topics("sub", self.where(), self.where("_rq"), self.where("_dlq"), self.state_topic(shard))
        settings = Settings(
            topics,
            shard,
            shard_count,
            backoff=Backoff(initial_seconds=0.2, max_seconds=0.5),
            timing=Timing(request=1.0, drain=5.0),
        )
        return replace(settings, **changes)  # type: ignore[arg-type]

    async def remove(self) -> None:
        await support.remove(self.admin, *self._made)


Create = Callable[..., Awaitable[Queues]]


@asynccontextmanager
async def serving(settings: Settings, endpoint: Endpoint, epoch: int = 1) -> AsyncIterator[Term]:
    """A term that is stopped in an orderly way at the end."""
    stopping = asyncio.Event()
    async with support.open_client() as reading, support.open_client() as writing:
        term = Term(Clients(reading, writing), settings, epoch, endpoint)
        running = asyncio.ensure_future(term.run(stopping))
        try:
            yield term
        finally:
            stopping.set()
            await running


@asynccontextmanager
async def dying(settings: Settings, endpoint: Endpoint, epoch: int = 1) -> AsyncIterator[Term]:
    """A term that ends as if by a power cut: nothing is drained, acknowledged or given back."""
    reading, writing = connect(support.credentials()), connect(support.credentials())
    term = Term(Clients(reading, writing), settings, epoch, endpoint)
    running = asyncio.ensure_future(term.run(asyncio.Event()))
    try:
        yield term
    finally:
        reading.shutdown()
        writing.shutdown()
        running.cancel()
        await asyncio.wait((running,))


@pytest.fixture
async def create() -> AsyncIterator[Create]:
    """Makes subscriptions on main topics with these partition counts; they are removed afterwards."""
    made: list[Queues] = []
    async with (
        Connection.from_environment(os.environ) as connection,
        Admin(support.credentials()) as admin,
        support.open_client() as client,
    ):

        async def queues(*partitions: int, shards: int = 1) -> Queues:
            made.append(Queues(admin, client, connection))
            await made[-1].create(*partitions, shards=shards)
            return made[-1]

        yield queues
        for each in made:
            await each.remove()
