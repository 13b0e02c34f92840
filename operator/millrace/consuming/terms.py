"""One term of ownership of a shard: from the claim to the first sign that it is over.

**Why two owners never deliver at once.** An owner holds the state table, whose producer fences whoever came
before; it appends a heartbeat each second and begins a delivery only within D of the last *acknowledged* one,
by its own monotonic clock. A successor delivers first when D and the longest request have passed since it
fenced the table. A zombie's heartbeats are refused, so it stops by itself, whatever else it still holds.
After a broken connection nothing is delivered until a heartbeat that was sent later is acknowledged.

Whatever goes wrong ends the term: everything in hand is dropped, and what was not acknowledged comes again to
the next owner, which may be this process in its next term.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pulsar

from millrace.consuming import rebuilding
from millrace.consuming.flow import Flow
from millrace.consuming.forgetting import LOOK_SECONDS
from millrace.consuming.lanes import MainLane, RetryLane
from millrace.consuming.mainreading import LOOK, MainReading, finished_streams, noted_streams
from millrace.consuming.settings import Deliverer, Settings
from millrace.core.descriptor import Descriptor
from millrace.core.groupstate import Queue
from millrace.core.positions import Position
from millrace.core.reading import Open, Stream
from millrace.core.routing import partition_of
from millrace.core.shardreading import ShardReading
from millrace.pulsar.descriptors import DescriptorFollower
from millrace.pulsar.errors import Conflict, PulsarError
from millrace.pulsar.parkedqueues import ParkedQueue
from millrace.pulsar.sources import Source
from millrace.pulsar.statetables import StateTable

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Clients:
    """Two native clients: at the end of a sealed topic one drops its connection, with all who share it."""

    reading: pulsar.Client
    writing: pulsar.Client


class Over(Exception):  # noqa: N818 - it is what happened
    """The term cannot go on."""


class Term:
    """Owns one shard with one epoch, once."""

    def __init__(self, clients: Clients, settings: Settings, epoch: int, deliverer: Deliverer) -> None:
        self.epoch = epoch
        self.flow: Flow | None = None
        self.delivering = False
        """Whether deliveries have begun."""
        self._clients = clients
        self._settings = settings
        self._deliverer = deliverer
        self._table: StateTable | None = None
        self._followers: list[DescriptorFollower] = []
        self._queues: dict[tuple[Queue, int], ParkedQueue] = {}
        self._layouts: dict[Queue, Descriptor] = {}
        self._sources: list[Source] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._disturbed = -math.inf
        self._main: MainReading | None = None

    @property
    def stopped_at(self) -> int | None:
        """The storage topic that cannot be crossed to without a barrier, if there is one."""
        return None if self._main is None else self._main.stopped_at

    async def run(self, stopping: asyncio.Event) -> None:
        """Serve until told to stop; raises Over, or a PulsarError, when it ends for another reason."""
        released = False
        try:
            opening = asyncio.ensure_future(self._open())
            await self._until(opening, stopping)
            stop = asyncio.ensure_future(stopping.wait())
            await self._until(stop, stopping)
            released = await self._drain()
        finally:
            await self._close(released=released)

    async def _until(self, work: asyncio.Future[Any], stopping: asyncio.Event) -> None:
        """Wait for the work, the order to stop, or the end of the term, whatever comes first."""
        stop = asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait({work, stop, self._over}, return_when=asyncio.FIRST_COMPLETED)
            if self._over.done():
                self._over.result()
            if work.done():
                work.result()
        finally:
            for task in (work, stop):
                task.cancel()
            await asyncio.wait({work, stop})

    def _end(self, reason: str) -> None:
        if not self._over.done():
            self._over.set_exception(Over(reason))
        if self.flow is not None:
            self.flow.stop()

    # Opening, in the order that makes it safe

    async def _open(self) -> None:
        settings, topics = self._settings, self._settings.topics
        table = self._table = await StateTable.open(self._clients.writing, topics.state, self.epoch)
        self.spawn(self._watch(table, "the state table is lost"))
        self.spawn(self._beat(table))
        main, retry, dead = [
            await self._follow(topic) for topic in (topics.main, topics.retry, topics.dead_letter)
        ]
        self._layouts = {Queue.RETRY: self._known(retry), Queue.DEAD_LETTER: self._known(dead)}
        await asyncio.gather(
            *(
                self._open_queue(queue, stream)
                for queue, descriptor in self._layouts.items()
                for stream in self._own(descriptor)
                if stream.storage_topic == descriptor.produce_pointer
            )
        )
        states, unreadable = rebuilding.readable(table.entries)
        flow = self.flow = Flow(
            settings,
            table,
            states,
            self._queue_of,
            self._deliverer,
            lane_of=self._lane_of,
            retry_partition_of=lambda group: partition_of(
                group, self._layouts[Queue.RETRY].produce_topic.layout
            ),
            may_deliver=self._may_deliver,
            fail=self._end,
        )
        if settings.ordered and (unreadable or table.previous_owner is None):
            await self._rebuild(table, flow)
        await self._read_copies(retry, flow)
        await self._read_main(main, flow, table)
        previous = table.previous_owner
        if previous is not None and not previous.released:
            # Whatever the owner before had sent has ended by then.
            safe = table.opened_at + settings.timing.deliver_within + settings.timing.request
            await asyncio.sleep(max(0.0, safe - time.monotonic()))
        flow.start()
        self.delivering = True
        if settings.ordered and self._main is not None and self._main.routes:
            self.spawn(self._forget(flow))
        LOGGER.info("shard %d is delivering as epoch %d", settings.shard, self.epoch)

    async def _follow(self, topic: str) -> DescriptorFollower:
        follower = DescriptorFollower(self._clients.writing, topic)
        self._followers.append(follower)
        follower.start()
        await follower.wait_for(lambda _: True)
        return follower

    @staticmethod
    def _known(follower: DescriptorFollower) -> Descriptor:
        assert follower.current is not None
        return follower.current

    def _own(self, descriptor: Descriptor) -> list[Stream]:
        reading = ShardReading(descriptor, self._settings.shard, self._settings.shard_count)
        return list(reading.own_streams())

    async def _open_queue(self, queue: Queue, stream: Stream) -> None:
        topic = self._layouts[queue].storage_topics[stream.storage_topic].partition_topic(stream.partition)
        opened = await ParkedQueue.open(self._clients.writing, topic, storage_topic=stream.storage_topic)
        self._queues[queue, stream.partition] = opened
        self.spawn(self._watch(opened, "a queue is lost"))

    def _queue_of(self, queue: Queue, group: str) -> ParkedQueue:
        layout = self._layouts[queue].produce_topic.layout
        return self._queues[queue, partition_of(group, layout)]

    async def _rebuild(self, table: StateTable, flow: Flow) -> None:
        where = [
            (
                queue,
                descriptor.storage_topics[stream.storage_topic].partition_topic(stream.partition),
                *stream,
            )
            for queue, descriptor in self._layouts.items()
            for stream in self._own(descriptor)
        ]
        found = await rebuilding.scan(self._clients.reading, self._settings.topics.subscription, where)
        for each in found:
            flow.core.found(each.queue, each.group, each.main, each.internal)
        for group in flow.core.groups.values():
            table.write(group.id, group.state.to_json(), lambda: None)
        await table.drain()
        if found:
            LOGGER.warning("the state of %d copies was built again from the queues", len(found))

    # Sources

    async def _read_copies(self, follower: DescriptorFollower, flow: Flow) -> None:
        reading = ShardReading(self._known(follower), self._settings.shard, self._settings.shard_count)

        async def open_(effect: Open) -> None:
            lane: RetryLane

            def take(messages: list[Any]) -> None:
                flow.take_copies(lane, messages)

            source = self.source(effect, take)
            lane = RetryLane(source)
            await self.subscribe(source)
            flow.add_retry(lane)

        for effect in reading.begin():
            if isinstance(effect, Open):
                await open_(effect)

    async def _read_main(self, follower: DescriptorFollower, flow: Flow, table: StateTable) -> None:
        noted = noted_streams(table)
        newest = max((stream.storage_topic for stream in noted), default=-1)
        descriptor = self._known(follower)
        if newest < len(descriptor.storage_topics):
            # A follower may begin with an older descriptor than the one by which the notes were made; but a
            # topic that was made anew may never come so far.
            with contextlib.suppress(TimeoutError):
                descriptor = await follower.wait_for(lambda known: known.produce_pointer > newest, 10.0)
        finished = finished_streams(noted, descriptor)
        reading = ShardReading(descriptor, self._settings.shard, self._settings.shard_count)
        main = self._main = MainReading(self, reading, flow, table, finished)
        await main.apply(reading.begin())
        self.spawn(main.follow(follower))

    def source(self, effect: Open, take: Callable[[list[Any]], None]) -> Source:
        """A source for this partition, closed with the term."""
        source = Source(
            self._clients.reading,
            effect.topic,
            self._settings.topics.subscription,
            take,
            storage_topic=effect.stream.storage_topic,
            partition=effect.stream.partition,
        )
        self._sources.append(source)
        return source

    async def subscribe(self, source: Source) -> None:
        """The owner before may still hold it: it goes away by itself, or with its connection."""
        told = False
        while True:
            try:
                await source.open()
                break
            except (Conflict, PulsarError) as error:
                if not isinstance(error, Conflict) and not error.retryable:
                    raise
                if not told:
                    LOGGER.warning("%s; trying again", error)
                told = True
            await asyncio.sleep(0.5)
        self.spawn(self._watch(source, "a partition is lost"))

    # While it lasts

    def _lane_of(self, group: str, main: Position) -> MainLane | None:
        """The partition of the main topic that a group's message came from; None once it is finished."""
        assert self._main is not None
        layout = self._main.descriptor.storage_topics[main.storage_topic].layout
        return self._main.lanes.get(Stream(main.storage_topic, partition_of(group, layout)))

    async def _forget(self, flow: Flow) -> None:
        looked = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            disturbed, looked = self._disturbed >= looked, time.monotonic()
            flow.forget_recovered(disturbed=disturbed)

    def _may_deliver(self) -> bool:
        assert self._table is not None
        beat = self._table.last_heartbeat
        fresh = time.monotonic() - beat < self._settings.timing.deliver_within
        return fresh and beat > self._disturbed and not self._over.done()

    async def _beat(self, table: StateTable) -> None:
        timing = self._settings.timing
        sent = time.monotonic()
        while True:
            now = time.monotonic()
            if now - table.last_heartbeat >= timing.deliver_within:
                self._end(f"no heartbeat was acknowledged for {now - table.last_heartbeat:.1f} s")
                return
            if now - sent >= timing.heartbeat:
                table.heartbeat()
                sent = now
            self._disturbed = max((source.disturbed_at for source in self._sources), default=-math.inf)
            if self._disturbed > table.last_heartbeat and sent < self._disturbed:
                table.heartbeat()
                sent = now
            await asyncio.sleep(LOOK)

    async def _watch(self, watched: StateTable | ParkedQueue | Source, what: str) -> None:
        await watched.lost.wait()
        if watched.reason is not None:  # else we closed it ourselves
            self._end(f"{what}: {watched.reason}")

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """A task that ends with the term; if it fails, so does the term."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            LOGGER.error("a task of the term failed", exc_info=error)
            self._end(f"{type(error).__name__}: {error}")

    # The end

    async def _drain(self) -> bool:
        """Whether nothing is under way any more, so that a successor need not wait."""
        flow, table = self.flow, self._table
        if flow is None or table is None:
            return table is not None
        flow.stop()
        await self._deliverer.close(self._settings.timing.drain)
        deadline = time.monotonic() + self._settings.timing.drain
        while not self._idle(flow) and not self._over.done() and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(LOOK)
        return self._idle(flow)

    def _idle(self, flow: Flow) -> bool:
        return flow.idle and not any(queue.pending for queue in self._queues.values())

    async def _close(self, *, released: bool) -> None:
        if self.flow is not None:
            self.flow.stop()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        closing = [each.close() for each in (*self._sources,)]
        closing += [each.close() for each in self._followers]
        closing += [each.close() for each in self._queues.values()]
        for outcome in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(outcome, BaseException):
                LOGGER.debug("closing: %s", outcome)
        if self._table is not None:
            if released and not self._table.lost.is_set():
                await self._table.release()
            else:
                await self._table.close()
        if self._over.done():
            self._over.exception()  # told by `run`, if it mattered
