"""Where a consumer may be told to begin: refused before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millrace.client.errors import EndOfPartition, NoSuchPartition
from millrace.core.descriptor import Descriptor
from millrace.core.positions import EMPTY, Position
from millrace.core.reading import Stream
from millrace.pulsar.errors import Misconfigured


def check_options(subscription: str | None, read_pointer: int, after: Mapping[Any, Any] | None) -> None:
    """Refuse what cannot be wished for together."""
    if subscription is None:
        return
    if not subscription or "/" in subscription:
        raise Misconfigured(f"{subscription!r} cannot be the name of a subscription; choose one without '/'")
    if after is not None or read_pointer != 0:
        raise Misconfigured(
            f"the subscription {subscription!r} knows where to go on: leave out `after` and `read_pointer`"
        )


def check_stream(descriptor: Descriptor, stream: Stream) -> None:
    """Refuse what the composite topic does not have."""
    topics = descriptor.storage_topics
    if not 0 <= stream.storage_topic < len(topics):
        raise NoSuchPartition(
            f"{descriptor.name} has no storage topic {stream.storage_topic}; the last is {len(topics) - 1}"
        )
    partitions = topics[stream.storage_topic].layout.partitions
    if not 0 <= stream.partition < partitions:
        raise NoSuchPartition(
            f"{topics[stream.storage_topic].topic} has no partition {stream.partition}; "
            f"the last is {partitions - 1}"
        )


def check_after(descriptor: Descriptor, stream: Stream, position: Position) -> None:
    """Refuse what cannot have been read from there. (After EMPTY it can: what was read may be trimmed.)"""
    check_stream(descriptor, stream)
    if position.storage_topic != stream.storage_topic:
        raise NoSuchPartition(f"position {position} is not one of storage topic {stream.storage_topic}")
    topic = descriptor.storage_topics[stream.storage_topic]
    if topic.sealed is None or (end := topic.sealed[stream.partition]) == EMPTY:
        return
    if position.entry_id > end:
        raise EndOfPartition(
            f"{topic.partition_topic(stream.partition)} ends at {end}; "
            f"nothing can have been read at {position}"
        )
