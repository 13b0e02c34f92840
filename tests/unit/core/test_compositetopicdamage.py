"""What the plan of a CompositeTopic says when Pulsar is not as it was left, or the spec not as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millrace.api.reasons import ConditionType, Reason
from millrace.core.compositetopicactions import CreateStorageTopic, Wanted
from millrace.core.routing import Routing
from tests.unit.core.pulsarmodel import (
    DESCRIPTOR,
    FOREIGN,
    Topic,
    World,
    announced,
    half_sealed,
    in_use,
    name,
    outcome,
    there,
    wanted,
)


def stalled(world: World, spec: Wanted) -> tuple[Reason, str]:
    """The verdict of a plan that must not change anything."""
    after, verdict, _ = outcome(world, spec)
    assert after == world, "what a person has to settle is left alone"
    assert verdict.condition is ConditionType.STALLED
    return verdict.reason, verdict.message


def switched(*partitions: int) -> World:
    """Producers have left the first storage topic."""
    return outcome(in_use(*partitions), wanted(*partitions, pointer=1))[0]


# Topics that vanished


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(there(2).having(DESCRIPTOR, None), id="deleted"),
        pytest.param(replace(there(2), published=()), id="emptied"),
    ],
)
def test_a_lost_descriptor_is_not_written_anew(world: World) -> None:
    reason, message = stalled(world, wanted(2, generation=1))
    assert reason is Reason.TOPIC_VANISHED
    assert "generation 1" in message


def test_a_status_that_was_lost_as_well_is_rebuilt_from_the_descriptor() -> None:
    before = switched(2, 4)
    after, verdict, _ = outcome(before, wanted(2, 4, pointer=1, generation=0))
    assert (after, verdict.reason) == (before, Reason.READY)


@pytest.mark.parametrize("index", [0, 1], ids=["a sealed topic", "the topic that producers write to"])
def test_a_published_topic_that_held_data_is_not_created_again(index: int) -> None:
    reason, message = stalled(switched(2, 4).having(name(index), None), wanted(2, 4, pointer=1, generation=3))
    assert reason is Reason.TOPIC_VANISHED
    assert name(index) in message


def test_a_published_topic_that_was_never_opened_is_created_again() -> None:
    world, verdict, actions = outcome(in_use(2, 4).having(name(1), None), wanted(2, 4, generation=1))
    assert verdict.reason is Reason.READY
    assert CreateStorageTopic(1, name(1), 4) in actions
    assert world == in_use(2, 4)


def test_a_topic_that_vanished_during_a_switch_is_there_again_before_the_pointer_gets_to_it() -> None:
    world, verdict, _ = outcome(
        half_sealed(2, 4).having(name(1), None), wanted(2, 4, pointer=1, generation=2)
    )
    assert verdict.reason is Reason.READY
    assert world.topics[name(1)].subscriptions == {"billing", "audit"}


def test_an_adopted_topic_that_held_data_is_not_created_again_though_it_was_never_opened() -> None:
    spec = wanted(2, 4, generation=1, adopt=(1,))
    world, _, _ = outcome(there(2).having(name(1), Topic.of(1, 0, 0, 0)), spec)
    assert stalled(world.having(name(1), None), spec)[0] is Reason.TOPIC_VANISHED


@pytest.mark.parametrize("index", [0, 1])
def test_a_published_topic_without_its_owner_was_made_by_somebody_else(index: int) -> None:
    world = in_use(2, 4).changed(name(index), properties={})
    reason, message = stalled(world, wanted(2, 4, generation=1, adopt=(0, 1)))
    assert reason is Reason.TOPIC_VANISHED
    assert "no longer carries" in message


def test_a_published_topic_with_a_foreign_owner_is_left_alone() -> None:
    world = in_use(2, 4).changed(name(1), properties=FOREIGN)
    assert stalled(world, wanted(2, 4, generation=1))[0] is Reason.FOREIGN_OWNER


# Topics of another shape


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        pytest.param(Topic.of(0, 0, 0), "has 3 partitions", id="another count"),
        pytest.param(Topic(None), "is not partitioned", id="not partitioned"),
    ],
)
def test_a_topic_of_another_shape_is_not_adopted(topic: Topic, words: str) -> None:
    world, verdict, _ = outcome(World({name(0): topic}), wanted(2, adopt=(0,)))
    assert verdict.reason is Reason.PARTITION_MISMATCH
    assert words in verdict.message
    assert world.topics[name(0)] == topic
    assert not world.published


def grown(world: World, index: int) -> World:
    """Somebody added two partitions in Pulsar."""
    topic = world.topics[name(index)]
    return world.changed(name(index), partitions=topic.partitions + 2, entries=(*topic.entries, 0, 0))


def test_partitions_added_to_the_topic_that_producers_write_to_stall_it() -> None:
    reason, message = stalled(grown(in_use(2, 4), 0), wanted(2, 4, generation=1))
    assert reason is Reason.PARTITION_MISMATCH
    assert "append a storage topic and raise producePointer" in message


def test_a_grown_topic_is_left_by_the_switch_that_the_message_asks_for() -> None:
    world, verdict, _ = outcome(grown(in_use(2), 0), wanted(2, 4, pointer=1, generation=1))
    assert verdict.reason is Reason.READY
    assert world.topics[name(0)].terminated == {0, 1}, "only what producers ever knew is sealed"


def test_partitions_added_to_a_topic_that_producers_have_left_do_not_matter() -> None:
    before = grown(switched(2, 4), 0)
    after, verdict, _ = outcome(before, wanted(2, 4, pointer=1, generation=3))
    assert (after, verdict.reason) == (before, Reason.READY)


def test_partitions_that_are_missing_matter_even_in_a_topic_that_producers_have_left() -> None:
    world = switched(2, 4).changed(name(0), partitions=1, entries=(3,))
    assert stalled(world, wanted(2, 4, pointer=1, generation=3))[0] is Reason.PARTITION_MISMATCH


def test_a_topic_of_another_shape_is_not_adopted_on_the_way_to_a_later_one() -> None:
    world = there(2).having(name(1), Topic.of(*[9] * 8))
    world, verdict, _ = outcome(world, wanted(2, 4, 4, pointer=2, generation=1, adopt=(1,)))
    assert verdict.reason is Reason.PARTITION_MISMATCH, "nobody would ever read partitions 4 to 7"
    assert world.topics[name(1)] == Topic.of(*[9] * 8)


# A spec that contradicts the descriptor


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param(
            replace(wanted(2, 4, pointer=1), routing=Routing.RANGE),
            "routing is ShardConsistent, not Range",
            id="another routing",
        ),
        pytest.param(wanted(2, pointer=0), "there are 2 storage topics, not 1", id="fewer topics"),
        pytest.param(wanted(2, 8, pointer=1), "storage topic 1 has 4 partitions, not 8", id="another count"),
        pytest.param(
            replace(wanted(2, 4, pointer=1), topics=wanted(4, 2, 4).topics[1:]),
            f"storage topic 1 is {name(0)}, not {name(1)}",
            id="another name",
        ),
        pytest.param(wanted(2, 4, pointer=0), "producePointer is 1 already", id="a lower pointer"),
    ],
)
def test_a_spec_that_contradicts_the_descriptor_changes_nothing(spec: Wanted, words: str) -> None:
    reason, message = stalled(switched(2, 4), spec)
    assert reason is Reason.DESCRIPTOR_CONFLICT
    assert words in message


def test_every_contradiction_is_named_at_once() -> None:
    _, message = stalled(switched(2, 4), replace(wanted(3), routing=Routing.RANGE))
    for words in (
        "routing is",
        "there are 2 storage topics",
        "has 2 partitions, not 3",
        "producePointer is 1",
    ):
        assert words in message


def test_an_announced_switch_is_not_taken_back() -> None:
    reason, message = stalled(half_sealed(2, 4), wanted(2, 4, pointer=0, generation=0))
    assert reason is Reason.DESCRIPTOR_CONFLICT
    assert "a switch to producePointer 1 has begun" in message


def test_an_announced_switch_by_two_is_not_shortened() -> None:
    world = announced(in_use(2, 4, 8), 2)
    assert stalled(world, wanted(2, 4, 8, pointer=1))[0] is Reason.DESCRIPTOR_CONFLICT


# Topics that were terminated by somebody else


def closed(world: World, index: int) -> World:
    """Somebody terminated one partition."""
    return world.changed(name(index), terminated=frozenset({0}))


def test_a_termination_of_the_topic_that_producers_write_to_is_noticed() -> None:
    reason, message = stalled(closed(in_use(2), 0), wanted(2, generation=1))
    assert reason is Reason.TERMINATED_OUTSIDE
    assert "raise producePointer" in message


def test_a_topic_terminated_outside_is_left_by_a_switch() -> None:
    world, verdict, _ = outcome(closed(in_use(2), 0), wanted(2, 4, pointer=1, generation=1))
    assert verdict.reason is Reason.READY
    assert world.topics[name(0)].closed


def test_a_switch_to_a_terminated_topic_is_refused_before_anything_is_sealed() -> None:
    reason, message = stalled(closed(in_use(2, 4), 1), wanted(2, 4, pointer=1, generation=1))
    assert reason is Reason.TERMINATED_OUTSIDE
    assert name(1) in message


def test_a_switch_leads_past_a_terminated_topic() -> None:
    world, verdict, _ = outcome(closed(in_use(2, 4, 8), 1), wanted(2, 4, 8, pointer=2, generation=1))
    assert verdict.reason is Reason.READY
    assert world.topics[name(1)].closed
    assert not world.topics[name(2)].terminated


def test_a_terminated_topic_is_not_the_first_that_producers_are_sent_to() -> None:
    before = World({name(0): Topic.of(3, 0, terminated=frozenset({0, 1}))})
    world, verdict, _ = outcome(before, wanted(2, adopt=(0,)))
    assert verdict.reason is Reason.TERMINATED_OUTSIDE
    assert not world.published


def test_a_terminated_topic_can_be_adopted_together_with_one_that_is_open() -> None:
    before = World({name(0): Topic.of(3, 0, terminated=frozenset({0, 1}))})
    world, verdict, _ = outcome(before, wanted(2, 4, pointer=1, adopt=(0,)))
    assert verdict.reason is Reason.READY
    assert world.descriptor is not None
    assert world.descriptor.produce_pointer == 1
