"""The descriptor of a composite topic: what producers and consumers know of it, and how it may change.

It is the truth (Kubernetes status is only a projection) and lives in a compacted Pulsar topic, so that
clients need no Kubernetes access. Every change is one of the functions below; each returns a value with
`generation + 1`, and the store publishes it only if nobody else has published since (compare and swap).

What holds of every descriptor ever published (`tests/unit/core/test_descriptor.py`):
- storage topics are only appended; a published layout never changes; no topic is listed twice;
- `produce_pointer` never shrinks, and advances one sealed step at a time;
- every storage topic before `produce_pointer` is sealed, none at or after it is;
- sealed ends, once published, never change;
- a switch leads to a later storage topic, and to one that can be written to.

What can be told from one value alone is checked whenever one is made, also when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from millrace.core.errors import DescriptorError, InvalidLayout
from millrace.core.names import partition_topic_name
from millrace.core.positions import EMPTY, EntryId
from millrace.core.routing import Layout, Routing, next_layout

__all__ = [
    "FORMAT_VERSION",
    "OLDEST_READER",
    "Descriptor",
    "DescriptorError",
    "StorageTopic",
    "append",
    "begin_switch",
    "complete_step",
    "initial",
]

FORMAT_VERSION = 1
OLDEST_READER = 1
"""The oldest reader that understands what this version writes; a reader refuses what is above its own."""


@dataclass(frozen=True, slots=True)
class StorageTopic:
    """One storage topic. `sealed` holds one end per partition once the topic is closed for good."""

    topic: str
    layout: Layout
    sealed: tuple[EntryId, ...] | None = None

    def __post_init__(self) -> None:
        if self.sealed is None:
            return
        if len(self.sealed) != self.layout.partitions:
            raise DescriptorError(
                f"{self.topic}: {len(self.sealed)} of {self.layout.partitions} partitions are sealed; "
                "all must be"
            )
        # LEDGER:-1 is what Pulsar answers when only the newest ledger is empty: it is not an end, and a
        # consumer that took it for one would leave everything in the older ledgers undelivered.
        for partition, end in enumerate(self.sealed):
            if end != EMPTY and (end.ledger < 0 or end.entry < 0):
                raise DescriptorError(f"{self.partition_topic(partition)}: {end} is not a sealed end")

    def partition_topic(self, partition: int) -> str:
        """The name under which Pulsar knows one partition."""
        return partition_topic_name(self.topic, partition)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A composite topic at one generation. `switching_to` announces a pointer whose sealing has begun."""

    name: str
    routing: Routing
    storage_topics: tuple[StorageTopic, ...]
    produce_pointer: int = 0
    switching_to: int | None = None
    generation: int = 1

    def __post_init__(self) -> None:
        count, pointer = len(self.storage_topics), self.produce_pointer
        if self.generation < 1:
            raise DescriptorError(f"{self.name}: generation {self.generation} cannot be; the first is 1")
        if self.routing is Routing.UNKNOWN:
            raise DescriptorError(f"{self.name}: a composite topic needs a routing of its own")
        if not count:
            raise DescriptorError(f"{self.name}: a composite topic needs at least one storage topic")
        if not 0 <= pointer < count:
            raise DescriptorError(f"{self.name}: the produce pointer {pointer} is not one of 0..{count - 1}")
        if self.switching_to is not None and not pointer < self.switching_to < count:
            raise DescriptorError(
                f"{self.name}: a switch from {pointer} to {self.switching_to} cannot be; "
                f"the last storage topic has index {count - 1}"
            )
        if len({topic.topic for topic in self.storage_topics}) != count:
            raise DescriptorError(
                f"{self.name}: a storage topic is listed twice; each needs a topic of its own"
            )
        for index, topic in enumerate(self.storage_topics):
            if topic.layout.routing not in (self.routing, Routing.UNKNOWN):
                raise DescriptorError(
                    f"{self.name}: {topic.topic} has routing {topic.layout.routing}, not {self.routing}"
                )
            if (topic.sealed is not None) != (index < pointer):
                state = "open" if topic.sealed is None else "sealed"
                raise DescriptorError(
                    f"{self.name}: storage topic {index} is {state} while the produce pointer is {pointer}"
                )

    @property
    def produce_topic(self) -> StorageTopic:
        """Where producers write now."""
        return self.storage_topics[self.produce_pointer]

    def to_json(self) -> bytes:
        """Serialise; stable, so that equal descriptors are equal bytes."""
        document = {
            "version": FORMAT_VERSION,
            "oldestReader": OLDEST_READER,
            "generation": self.generation,
            "name": self.name,
            "routing": self.routing.value,
            "producePointer": self.produce_pointer,
            "switchingTo": self.switching_to,
            "storageTopics": [
                {
                    "topic": topic.topic,
                    "partitions": topic.layout.partitions,
                    "k": topic.layout.scale_factor,
                    "routing": topic.layout.routing.value,
                    "sealed": None if topic.sealed is None else [list(end) for end in topic.sealed],
                }
                for topic in self.storage_topics
            ],
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Descriptor:
        """Read any version that says this reader may; fields that are not known are ignored."""
        try:
            document = _typed(json.loads(data), dict)
            version, oldest_reader = _typed(document["version"], int), _typed(document["oldestReader"], int)
            if oldest_reader > FORMAT_VERSION:
                raise DescriptorError(
                    f"the descriptor has format version {version}, which needs a reader of version "
                    f"{oldest_reader} or newer; this one is {FORMAT_VERSION}: upgrade this program"
                )
            topics = _typed(document["storageTopics"], list)
            switching_to = document["switchingTo"]
            return cls(
                name=_typed(document["name"], str),
                routing=Routing(document["routing"]),
                storage_topics=tuple(_storage_topic(item) for item in topics),
                produce_pointer=_typed(document["producePointer"], int),
                switching_to=None if switching_to is None else _typed(switching_to, int),
                generation=_typed(document["generation"], int),
            )
        except DescriptorError:
            raise
        except KeyError as error:
            raise DescriptorError(f"not a composite-topic descriptor: it has no {error}") from error
        except (ValueError, TypeError, RecursionError) as error:
            raise DescriptorError(f"not a composite-topic descriptor: {error}") from error


def _typed(value: Any, kind: type) -> Any:
    """The value, if it is just of this kind: JSON's true is no number here, and 1.0 is no count."""
    if type(value) is not kind:
        raise TypeError(f"found {type(value).__name__} where {kind.__name__} was expected")
    return value


def _storage_topic(item: Any) -> StorageTopic:
    item = _typed(item, dict)
    sealed = item["sealed"]
    return StorageTopic(
        topic=_typed(item["topic"], str),
        layout=Layout(_typed(item["partitions"], int), _typed(item["k"], int), Routing(item["routing"])),
        sealed=None if sealed is None else tuple(_entry_id(end) for end in _typed(sealed, list)),
    )


def _entry_id(item: Any) -> EntryId:
    ledger, entry = _typed(item, list)
    return EntryId(_typed(ledger, int), _typed(entry, int))


def initial(
    name: str, routing: Routing, topics: Sequence[tuple[str, int, bool]], *, scale_factor: int = 1
) -> Descriptor:
    """The first descriptor. Each topic is (name, partitions, whether its routing is unknown).

    A queue begins with the scale factor of the topic that it belongs to, so that both route alike.
    """
    if scale_factor == 1:
        return Descriptor(name=name, routing=routing, storage_topics=_chain((), routing, topics))
    first, partitions, _ = topics[0]
    try:
        begun = (StorageTopic(first, Layout(partitions, scale_factor, routing)),)
    except InvalidLayout as error:
        raise DescriptorError(f"{first}: {error}") from error
    return Descriptor(name=name, routing=routing, storage_topics=_chain(begun, routing, topics[1:]))


def append(descriptor: Descriptor, topics: Sequence[tuple[str, int, bool]]) -> Descriptor:
    """AddStorageTopic: the produce pointer does not move."""
    if not topics:
        raise DescriptorError(f"{descriptor.name}: there is nothing to append")
    return replace(
        descriptor,
        storage_topics=_chain(descriptor.storage_topics, descriptor.routing, topics),
        generation=descriptor.generation + 1,
    )


def _chain(
    present: tuple[StorageTopic, ...], routing: Routing, topics: Sequence[tuple[str, int, bool]]
) -> tuple[StorageTopic, ...]:
    chain = list(present)
    for topic, partitions, unknown in topics:
        previous = chain[-1].layout if chain else None
        try:
            layout = next_layout(previous, partitions, Routing.UNKNOWN if unknown else routing)
        except InvalidLayout as error:
            raise DescriptorError(f"{topic}: {error}") from error
        chain.append(StorageTopic(topic, layout))
    return tuple(chain)


def begin_switch(descriptor: Descriptor, target: int) -> Descriptor:
    """Announce a switch before the first partition is terminated: termination cannot be taken back.

    What if the process dies right after a partition is terminated? The announcement is durable, so a
    spec that was deleted and applied again with the old pointer is recognised as a conflict.
    """
    floor = descriptor.produce_pointer if descriptor.switching_to is None else descriptor.switching_to
    if not floor < target < len(descriptor.storage_topics):
        raise DescriptorError(
            f"{descriptor.name}: cannot switch from {floor} to {target}: the produce pointer only grows, "
            f"and the last storage topic has index {len(descriptor.storage_topics) - 1}"
        )
    # Refused before anything is sealed: behind it producers would have nowhere to write.
    if descriptor.storage_topics[target].layout.routing is Routing.UNKNOWN:
        raise DescriptorError(
            f"{descriptor.name}: cannot switch to {descriptor.storage_topics[target].topic}: it was adopted "
            "with data that somebody else routed, so it can be read but not written to; append a storage "
            "topic and switch to that"
        )
    return replace(descriptor, switching_to=target, generation=descriptor.generation + 1)


def complete_step(descriptor: Descriptor, sealed: Sequence[EntryId]) -> Descriptor:
    """One step of SwitchProduce: the produce topic is sealed in every partition, the next one opens."""
    target = descriptor.switching_to
    if target is None:
        raise DescriptorError(f"{descriptor.name}: no switch was announced")
    pointer = descriptor.produce_pointer
    chain = list(descriptor.storage_topics)
    chain[pointer] = replace(descriptor.produce_topic, sealed=tuple(sealed))
    return replace(
        descriptor,
        storage_topics=tuple(chain),
        produce_pointer=pointer + 1,
        switching_to=None if pointer + 1 == target else target,
        generation=descriptor.generation + 1,
    )
