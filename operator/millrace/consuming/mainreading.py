"""The main topic's partitions of one shard: which are open, and when one is finished for good."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from millrace.consuming.flow import Flow
from millrace.consuming.lanes import MainLane
from millrace.core.descriptor import Descriptor
from millrace.core.reading import Effect, Open, Stream
from millrace.core.routing import Routing
from millrace.core.shardreading import ShardReading
from millrace.pulsar.descriptors import DescriptorFollower
from millrace.pulsar.sources import Source
from millrace.pulsar.statetables import StateTable

LOOK = 0.05
"""Seconds between two looks at what only polling can tell."""

FINISHED = "finished:"
"""The note that a partition of the main topic is dealt with to its sealed end: `finished:INDEX:PARTITION`."""


class Opener(Protocol):
    """What a term does for its readings."""

    def source(self, effect: Open, take: Callable[[list[Any]], None]) -> Source:
        """A source for this partition, closed with the term."""

    async def subscribe(self, source: Source) -> None:
        """Open it, however long that takes."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """A task that ends with the term; if it fails, so does the term."""


class MainReading:
    """The main topic's partitions: which are open, and when one is finished for good."""

    def __init__(
        self, term: Opener, reading: ShardReading, flow: Flow, table: StateTable, finished: set[Stream]
    ) -> None:
        self._term = term
        self._reading = reading
        self._flow = flow
        self._table = table
        self._finished = finished
        self.lanes: dict[Stream, MainLane] = {}

    @property
    def descriptor(self) -> Descriptor:
        """The newest one that is known."""
        return self._reading.descriptor

    @property
    def routes(self) -> bool:
        """Whether it is known which partition a group came from: not if one was adopted with data in it."""
        topics = self.descriptor.storage_topics
        return all(topic.layout.routing is not Routing.UNKNOWN for topic in topics)

    @property
    def stopped_at(self) -> int | None:
        """The storage topic that cannot be crossed to without a barrier, if there is one."""
        return self._reading.stopped_at

    async def follow(self, follower: DescriptorFollower) -> None:
        """Learn every newer descriptor."""
        async for descriptor in follower.changes():
            await self.apply(self._reading.advanced(descriptor))

    async def apply(self, effects: Iterable[Effect]) -> None:
        """Do what the reading wants."""
        waiting = list(effects)
        while waiting:
            effect = waiting.pop(0)
            if not isinstance(effect, Open):
                self.lanes[effect.stream].source.sealed(effect.end)
            elif effect.stream in self._finished:
                waiting.extend(self._reading.finished(effect.stream))
            else:
                await self._open(effect)

    async def _open(self, effect: Open) -> None:
        lane: MainLane

        def take(messages: list[Any]) -> None:
            self._flow.take_main(lane, messages)

        source = self._term.source(effect, take)
        lane = MainLane(source)
        await self._term.subscribe(source)
        self.lanes[effect.stream] = lane
        if effect.end is not None:
            source.sealed(effect.end)
        self._flow.add_main(lane)
        self._term.spawn(self._finish(effect.stream, lane))

    async def _finish(self, stream: Stream, lane: MainLane) -> None:
        """Wait until the partition was dealt with to its sealed end, note that, and open what may follow.

        The note comes first: an acknowledgement may be forgotten by a broker that crashes, and the partition
        would be read again after the next one was.
        """
        await lane.source.drained.wait()
        while lane.order:  # noqa: ASYNC110 - a look now and then costs less than an event a message
            await asyncio.sleep(LOOK)
        noted = asyncio.get_running_loop().create_future()
        name = f"{FINISHED}{stream.storage_topic}:{stream.partition}"
        end = str(self._reading.end_of(stream)).encode()
        self._table.note(name, end, partial(noted.set_result, None))
        await noted
        self._flow.remove_main(lane)
        del self.lanes[stream]
        await lane.source.close()
        await self.apply(self._reading.finished(stream))


def noted_streams(table: StateTable) -> dict[Stream, str]:
    """What was noted as finished, and with which sealed end."""
    streams: dict[Stream, str] = {}
    for name, end in table.notes.items():
        if name.startswith(FINISHED):
            _, storage_topic, partition = name.split(":")
            streams[Stream(int(storage_topic), int(partition))] = end.decode()
    return streams


def finished_streams(noted: Mapping[Stream, str], descriptor: Descriptor) -> set[Stream]:
    """Those that are the same partitions: of a topic that was deleted and made anew, nothing is finished."""
    finished: set[Stream] = set()
    for stream, end in noted.items():
        if stream.storage_topic >= len(descriptor.storage_topics):
            continue
        sealed = descriptor.storage_topics[stream.storage_topic].sealed
        if sealed is not None and stream.partition < len(sealed) and str(sealed[stream.partition]) == end:
            finished.add(stream)
    return finished
