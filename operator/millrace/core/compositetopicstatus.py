"""The status of a CompositeTopic: a projection of the descriptor, rebuilt from nothing when it is lost."""

from __future__ import annotations

from collections.abc import Mapping

from millrace.api.compositetopic import (
    MAX_LISTED_POSITIONS,
    CompositeTopicStatus,
    StorageTopicState,
    StorageTopicStatus,
)
from millrace.api.meta import Condition
from millrace.core.compositetopicactions import Wanted
from millrace.core.descriptor import Descriptor
from millrace.core.routing import next_layout

MAX_POSITIONS_LENGTH = 24 * 1024
"""Status stays below 32 KiB; where the sealed ends are longer than this they are in the descriptor only."""


def status(
    wanted: Wanted,
    descriptor: Descriptor | None,
    conditions: tuple[Condition, ...],
    *,
    generation: int,
    sealed_so_far: Mapping[int, int] | None = None,
) -> CompositeTopicStatus:
    """What to write. `sealed_so_far` counts the partitions of a storage topic that is being sealed."""
    return CompositeTopicStatus(
        observed_generation=generation,
        cluster_id=wanted.owner.cluster,
        descriptor_topic=wanted.descriptor_topic,
        descriptor_generation=None if descriptor is None else descriptor.generation,
        produce_pointer=None if descriptor is None else descriptor.produce_pointer,
        switching_to=None if descriptor is None else descriptor.switching_to,
        partitions=None if descriptor is None else descriptor.produce_topic.layout.partitions,
        routing=wanted.routing.value if descriptor is None else descriptor.routing.value,
        storage_topics=_storage_topics(wanted, descriptor, sealed_so_far or {}),
        conditions=conditions,
    )


def _storage_topics(
    wanted: Wanted, descriptor: Descriptor | None, sealed_so_far: Mapping[int, int]
) -> tuple[StorageTopicStatus, ...]:
    published = () if descriptor is None else descriptor.storage_topics
    # Each is written with two quotes and a comma.
    lengths = [len(str(end)) + 3 for topic in published for end in topic.sealed or ()]
    show_positions = len(lengths) <= MAX_LISTED_POSITIONS and sum(lengths) <= MAX_POSITIONS_LENGTH
    rows = [
        StorageTopicStatus(
            index=index,
            topic=there.topic,
            partitions=there.layout.partitions,
            k=there.layout.scale_factor,
            routing=there.layout.routing.value,
            state=_state(descriptor, index),
            sealed_partitions=sealed_so_far.get(index, 0) if there.sealed is None else len(there.sealed),
            last_positions=tuple(str(end) for end in there.sealed or ()) if show_positions else (),
        )
        for index, there in enumerate(published)
    ]
    layout = published[-1].layout if published else None
    for topic in wanted.topics[len(published) :]:
        layout = next_layout(layout, topic.partitions, wanted.routing)
        rows.append(
            StorageTopicStatus(
                index=topic.index,
                topic=topic.topic,
                partitions=topic.partitions,
                k=layout.scale_factor,
                routing=wanted.routing.value,
                state=StorageTopicState.PENDING,
            )
        )
    return tuple(rows)


def _state(descriptor: Descriptor | None, index: int) -> StorageTopicState:
    assert descriptor is not None
    if descriptor.storage_topics[index].sealed is not None:
        return StorageTopicState.SEALED
    if index == descriptor.produce_pointer and descriptor.switching_to is not None:
        return StorageTopicState.SEALING
    return StorageTopicState.READY
