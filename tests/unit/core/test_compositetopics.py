"""The plan of a CompositeTopic: every stage and verdict, and that it converges from every interruption."""

from __future__ import annotations

from itertools import pairwise

import pytest

from millrace.api.reasons import ConditionType, Reason
from millrace.core.compositetopicactions import (
    Action,
    AdoptTopic,
    ClaimDescriptorTopic,
    CopySubscriptions,
    CreateStorageTopic,
    InspectDescriptorTopic,
    InspectPartitions,
    InspectStorageTopic,
    Knowledge,
    PublishDescriptor,
    ReadDescriptor,
    RenewOwner,
    SealPartitions,
    SettlePolicies,
    Wanted,
)
from millrace.core.compositetopics import Act, Settled, plan
from millrace.core.descriptor import Descriptor, initial
from millrace.core.ownership import Ownership, classify, is_adopted, owner_properties
from millrace.core.positions import EMPTY, EntryId
from millrace.core.routing import Routing
from tests.unit.core.pulsarmodel import (
    DESCRIPTOR,
    EARLIER,
    FOREIGN,
    OWNER,
    Stale,
    Step,
    Topic,
    World,
    announced,
    half_sealed,
    histories,
    in_use,
    name,
    outcome,
    run,
    there,
    wanted,
)


def kinds(actions: list[Action]) -> list[type]:
    return [type(action) for action in actions]


# Creation


def test_a_new_object_is_created_with_the_fewest_calls() -> None:
    world, verdict, actions = outcome(World(), wanted(2, 4))
    assert verdict.reason is Reason.READY
    assert verdict.message == f"producers write to {name(0)} (2 partitions)"
    assert kinds(actions) == [
        ClaimDescriptorTopic,
        *[CreateStorageTopic] * 2,
        *[SettlePolicies] * 2,
        PublishDescriptor,
    ]
    assert world.published == (
        initial("shop/orders", Routing.SHARD_CONSISTENT, [(name(0), 2, False), (name(1), 4, False)]),
    )


def test_a_ready_object_is_looked_at_and_left_as_it_is() -> None:
    before = there(2, 4)
    after, verdict, actions = outcome(before, wanted(2, 4, generation=1))
    assert (after, verdict.reason) == (before, Reason.READY)
    assert InspectDescriptorTopic(DESCRIPTOR) in actions
    assert ClaimDescriptorTopic(DESCRIPTOR) not in actions
    assert CreateStorageTopic not in kinds(actions)


def test_the_verdict_of_an_unfinished_plan_is_reconciling() -> None:
    steps = [step for step in run(World(), wanted(2)) if isinstance(step, Step)]
    assert {step.verdict.reason for step in steps} == {Reason.CREATING}
    assert {step.verdict.condition for step in steps} == {ConditionType.RECONCILING}


def test_policies_that_somebody_removed_come_back() -> None:
    bare = there(2).changed(DESCRIPTOR, settled=False).changed(name(0), settled=False)
    assert outcome(bare, wanted(2, generation=1))[0] == there(2)


def test_an_appended_entry_is_created_and_published_and_the_pointer_stays() -> None:
    world, verdict, _ = outcome(in_use(2), wanted(2, 4, generation=1))
    assert verdict.reason is Reason.READY
    assert world.descriptor is not None
    assert [topic.topic for topic in world.descriptor.storage_topics] == [name(0), name(1)]
    assert (world.descriptor.produce_pointer, world.descriptor.generation) == (0, 2)
    assert world.topics[name(0)] == in_use(2).topics[name(0)]


# Switching


def test_a_switch_is_announced_prepared_sealed_prepared_again_and_completed() -> None:
    world, verdict, actions = outcome(in_use(3, 6), wanted(3, 6, pointer=1, generation=1))
    assert verdict.reason is Reason.READY
    changing = [
        action
        for action in actions
        if isinstance(action, PublishDescriptor | CopySubscriptions | SealPartitions)
    ]
    assert kinds(changing) == [
        PublishDescriptor,
        CopySubscriptions,
        SealPartitions,
        CopySubscriptions,
        PublishDescriptor,
    ]
    assert world.descriptor is not None
    assert (world.descriptor.produce_pointer, world.descriptor.switching_to) == (1, None)
    assert world.descriptor.storage_topics[0].sealed == (EMPTY, EntryId(71, 4), EntryId(72, 5))
    assert world.topics[name(1)].subscriptions == {"billing", "audit"}
    assert not world.topics[name(1)].terminated


def test_the_conditions_tell_switching_from_sealing() -> None:
    told = {
        (type(step.action), step.verdict.reason)
        for step in run(in_use(3, 6), wanted(3, 6, pointer=1))
        if isinstance(step, Step)
    }
    assert (SealPartitions, Reason.SEALING) in told
    assert (CopySubscriptions, Reason.SWITCHING) in told
    assert (PublishDescriptor, Reason.SWITCHING) in told


def test_a_pointer_raised_by_two_seals_the_topic_between_as_well() -> None:
    world, verdict, _ = outcome(in_use(2, 4, 8), wanted(2, 4, 8, pointer=2, generation=1))
    assert verdict.reason is Reason.READY
    assert world.topics[name(0)].closed
    assert world.topics[name(1)].closed
    assert [each.produce_pointer for each in world.published] == [0, 0, 1, 2]
    assert [each.switching_to for each in world.published] == [None, 2, 2, None]
    assert world.topics[name(2)].subscriptions == {"billing", "audit"}


def test_a_topic_can_be_created_with_a_raised_pointer_at_once() -> None:
    world, verdict, _ = outcome(World(), wanted(2, 4, pointer=1))
    assert verdict.reason is Reason.READY
    assert world.descriptor is not None
    assert world.descriptor.storage_topics[0].sealed == (EMPTY, EMPTY)


def test_a_subscription_that_comes_during_the_sealing_is_copied_too() -> None:
    def late(world: World, action: Action) -> World:
        if isinstance(action, SealPartitions):
            return world.changed(name(0), subscriptions=world.topics[name(0)].subscriptions | {"late"})
        return world

    world, verdict, _ = outcome(in_use(2, 4), wanted(2, 4, pointer=1), meanwhile=late)
    assert verdict.reason is Reason.READY
    assert "late" in world.topics[name(1)].subscriptions


def test_a_pointer_raised_again_during_a_switch_is_reached_afterwards() -> None:
    world, verdict, _ = outcome(half_sealed(2, 4, 8), wanted(2, 4, 8, pointer=2, generation=2))
    assert verdict.reason is Reason.READY
    assert [each.produce_pointer for each in world.published] == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("pointer", [1, 2])
def test_an_entry_that_cannot_be_used_does_not_keep_an_announced_switch_from_its_end(pointer: int) -> None:
    world = half_sealed(2, 4).having(name(2), Topic.of(*[0] * 8))
    after, verdict, _ = outcome(world, wanted(2, 4, 8, pointer=pointer, generation=2))
    assert verdict.reason is Reason.TOPIC_EXISTS
    assert after.descriptor is not None
    assert after.descriptor.produce_pointer == 1, "producers must not wait for a person"
    assert after.topics[name(2)] == world.topics[name(2)]


# Interruptions

ADOPTED = World({name(0): Topic.of(3, 0, properties={"team": "shop"})})
SCENARIOS = [
    pytest.param(World(), wanted(2, 4), id="creation"),
    pytest.param(there(2), wanted(2, 4, generation=1), id="an append"),
    pytest.param(in_use(3, 6), wanted(3, 6, pointer=1, generation=1), id="a switch"),
    pytest.param(in_use(2, 4, 3), wanted(2, 4, 3, pointer=2, generation=1), id="a switch by two"),
    pytest.param(in_use(2), wanted(2, 4, 2, pointer=2, generation=1), id="an append with a switch"),
    pytest.param(World(), wanted(2, 4, 2, pointer=2), id="creation with a switch"),
    pytest.param(half_sealed(3, 6), wanted(3, 6, 12, pointer=2, generation=2), id="a pointer raised again"),
    pytest.param(ADOPTED, wanted(2, 4, pointer=1, adopt=(0,)), id="an adoption with a switch"),
]


@pytest.mark.parametrize(("world", "spec"), SCENARIOS)
def test_wherever_the_process_dies_the_same_end_is_reached(world: World, spec: Wanted) -> None:
    end, _, _ = outcome(world, spec)
    for step in histories(world, spec):
        if isinstance(step, Settled):
            assert step.verdict.reason is Reason.READY
            continue
        finished, verdict, _ = outcome(step.after, spec)
        assert verdict.reason is Reason.READY
        assert finished == end


@pytest.mark.parametrize(("world", "spec"), SCENARIOS)
def test_the_order_of_actions_within_a_plan_does_not_matter(world: World, spec: Wanted) -> None:
    assert outcome(world, spec, reverse=True)[:2] == outcome(world, spec)[:2]


@pytest.mark.parametrize(("world", "spec"), SCENARIOS)
def test_nothing_is_terminated_before_the_switch_is_announced(world: World, spec: Wanted) -> None:
    for step in histories(world, spec):
        if isinstance(step, Step) and isinstance(step.action, SealPartitions):
            now = step.before.descriptor
            assert now is not None
            assert now.switching_to is not None
            assert step.action.topic == now.produce_topic.topic, "only what producers leave is closed"


@pytest.mark.parametrize(("world", "spec"), SCENARIOS)
def test_the_pointer_moves_one_step_and_only_past_what_is_sealed_and_copied(
    world: World, spec: Wanted
) -> None:
    for step in histories(world, spec):
        if isinstance(step, Step) and isinstance(step.action, PublishDescriptor):
            _check_publication(step.before, step.before.descriptor, step.action)


def _check_publication(world: World, old: Descriptor | None, action: PublishDescriptor) -> None:
    new = action.descriptor
    for topic in new.storage_topics[new.produce_pointer :]:
        facts = world.topics[topic.topic]
        assert classify(facts.properties, OWNER) is Ownership.OURS, "what is published is ours"
        assert facts.settled, "what is published is protected"
    for left in new.storage_topics[: new.produce_pointer]:
        facts = world.topics[left.topic]
        assert facts.closed
        assert left.sealed == tuple(facts.end(partition) for partition in range(left.layout.partitions))
    if old is None:
        assert new.produce_pointer == 0
        return
    assert new.produce_pointer - old.produce_pointer in (0, 1)
    if new.produce_pointer > old.produce_pointer:
        source, target = world.topics[old.produce_topic.topic], world.topics[new.produce_topic.topic]
        assert source.subscriptions <= target.subscriptions


@pytest.mark.parametrize(("world", "spec"), SCENARIOS)
def test_every_publication_follows_the_one_that_was_read(world: World, spec: Wanted) -> None:
    end, _, _ = outcome(world, spec)
    assert all(new.generation == old.generation + 1 for old, new in pairwise(end.published))


def test_a_reconciler_that_was_overtaken_publishes_nothing() -> None:
    def overtake(world: World, action: Action) -> World:
        return announced(world, 1) if isinstance(action, ReadDescriptor) else world

    with pytest.raises(Stale):
        outcome(in_use(2, 4), wanted(2, 4, pointer=1), meanwhile=overtake)


# Whose topics they are


def test_a_foreign_descriptor_topic_is_left_alone_and_nothing_is_created() -> None:
    world = World({DESCRIPTOR: Topic(None, FOREIGN)})
    after, verdict, _ = outcome(world, wanted(2))
    assert (after, verdict.reason) == (world, Reason.FOREIGN_OWNER)
    assert "store/payments of cluster prod-us" in verdict.message


def test_a_descriptor_topic_that_nobody_owns_is_left_alone() -> None:
    world = World({DESCRIPTOR: Topic(None)})
    after, verdict, _ = outcome(world, wanted(2))
    assert (after, verdict.reason) == (world, Reason.TOPIC_EXISTS)


@pytest.mark.parametrize("adopt", [(), (1,)], ids=["not adopted", "adopted"])
def test_a_foreign_storage_topic_is_never_taken_and_nothing_is_published(adopt: tuple[int, ...]) -> None:
    world, verdict, _ = outcome(
        World({name(1): Topic.of(0, 0, 0, 0, properties=FOREIGN)}), wanted(2, 4, adopt=adopt)
    )
    assert verdict.reason is Reason.FOREIGN_OWNER
    assert world.topics[name(1)].properties == FOREIGN
    assert not world.published, "half a list is never published"


def test_a_storage_topic_that_nobody_owns_is_taken_only_if_asked() -> None:
    before = World({name(0): Topic.of(0, 0, properties={"team": "shop"})})
    world, verdict, _ = outcome(before, wanted(2))
    assert verdict.reason is Reason.TOPIC_EXISTS
    assert (world.topics[name(0)], world.published) == (before.topics[name(0)], ())
    world, verdict, actions = outcome(before, wanted(2, adopt=(0,)))
    assert verdict.reason is Reason.READY
    assert AdoptTopic(0, name(0)) in actions
    assert is_adopted(world.topics[name(0)].properties)
    assert world.topics[name(0)].properties["team"] == "shop"


def test_a_topic_to_adopt_that_does_not_exist_is_not_created() -> None:
    world, verdict, actions = outcome(World(), wanted(2, adopt=(0,)))
    assert verdict.reason is Reason.INVALID_SPEC
    assert "does not exist" in verdict.message
    assert InspectStorageTopic(0, name(0)) in actions
    assert name(0) not in world.topics


def test_an_adopted_topic_with_data_can_be_read_and_is_left_by_a_switch() -> None:
    world, verdict, _ = outcome(ADOPTED, wanted(2, adopt=(0,)))
    assert world.descriptor is not None
    assert world.descriptor.produce_topic.layout.routing is Routing.UNKNOWN
    assert verdict.reason is Reason.READY
    assert "its routing is unknown" in verdict.message
    world, verdict, _ = outcome(world, wanted(2, 4, pointer=1, generation=1, adopt=(0,)))
    assert verdict.reason is Reason.READY
    assert world.descriptor.storage_topics[0].layout.routing is Routing.UNKNOWN


def test_an_adopted_empty_topic_is_routed_like_any_other() -> None:
    world, _, _ = outcome(World({name(0): Topic.of(0, 0)}), wanted(2, adopt=(0,)))
    assert world.descriptor is not None
    assert world.descriptor.produce_topic.layout.routing is Routing.SHARD_CONSISTENT


def test_data_that_came_between_adoption_and_publication_is_seen() -> None:
    adopted = Topic.of(1, 0, properties=owner_properties(OWNER, adopted=True), settled=True)
    world, _, actions = outcome(World({name(0): adopted}), wanted(2, adopt=(0,)))
    assert InspectPartitions(0, name(0), 2) in actions
    assert world.descriptor is not None
    assert world.descriptor.produce_topic.layout.routing is Routing.UNKNOWN


def test_a_switch_to_a_topic_with_unknown_routing_is_refused_before_anything_is_sealed() -> None:
    world = there(2).having(name(1), Topic.of(1, 2, 3, 4))
    world, verdict, _ = outcome(world, wanted(2, 4, pointer=1, generation=1, adopt=(1,)))
    assert verdict.reason is Reason.INVALID_SPEC
    assert "it can be read but not written to" in verdict.message
    assert not world.topics[name(0)].terminated
    assert world.descriptor is not None
    assert world.descriptor.switching_to is None


def test_what_an_earlier_object_of_the_same_name_left_is_taken_over() -> None:
    left = in_use(2, 4).changed(DESCRIPTOR, properties=EARLIER).changed(name(0), properties=EARLIER)
    world, verdict, actions = outcome(left, wanted(2, 4))
    assert verdict.reason is Reason.READY
    assert [action for action in actions if isinstance(action, RenewOwner)] == [
        RenewOwner(None, DESCRIPTOR),
        RenewOwner(0, name(0)),
    ]
    assert world == in_use(2, 4)


def test_the_mark_of_an_adopted_topic_outlives_its_object() -> None:
    adopted, _, _ = outcome(ADOPTED, wanted(2, adopt=(0,)))
    before = adopted.topics[name(0)].properties
    left = adopted.changed(name(0), properties={**before, **EARLIER})
    world, _, _ = outcome(left, wanted(2, adopt=(0,)))
    assert world.topics[name(0)].properties == before


def test_nothing_is_asked_before_the_claim_to_the_name() -> None:
    assert isinstance(first := plan(wanted(2), Knowledge()), Act)
    assert first.actions == (ClaimDescriptorTopic(DESCRIPTOR),)
    assert isinstance(again := plan(wanted(2, generation=3), Knowledge()), Act)
    assert again.actions == (InspectDescriptorTopic(DESCRIPTOR),), "a lost descriptor is not made anew"
