"""The status of a CompositeTopic: that it is the descriptor's shadow, and that it stays small."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from millrace.api.compositetopic import CompositeTopicStatus, StorageTopicState
from millrace.api.reasons import Reason
from millrace.core.compositetopicactions import Wanted
from millrace.core.compositetopicstatus import status
from millrace.core.conditions import Risk, Verdict, conditions
from millrace.core.descriptor import Descriptor, append, begin_switch, complete_step, initial
from millrace.core.positions import EMPTY, EntryId
from millrace.core.routing import Routing
from tests.unit.core.pulsarmodel import DESCRIPTOR, name, wanted

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
PENDING, READY = StorageTopicState.PENDING, StorageTopicState.READY
SEALING, SEALED = StorageTopicState.SEALING, StorageTopicState.SEALED
KIB = 1024


def published(*partitions: int, unknown: tuple[int, ...] = ()) -> Descriptor:
    topics = [(name(i), count, i in unknown) for i, count in enumerate(partitions)]
    return initial("shop/orders", Routing.SHARD_CONSISTENT, topics)


def shown(
    spec: Wanted, descriptor: Descriptor | None, sealed_so_far: dict[int, int] | None = None
) -> CompositeTopicStatus:
    return status(spec, descriptor, (), generation=3, sealed_so_far=sealed_so_far)


def states(spec: Wanted, descriptor: Descriptor | None) -> list[StorageTopicState]:
    return [row.state for row in shown(spec, descriptor).storage_topics]


def switched(descriptor: Descriptor, end: EntryId) -> Descriptor:
    """One more storage topic is left behind; each of its partitions ends at `end`."""
    step = begin_switch(descriptor, descriptor.produce_pointer + 1)
    return complete_step(step, [end] * descriptor.produce_topic.layout.partitions)


def test_before_anything_is_published_all_is_pending() -> None:
    found = shown(wanted(2, 4), None)
    assert states(wanted(2, 4), None) == [PENDING, PENDING]
    assert (found.observed_generation, found.cluster_id, found.descriptor_topic) == (3, "prod-eu", DESCRIPTOR)
    assert found.routing == "ShardConsistent"
    for unknown in (found.descriptor_generation, found.produce_pointer, found.switching_to, found.partitions):
        assert unknown is None


def test_what_is_published_is_ready_and_what_is_appended_is_pending() -> None:
    assert states(wanted(2, 4, 8), published(2, 4)) == [READY, READY, PENDING]
    assert shown(wanted(2, 4, 8), published(2, 4)).topics == 3


def test_a_switch_shows_step_by_step() -> None:
    spec, first = wanted(2, 4, 8, pointer=2), published(2, 4, 8)
    history = [first, begin_switch(first, 2)]
    while history[-1].switching_to is not None:
        history.append(complete_step(history[-1], [EMPTY] * history[-1].produce_topic.layout.partitions))
    assert [states(spec, each) for each in history] == [
        [READY, READY, READY],
        [SEALING, READY, READY],
        [SEALED, SEALING, READY],
        [SEALED, SEALED, READY],
    ]
    found = [shown(spec, each) for each in history]
    assert [each.produce_pointer for each in found] == [0, 0, 1, 2]
    assert [each.switching_to for each in found] == [None, 2, 2, None]
    assert [each.partitions for each in found] == [2, 2, 4, 8]
    generations = [each.descriptor_generation or 0 for each in found]
    assert all(new == old + 1 for old, new in pairwise(generations))


def test_sealed_partitions_are_counted_while_they_are_sealed() -> None:
    descriptor = begin_switch(published(4, 8), 1)
    rows = shown(wanted(4, 8, pointer=1), descriptor, {0: 3}).storage_topics
    assert [row.sealed_partitions for row in rows] == [3, 0]
    done = complete_step(descriptor, [EMPTY] * 4)
    rows = shown(wanted(4, 8, pointer=1), done, {0: 3}).storage_topics
    assert [row.sealed_partitions for row in rows] == [4, 0], "what is published outweighs what was counted"


def test_a_sealed_topic_shows_where_each_partition_ends() -> None:
    descriptor = complete_step(begin_switch(published(2, 4), 1), [EntryId(7, 41), EMPTY])
    rows = shown(wanted(2, 4, pointer=1), descriptor).storage_topics
    assert [row.last_positions for row in rows] == [("7:41", "-1:-1"), ()]


def test_scale_factors_and_routings_are_those_of_the_descriptor() -> None:
    rows = shown(wanted(2, 8, 3), published(2, 8, 3, unknown=(0,))).storage_topics
    assert [(row.k, row.routing) for row in rows] == [
        (1, "Unknown"),
        (1, "ShardConsistent"),
        (1, "ShardConsistent"),
    ]


@pytest.mark.parametrize("unknown", [(), (0,)], ids=["after one of ours", "after an adopted one with data"])
def test_a_pending_topic_shows_the_scale_factor_that_it_will_have(unknown: tuple[int, ...]) -> None:
    before = published(2, unknown=unknown)
    after = append(before, [(name(1), 4, False), (name(2), 8, False)])
    foreseen = [row.k for row in shown(wanted(2, 4, 8), before).storage_topics]
    assert foreseen == [row.k for row in shown(wanted(2, 4, 8), after).storage_topics]


def test_where_the_spec_contradicts_the_descriptor_the_descriptor_is_shown() -> None:
    rows = shown(wanted(3), published(2, 4)).storage_topics
    assert [(row.index, row.topic, row.partitions) for row in rows] == [(0, name(0), 2), (1, name(1), 4)]


def test_it_says_the_same_whenever_it_is_rebuilt() -> None:
    descriptor = switched(published(2, 4), EntryId(7, 41))
    found = shown(wanted(2, 4, pointer=1), descriptor)
    assert CompositeTopicStatus.model_validate(found.to_wire()) == found
    assert shown(wanted(2, 4, pointer=1), Descriptor.from_json(descriptor.to_json())) == found


def wordy(spec: Wanted, descriptor: Descriptor) -> CompositeTopicStatus:
    """With conditions as long as they get."""
    said = conditions(
        Verdict(Reason.DESCRIPTOR_CONFLICT, "x" * 5000),
        (),
        generation=3,
        now=NOW,
        risks=[Risk(Reason.NAMESPACE_TTL, "y" * 5000)],
    )
    return status(spec, descriptor, said, generation=3)


def size(found: CompositeTopicStatus) -> int:
    return len(json.dumps(found.to_wire(), separators=(",", ":")))


@pytest.mark.parametrize(
    ("end", "listed"),
    [
        pytest.param(EntryId(1_234_567, 89_012), 1000, id="ids of an ordinary cluster"),
        pytest.param(EntryId(2**31, 10**7), 1000, id="ids of an old cluster"),
        pytest.param(EntryId(2**63 - 1, 2**63 - 1), 0, id="the largest ids that there are"),
    ],
)
def test_a_thousand_partitions_stay_below_32_kib(end: EntryId, listed: int) -> None:
    found = wordy(wanted(1000, 2000, pointer=1), switched(published(1000, 2000), end))
    assert size(found) < 32 * KIB
    assert len(found.storage_topics[0].last_positions) == listed
    assert found.storage_topics[0].sealed_partitions == 1000


def test_beyond_that_the_positions_of_all_topics_are_in_the_descriptor_only() -> None:
    once = switched(published(1000, 1000, 1000), EntryId(1_234_567, 89_012))
    found = wordy(wanted(1000, 1000, 1000, pointer=2), switched(once, EntryId(1_234_567, 89_012)))
    assert [row.last_positions for row in found.storage_topics] == [(), (), ()]
    assert [row.sealed_partitions for row in found.storage_topics] == [1000, 1000, 0]
    assert size(found) < 32 * KIB


def test_the_most_storage_topics_stay_below_32_kib() -> None:
    counts = [4] * 64
    descriptor = published(*counts)
    while descriptor.produce_pointer < 63:
        descriptor = switched(descriptor, EntryId(1_234_567, 89_012))
    assert size(wordy(wanted(*counts, pointer=63), descriptor)) < 32 * KIB
