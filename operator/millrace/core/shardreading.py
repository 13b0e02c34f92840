"""Which partitions of a composite topic one shard may read now: its own slice of each storage topic.

Where two neighbouring storage topics are shard-consistent, a shard's partitions of the second hold only
groups of its partitions of the first: it crosses by itself, as soon as its own are finished. Where they are
not, groups change their shard, and nobody may cross before everybody is there. That is a barrier, and it is
not for a shard to take: it stops at the sealed end and says so (`stopped_at`).
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.descriptor import Descriptor
from millrace.core.reading import Effect, Reading, Stream
from millrace.core.routing import partitions_of_shard, shard_consistent


class ShardReading(Reading):
    """A `Reading` of the partitions that one shard owns."""

    def __init__(self, descriptor: Descriptor, shard: int, shard_count: int) -> None:
        self._shard = shard
        self._shard_count = shard_count
        super().__init__(descriptor)

    @property
    def stopped_at(self) -> int | None:
        """The index of a storage topic that cannot be crossed to without a barrier; None if there is none."""
        layouts = [topic.layout for topic in self.descriptor.storage_topics]
        for index in range(self.descriptor.produce_pointer):
            if not shard_consistent(layouts[index], layouts[index + 1], self._shard_count):
                return index + 1
        return None

    def _last(self) -> int:
        stop = self.stopped_at
        return super()._last() if stop is None else min(stop - 1, super()._last())

    def _streams(self, index: int) -> list[Stream]:
        streams = super()._streams(index)
        if not streams:
            return streams
        own = partitions_of_shard(self._shard, len(streams), self._shard_count)
        return streams[own.start : own.stop]

    def own_streams(self) -> Iterator[Stream]:
        """Every partition of this shard, of every storage topic there is."""
        for index in range(len(self.descriptor.storage_topics)):
            yield from self._streams(index)


__all__ = ["Effect", "ShardReading"]
