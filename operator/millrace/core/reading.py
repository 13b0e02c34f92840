"""Which partitions of a composite topic may be read now: events in, effects out, with no I/O and no clock.

A group lives in one partition of each storage topic. So a partition of T(i+1) opens only when every partition
of T(i) that may share a group with it is finished: sealed, and read to its sealed end. The rules:

- Only the descriptor says where a partition ends. A partition that is not sealed is never finished, however
  long it has been silent; one whose sealed end is `EMPTY` is finished as soon as it may be opened.
- Not sooner than that: an empty partition stands in for its predecessors. If it were finished while one of
  those is being read, whatever waits for it would open too early.
- So it is enough to look one storage topic back. The partition that a group has in T(i) was opened only when
  the one that it has in T(i-1) was finished, and so on to the first.

Which partitions may share a group is decided by `millrace.core.routing.overlap`, which errs on the safe side;
with an adopted topic of unknown routing, everything overlaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from millrace.core.descriptor import Descriptor
from millrace.core.errors import DomainError
from millrace.core.positions import EMPTY, EntryId
from millrace.core.routing import overlap


class Stream(NamedTuple):
    """One partition of one storage topic: read in order, from its beginning to its sealed end."""

    storage_topic: int
    partition: int


@dataclass(frozen=True, slots=True)
class Open:
    """Read this from now on, and report `finished` at its end (None: it is not sealed yet)."""

    stream: Stream
    topic: str
    end: EntryId | None


@dataclass(frozen=True, slots=True)
class Sealed:
    """A stream that is being read has got its end; it may have been reached already."""

    stream: Stream
    end: EntryId


Effect = Open | Sealed


class Reading:
    """How far one consumer has come in a composite topic. Begins with storage topic `read_pointer`.

    What comes before `read_pointer` counts as finished. If the pointer is ahead of the produce pointer,
    nothing opens until producers get there.
    """

    def __init__(self, descriptor: Descriptor, *, read_pointer: int = 0) -> None:
        if not 0 <= read_pointer < len(descriptor.storage_topics):
            raise DomainError(
                f"{descriptor.name}: there is no storage topic {read_pointer} to begin with; "
                f"the last one has index {len(descriptor.storage_topics) - 1}"
            )
        self._descriptor = descriptor
        self._first = read_pointer
        self._planned = read_pointer
        """Storage topics from here on were not looked at: nothing can be open there."""
        self._waiting: dict[Stream, int] = {}
        """Streams that may not be opened, and how many unfinished streams each of them waits for."""
        self._open: set[Stream] = set()
        self._finished: set[Stream] = set()

    @property
    def descriptor(self) -> Descriptor:
        """The newest one that this consumer knows."""
        return self._descriptor

    @property
    def open_streams(self) -> frozenset[Stream]:
        """What is being read."""
        return frozenset(self._open)

    def is_finished(self, stream: Stream) -> bool:
        """Whether nothing of this stream is left to be read."""
        return stream.storage_topic < self._first or stream in self._finished

    def end_of(self, stream: Stream) -> EntryId | None:
        """The sealed end, None while there is none."""
        sealed = self._descriptor.storage_topics[stream.storage_topic].sealed
        return None if sealed is None else sealed[stream.partition]

    def begin(self) -> Sequence[Effect]:
        """What to read first. Called once."""
        return list(self._plan())

    def advanced(self, descriptor: Descriptor) -> Sequence[Effect]:
        """A descriptor was learnt; one that is not newer changes nothing."""
        if descriptor.generation <= self._descriptor.generation:
            return ()
        before = self._descriptor.produce_pointer
        self._descriptor = descriptor
        effects: list[Effect] = []
        for stream in sorted(self._open):
            end = self.end_of(stream)
            if end is not None and stream.storage_topic >= before:
                effects.append(Sealed(stream, end))
        effects.extend(self._plan())
        return effects

    def finished(self, stream: Stream) -> Sequence[Effect]:
        """The stream was read to its sealed end. Says what may be opened now."""
        if stream in self._finished:
            return ()
        if stream not in self._open:
            raise DomainError(
                f"{self._descriptor.name}: {stream} is not being read, so it cannot be finished"
            )
        if self.end_of(stream) is None:
            raise DomainError(
                f"{self._descriptor.name}: {stream} is not sealed: that nothing comes does not mean that "
                "nothing will"
            )
        self._open.discard(stream)
        return list(self._finish([stream]))

    def _plan(self) -> Iterator[Effect]:
        """Look at the storage topics that producers have reached since the last time."""
        for index in range(self._planned, self._last() + 1):
            self._planned = index + 1
            streams = self._streams(index)
            for stream in streams:
                self._waiting[stream] = sum(
                    1
                    for earlier in self._streams(index - 1)
                    if not self.is_finished(earlier) and self._shares_groups(earlier, stream)
                )
            yield from self._let(stream for stream in streams if self._waiting[stream] == 0)

    def _last(self) -> int:
        """The last storage topic of which anything may be opened."""
        return self._descriptor.produce_pointer

    def _let(self, ready: Iterable[Stream]) -> Iterator[Effect]:
        """Open these. Empty ones are finished at once, which may let others."""
        empty: list[Stream] = []
        for stream in ready:
            del self._waiting[stream]
            end = self.end_of(stream)
            if end == EMPTY:
                empty.append(stream)
                continue
            self._open.add(stream)
            topic = self._descriptor.storage_topics[stream.storage_topic]
            yield Open(stream, topic.partition_topic(stream.partition), end)
        if empty:
            yield from self._finish(empty)

    def _finish(self, streams: Sequence[Stream]) -> Iterator[Effect]:
        """All of one storage topic. As deep as there are empty storage topics in a row, and no deeper."""
        self._finished.update(streams)
        following = streams[0].storage_topic + 1
        if following >= self._planned:
            return  # `_plan` will find them finished
        ready: list[Stream] = []
        for later in self._streams(following):
            if later not in self._waiting:
                continue
            self._waiting[later] -= sum(1 for stream in streams if self._shares_groups(stream, later))
            if self._waiting[later] == 0:
                ready.append(later)
        yield from self._let(ready)

    def _streams(self, index: int) -> list[Stream]:
        if index < self._first:
            return []
        partitions = self._descriptor.storage_topics[index].layout.partitions
        return [Stream(index, partition) for partition in range(partitions)]

    def _shares_groups(self, a: Stream, b: Stream) -> bool:
        topics = self._descriptor.storage_topics
        return overlap(
            topics[a.storage_topic].layout, a.partition, topics[b.storage_topic].layout, b.partition
        )
