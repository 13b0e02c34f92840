"""Deleting a CompositeTopic with its data: what goes, what stays, in which order, from any interruption."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millrace.api.reasons import Reason
from millrace.core.compositetopicactions import DeleteTopic, InspectDescriptorTopic, Knowledge, Wanted
from millrace.core.compositetopicdeletions import plan_deletion
from millrace.core.compositetopics import Settled
from millrace.core.ownership import owner_properties
from tests.unit.core.pulsarmodel import (
    DESCRIPTOR,
    EARLIER,
    FOREIGN,
    OWNER,
    Step,
    Topic,
    World,
    half_sealed,
    histories,
    in_use,
    name,
    outcome,
    run,
    there,
    wanted,
)

ADOPTED = owner_properties(OWNER, adopted=True)


def deleted(world: World, spec: Wanted) -> World:
    """What is left of the world when the finalizer goes."""
    for step in run(world, spec, planner=plan_deletion):
        assert isinstance(step, Step)
        assert step.verdict.reason is Reason.DELETING
        world = step.after
    return world


def test_the_first_thing_is_to_look() -> None:
    first = plan_deletion(wanted(2), Knowledge())
    assert first is not None
    assert first.actions == (InspectDescriptorTopic(DESCRIPTOR),)


@pytest.mark.parametrize(
    "world",
    [there(2, 4), in_use(2, 4), half_sealed(2, 4)],
    ids=["unused", "in use", "in the middle of a switch"],
)
def test_everything_that_was_created_goes(world: World) -> None:
    assert deleted(world, wanted(2, 4)) == World()


def test_an_object_of_which_nothing_was_ever_created_goes_at_once() -> None:
    assert deleted(World(), wanted(2, 4)) == World()


def test_what_is_gone_already_does_not_hold_the_rest_up() -> None:
    assert deleted(in_use(2, 4).having(name(0), None), wanted(2, 4)) == World()
    assert deleted(in_use(2, 4).having(DESCRIPTOR, None), wanted(2, 4)).topics == {}


def test_what_an_earlier_object_of_the_same_name_left_goes_as_well() -> None:
    world = in_use(2, 4).changed(name(0), properties=EARLIER).changed(DESCRIPTOR, properties=EARLIER)
    assert deleted(world, wanted(2, 4)) == World()


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param(FOREIGN, id="a foreign one"),
        pytest.param({}, id="one that nobody owns"),
        pytest.param(ADOPTED, id="an adopted one"),
    ],
)
def test_a_storage_topic_that_we_did_not_create_stays(properties: dict[str, str]) -> None:
    world = in_use(2, 4).changed(name(0), properties=properties)
    assert deleted(world, wanted(2, 4)).topics == {name(0): world.topics[name(0)]}


@pytest.mark.parametrize("properties", [FOREIGN, {}], ids=["a foreign one", "one that nobody owns"])
def test_a_descriptor_topic_that_is_not_ours_is_neither_believed_nor_deleted(
    properties: dict[str, str],
) -> None:
    world = in_use(2, 4).changed(DESCRIPTOR, properties=properties)
    left = deleted(world, wanted(2))
    assert left.topics == {each: world.topics[each] for each in (DESCRIPTOR, name(1))}


def test_topics_that_only_the_descriptor_knows_go_as_well() -> None:
    assert deleted(in_use(2, 4, 8), wanted(2)) == World()


def test_topics_are_deleted_under_the_names_that_are_published() -> None:
    elsewhere = replace(wanted(2, 4), topics=wanted(9, 9, 2, 4).topics[2:])
    renamed = replace(
        elsewhere, topics=tuple(replace(topic, index=i) for i, topic in enumerate(elsewhere.topics))
    )
    assert deleted(in_use(2, 4), renamed) == World()


def test_nothing_that_only_has_the_name_of_ours_is_deleted() -> None:
    stranger = Topic.of(1, 2)
    assert deleted(World({name(0): stranger}), wanted(2)).topics == {name(0): stranger}


@pytest.mark.parametrize("spec", [wanted(2, 4, 8), wanted(2)], ids=["the spec knows all", "an older spec"])
def test_wherever_the_process_dies_nothing_is_left_behind(spec: Wanted) -> None:
    for step in histories(in_use(2, 4, 8), spec, plan_deletion):
        assert not isinstance(step, Settled)
        assert deleted(step.after, spec) == World()


def test_the_list_of_topics_goes_last() -> None:
    for step in histories(in_use(2, 4, 8), wanted(2), plan_deletion):
        if isinstance(step, Step) and step.action == DeleteTopic(DESCRIPTOR, partitioned=False, index=None):
            assert set(step.before.topics) == {DESCRIPTOR}


def test_the_message_names_what_is_being_deleted() -> None:
    messages = [
        step.verdict.message
        for step in run(in_use(2, 4), wanted(2, 4), planner=plan_deletion)
        if isinstance(step, Step) and isinstance(step.action, DeleteTopic)
    ]
    assert messages == [f"deleting {name(0)}, {name(1)}"] * 2 + [f"deleting {DESCRIPTOR}"]


def test_a_deleted_object_that_is_applied_again_starts_anew() -> None:
    gone = deleted(in_use(2, 4), wanted(2, 4))
    assert outcome(gone, wanted(2, 4))[0] == there(2, 4)
