"""Reading: a partition opens only when all that its groups wrote before is read, and then it does open."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.descriptor import Descriptor, append, begin_switch, complete_step, initial
from millrace.core.errors import DomainError
from millrace.core.positions import EMPTY, EntryId
from millrace.core.reading import Effect, Open, Reading, Sealed, Stream
from millrace.core.routing import Routing, partition_of_hash

SC, RANGE, UNKNOWN = Routing.SHARD_CONSISTENT, Routing.RANGE, Routing.UNKNOWN
HASHES = [*range(600), *(random.Random(1).randrange(2**31) for _ in range(200))]
Finish = Callable[[list[Stream]], Stream]


def composite(*partitions: int, routing: Routing = SC, unknown: Iterable[int] = ()) -> Descriptor:
    foreign = set(unknown)
    topics = [(f"persistent://p/d/t-{i}", count, i in foreign) for i, count in enumerate(partitions)]
    return initial("orders", routing, topics)


def ends(count: int, empty: Iterable[int] = ()) -> list[EntryId]:
    left_out = set(empty)
    return [EMPTY if index in left_out else EntryId(10 + index, 7) for index in range(count)]


def switched(descriptor: Descriptor, target: int, empty: Iterable[Stream] = ()) -> Descriptor:
    """Seal one storage topic after the other until the pointer is there."""
    left_out = set(empty)
    descriptor = begin_switch(descriptor, target)
    while descriptor.produce_pointer < target:
        pointer = descriptor.produce_pointer
        partitions = descriptor.produce_topic.layout.partitions
        descriptor = complete_step(
            descriptor,
            ends(partitions, (stream.partition for stream in left_out if stream.storage_topic == pointer)),
        )
    return descriptor


def opened(effects: Sequence[Effect]) -> list[Stream]:
    return [effect.stream for effect in effects if isinstance(effect, Open)]


def sealed(effects: Sequence[Effect]) -> dict[Stream, EntryId]:
    return {effect.stream: effect.end for effect in effects if isinstance(effect, Sealed)}


def streams(index: int, *partitions: int) -> list[Stream]:
    return [Stream(index, partition) for partition in partitions]


# What opens first


def test_it_begins_with_every_partition_of_the_first_storage_topic() -> None:
    reading = Reading(composite(2, 4))
    assert opened(reading.begin()) == streams(0, 0, 1)
    assert reading.open_streams == {Stream(0, 0), Stream(0, 1)}


def test_an_open_effect_names_the_partition_and_its_sealed_end() -> None:
    effects = Reading(switched(composite(1, 1), 1)).begin()
    assert effects == [Open(Stream(0, 0), "persistent://p/d/t-0-partition-0", EntryId(10, 7))]


def test_a_partition_that_is_not_sealed_opens_without_an_end() -> None:
    assert Reading(composite(1)).begin() == [Open(Stream(0, 0), "persistent://p/d/t-0-partition-0", None)]


def test_a_read_pointer_takes_what_is_before_it_as_read() -> None:
    reading = Reading(switched(composite(2, 4, 4), 1), read_pointer=1)
    assert opened(reading.begin()) == streams(1, 0, 1, 2, 3)
    assert reading.is_finished(Stream(0, 1))


def test_a_read_pointer_ahead_of_producers_waits_for_them() -> None:
    descriptor = composite(2, 4)
    reading = Reading(descriptor, read_pointer=1)
    assert reading.begin() == []
    assert opened(reading.advanced(switched(descriptor, 1))) == streams(1, 0, 1, 2, 3)


@pytest.mark.parametrize("read_pointer", [-1, 2, 99])
def test_a_read_pointer_outside_the_list_is_refused(read_pointer: int) -> None:
    with pytest.raises(DomainError, match="the last one has index 1"):
        Reading(composite(2, 4), read_pointer=read_pointer)


# What opens next


def test_a_partition_opens_when_the_one_that_its_groups_come_from_is_finished() -> None:
    reading = Reading(switched(composite(2, 4), 1))
    reading.begin()
    assert opened(reading.finished(Stream(0, 0))) == streams(1, 0, 1)
    assert opened(reading.finished(Stream(0, 1))) == streams(1, 2, 3)


def test_after_a_new_base_a_partition_waits_for_all_that_it_takes_over() -> None:
    reading = Reading(switched(composite(4, 1), 1))
    reading.begin()
    for partition in range(3):
        assert reading.finished(Stream(0, partition)) == []
    assert opened(reading.finished(Stream(0, 3))) == streams(1, 0)


def test_with_range_routing_a_partition_waits_for_the_hash_ranges_it_covers() -> None:
    reading = Reading(switched(composite(4, 2, routing=RANGE), 1))
    reading.begin()
    assert reading.finished(Stream(0, 0)) == []
    assert opened(reading.finished(Stream(0, 1))) == streams(1, 0)


def test_behind_an_adopted_topic_everything_waits_for_everything() -> None:
    reading = Reading(switched(composite(2, 2, unknown=[0]), 1))
    reading.begin()
    assert reading.finished(Stream(0, 0)) == []
    assert opened(reading.finished(Stream(0, 1))) == streams(1, 0, 1)


def test_a_stream_that_is_reported_twice_opens_nothing_twice() -> None:
    reading = Reading(switched(composite(1, 2), 1))
    reading.begin()
    assert opened(reading.finished(Stream(0, 0))) == streams(1, 0, 1)
    assert reading.finished(Stream(0, 0)) == ()


def test_only_what_is_being_read_can_be_finished() -> None:
    reading = Reading(switched(composite(1, 2), 1))
    reading.begin()
    with pytest.raises(DomainError, match="is not being read"):
        reading.finished(Stream(1, 0))


def test_a_partition_that_is_not_sealed_is_never_finished() -> None:
    reading = Reading(composite(1, 2))
    reading.begin()
    with pytest.raises(DomainError, match="is not sealed"):
        reading.finished(Stream(0, 0))


# Empty partitions


def test_an_empty_partition_is_passed_at_once() -> None:
    reading = Reading(switched(composite(2, 4), 1, [Stream(0, 1)]))
    assert opened(reading.begin()) == [Stream(0, 0), *streams(1, 2, 3)]
    assert reading.is_finished(Stream(0, 1))


def test_empty_storage_topics_in_a_row_are_passed_at_once() -> None:
    empty = [*streams(0, 0, 1), *streams(1, 0, 1, 2, 3), *streams(2, 0)]
    reading = Reading(switched(composite(2, 4, 1, 3), 3, empty))
    assert opened(reading.begin()) == streams(3, 0, 1, 2)


def test_an_empty_partition_still_stands_between_what_is_before_and_after_it() -> None:
    reading = Reading(switched(composite(1, 1, 1), 2, [Stream(1, 0)]))
    assert opened(reading.begin()) == streams(0, 0), "T2 must not pass T0 because T1 is empty"
    assert opened(reading.finished(Stream(0, 0))) == streams(2, 0)


def test_a_partition_that_was_open_and_turns_out_empty_is_told_so() -> None:
    descriptor = composite(1, 1)
    reading = Reading(descriptor)
    reading.begin()
    effects = reading.advanced(switched(descriptor, 1, [Stream(0, 0)]))
    assert effects == [Sealed(Stream(0, 0), EMPTY)]
    assert opened(reading.finished(Stream(0, 0))) == streams(1, 0)


# New descriptors


def test_a_switch_tells_the_ends_and_opens_nothing_by_itself() -> None:
    descriptor = composite(2, 4)
    reading = Reading(descriptor)
    reading.begin()
    effects = reading.advanced(switched(descriptor, 1))
    assert sealed(effects) == {Stream(0, 0): EntryId(10, 7), Stream(0, 1): EntryId(11, 7)}
    assert opened(effects) == []


def test_a_stream_is_told_its_end_once() -> None:
    descriptor = composite(1, 1)
    reading = Reading(descriptor)
    reading.begin()
    once = switched(descriptor, 1)
    assert sealed(reading.advanced(once)) == {Stream(0, 0): EntryId(10, 7)}
    assert reading.advanced(append(once, [("persistent://p/d/t-2", 1, False)])) == []


def test_an_older_or_equal_descriptor_changes_nothing() -> None:
    descriptor = composite(1, 1)
    newer = switched(descriptor, 1)
    reading = Reading(newer)
    reading.begin()
    assert reading.advanced(descriptor) == ()
    assert reading.advanced(newer) == ()
    assert reading.descriptor == newer


def test_an_announced_switch_changes_nothing_until_it_is_made() -> None:
    descriptor = composite(1, 1)
    reading = Reading(descriptor)
    reading.begin()
    assert reading.advanced(begin_switch(descriptor, 1)) == []
    assert reading.end_of(Stream(0, 0)) is None


def test_a_topic_appended_and_switched_to_while_reading_is_followed() -> None:
    descriptor = composite(1)
    reading = Reading(descriptor)
    reading.begin()
    descriptor = append(descriptor, [("persistent://p/d/t-1", 2, False)])
    assert reading.advanced(descriptor) == []
    reading.advanced(switched(descriptor, 1))
    assert opened(reading.finished(Stream(0, 0))) == streams(1, 0, 1)


def test_several_steps_learnt_at_once_keep_every_barrier() -> None:
    descriptor = composite(1, 2, 1)
    reading = Reading(descriptor)
    reading.begin()
    assert opened(reading.advanced(switched(descriptor, 2))) == []
    assert opened(reading.finished(Stream(0, 0))) == streams(1, 0, 1)
    assert opened(reading.finished(Stream(1, 0))) == []
    assert opened(reading.finished(Stream(1, 1))) == streams(2, 0)


def test_what_was_finished_before_a_descriptor_came_counts() -> None:
    descriptor = composite(2, 2, 1)
    reading = Reading(switched(descriptor, 1))
    reading.begin()
    reading.finished(Stream(0, 0))
    reading.finished(Stream(0, 1))
    effects = reading.advanced(switched(switched(descriptor, 1), 2))
    assert sealed(effects).keys() == {Stream(1, 0), Stream(1, 1)}
    assert opened(reading.finished(Stream(1, 0))) == []
    assert opened(reading.finished(Stream(1, 1))) == streams(2, 0)


# Every chain, every order


class Run:
    """Reads a chain to its end and watches every group's way through it."""

    def __init__(self, descriptor: Descriptor, target: int, empty: set[Stream], learn_at: int) -> None:
        self.descriptor, self.target, self.empty = descriptor, target, empty
        self.learn_at = learn_at
        self.reading = Reading(descriptor)
        self.read: set[Stream] = set()
        self.opened_so_far: set[Stream] = set()
        self.open: list[Stream] = []

    def take(self, effects: Sequence[Effect]) -> None:
        for stream in opened(effects):
            assert stream not in self.opened_so_far, "opened twice"
            self.opened_so_far.add(stream)
            self.open.append(stream)
            for h in HASHES:
                self.check(h, stream)

    def check(self, h: int, stream: Stream) -> None:
        """If this hash lives in the stream, then what it wrote to earlier topics is read."""
        topics = self.reading.descriptor.storage_topics
        layout = topics[stream.storage_topic].layout
        if layout.routing is not UNKNOWN and partition_of_hash(h, layout) != stream.partition:
            return
        for index in range(stream.storage_topic):
            layout = topics[index].layout
            if layout.routing is UNKNOWN:
                before = [Stream(index, partition) for partition in range(layout.partitions)]
            else:
                before = [Stream(index, partition_of_hash(h, layout))]
            for earlier in before:
                unread = earlier not in self.read and earlier not in self.empty
                assert not unread, f"{stream} opened while {earlier} is not read, and both may hold {h}"

    def run(self, choose: Finish) -> None:
        self.take(self.reading.begin())
        pointer = 0
        while True:
            finishable = [stream for stream in self.open if self.reading.end_of(stream) is not None]
            if finishable and (pointer == self.target or len(self.read) % self.learn_at):
                stream = choose(finishable)
                self.open.remove(stream)
                self.read.add(stream)
                self.take(self.reading.finished(stream))
            elif pointer < self.target:
                pointer += 1
                self.descriptor = switched(self.descriptor, pointer, self.empty)
                self.take(self.reading.advanced(self.descriptor))
            else:
                return

    def everything(self) -> set[Stream]:
        topics = self.descriptor.storage_topics[: self.target + 1]
        return {Stream(i, p) for i, topic in enumerate(topics) for p in range(topic.layout.partitions)}


@given(
    partitions=st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 12]), min_size=2, max_size=5),
    routing=st.sampled_from([SC, RANGE]),
    first_is_foreign=st.booleans(),
    learn_at=st.integers(1, 5),
    random=st.randoms(use_true_random=False),
)
def test_no_group_is_overtaken_and_every_partition_is_read(
    partitions: list[int],
    routing: Routing,
    first_is_foreign: bool,
    learn_at: int,
    random: random.Random,
) -> None:
    descriptor = composite(*partitions, routing=routing, unknown=[0] if first_is_foreign else [])
    target = len(partitions) - 1
    sealed_streams = [Stream(i, p) for i in range(target) for p in range(partitions[i])]
    empty = {stream for stream in sealed_streams if random.random() < 0.3}
    run = Run(descriptor, target, empty, learn_at)
    run.run(random.choice)
    assert run.opened_so_far | empty == run.everything()
    assert set(run.open) == {Stream(target, partition) for partition in range(partitions[target])}
