"""Which partitions one shard may read: its own, and the next storage topic's only where no group moves."""

from __future__ import annotations

from millrace.core.descriptor import Descriptor, begin_switch, complete_step, initial
from millrace.core.positions import EntryId
from millrace.core.reading import Open, Stream
from millrace.core.routing import Routing
from millrace.core.shardreading import ShardReading


def switched(*partitions: int) -> Descriptor:
    """Producers have reached the last one."""
    descriptor = initial(
        "t", Routing.SHARD_CONSISTENT, [(f"t{index}", count, False) for index, count in enumerate(partitions)]
    )
    for _ in partitions[1:]:
        descriptor = begin_switch(descriptor, descriptor.produce_pointer + 1)
        ends = [EntryId(1, 1)] * descriptor.produce_topic.layout.partitions
        descriptor = complete_step(descriptor, ends)
    return descriptor


def opened(effects: object) -> set[Stream]:
    return {effect.stream for effect in effects if isinstance(effect, Open)}  # type: ignore[attr-defined]


def test_shards_tile_the_first_storage_topic() -> None:
    slices = [opened(ShardReading(switched(6), shard, 3).begin()) for shard in range(3)]
    assert [sorted(each) for each in slices] == [
        [Stream(0, 0), Stream(0, 1)],
        [Stream(0, 2), Stream(0, 3)],
        [Stream(0, 4), Stream(0, 5)],
    ]


def test_a_shard_crosses_by_itself_where_no_group_moves() -> None:
    reading = ShardReading(switched(2, 12), 1, 2)
    assert opened(reading.begin()) == {Stream(0, 1)}
    assert opened(reading.finished(Stream(0, 1))) == {Stream(1, partition) for partition in range(6, 12)}
    assert reading.stopped_at is None


def test_a_shard_stops_where_groups_would_move() -> None:
    reading = ShardReading(switched(4, 6), 0, 2)
    assert opened(reading.begin()) == {Stream(0, 0), Stream(0, 1)}
    for partition in range(2):
        assert opened(reading.finished(Stream(0, partition))) == set()
    assert reading.stopped_at == 1


def test_one_shard_never_needs_a_barrier() -> None:
    reading = ShardReading(switched(4, 6), 0, 1)
    reading.begin()
    for partition in range(4):
        effects = reading.finished(Stream(0, partition))
    assert opened(effects), "the last one opens the rest"
    assert reading.stopped_at is None
