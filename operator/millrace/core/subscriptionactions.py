"""The words of a Subscription's reconciliation: what is wanted, what is known, and every action there is.

All values; `subscriptions` decides with them, and the controller carries the actions out. Its retry queue
and its dead-letter queue are composite topics, and are planned as such: an action on one of them is an action
of `compositetopicactions`, with the queue that it is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from millrace.core import compositetopicactions as topics
from millrace.core import names
from millrace.core.descriptor import Descriptor
from millrace.core.ownership import Owner
from millrace.core.shardleases import ShardLease

SHARD_COUNT = "millrace.dev/shard-count"
"""A property of every state table: how many tables its generation has. The first one's is the truth about how
many shards there are, for it is written in the request that creates it."""


class Queue(StrEnum):
    """The composite topics that belong to a subscription."""

    RETRY = "retry"
    DEAD_LETTER = "deadLetter"

    def of(self, name: str) -> str:
        """What it is called, as a composite topic of the subscription `name`."""
        return names.retry_queue_name(name) if self is Queue.RETRY else names.dead_letter_queue_name(name)

    @property
    def field(self) -> str:
        """The field of the spec with its partitions."""
        return f"{self.value}Partitions"


class Start(StrEnum):
    """Where a cursor begins, apart from a time."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The spec, with names made and the status's memory of what was there."""

    owner: Owner
    pulsar_namespace: str
    descriptor_topic: str
    """Of the CompositeTopic."""
    cursor: str
    shard_count: int
    connection: str = ""
    """The name of the PulsarConnection in use; for the status."""
    allow_uneven: bool = False
    start: Start | int = Start.EARLIEST
    """Or milliseconds since 1970."""
    queue_partitions: Mapping[Queue, int] = field(default_factory=dict)
    """Only where the spec says them."""
    published: Mapping[Queue, int] = field(default_factory=dict)
    """Generations of the queues' descriptors, as the status remembers them."""
    begun: bool = False
    """Whether the subscription was seen at work: then a cursor that is missing was lost, and is not new."""
    generation: int = 0
    """Of the shards."""

    def state_topic(self, shard: int) -> str:
        """The state table of a shard."""
        return names.state_topic_name(
            self.pulsar_namespace, self.owner.namespace, self.owner.name, self.generation, shard
        )

    def queue_descriptor(self, queue: Queue) -> str:
        """The descriptor topic of a queue."""
        local = queue.of(self.owner.name)
        return names.descriptor_topic_name(self.pulsar_namespace, self.owner.namespace, local)


@dataclass(frozen=True, slots=True)
class CursorFacts:
    """Our cursor on one storage topic."""

    missing: tuple[int, ...] = ()
    """Partitions that have none."""
    backlog: int = 0
    """Messages that are not acknowledged."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A state table's topic as it was found."""

    exists: bool
    properties: Mapping[str, str] = field(default_factory=dict)
    settled: bool = False
    """It was created or checked, with its policies, in this reconciliation."""
    refused: bool = False
    """It holds something, and nobody owns it."""

    @property
    def shard_count(self) -> int | None:
        """How many shards its generation has, if it says so."""
        text = self.properties.get(SHARD_COUNT, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 and int(text) else None


@dataclass(frozen=True, slots=True)
class Workload:
    """The objects in Kubernetes, as they were found after they were applied."""

    leases: tuple[ShardLease, ...] = ()
    pods_wanted: int = 0
    pods_available: int = 0


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What this reconciliation has found out so far. What is absent is not known."""

    main_read: bool = False
    main: Descriptor | None = None
    queues: Mapping[Queue, topics.Knowledge] = field(default_factory=dict)
    cursors: Mapping[str, CursorFacts] = field(default_factory=dict)
    """By storage topic, of the composite topic and of the queues."""
    tables: Mapping[int, TableFacts] = field(default_factory=dict)
    workload: Workload | None = None


@dataclass(frozen=True, slots=True)
class ReadMain:
    """Read the descriptor of the CompositeTopic. Changes nothing."""

    topic: str


@dataclass(frozen=True, slots=True)
class InspectCursors:
    """Find out on which partitions of a storage topic our cursor is, and its backlog. Changes nothing."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class CreateCursors:
    """Create our cursor where it is missing, and look again.

    Dies half way: some exist; those are left as they stand, and the rest is created next time, at the
    beginning, where one that was to begin at a time may stand as well: more is delivered than was asked for,
    never less.
    """

    topic: str
    partitions: int
    missing: tuple[int, ...]
    start: Start | int


@dataclass(frozen=True, slots=True)
class LookAtQueue:
    """Find out whether a queue has a descriptor, and read it. Changes nothing."""

    queue: Queue
    topic: str


@dataclass(frozen=True, slots=True)
class OnQueue:
    """Do an action on a queue, as on any composite topic."""

    queue: Queue
    action: topics.Action


@dataclass(frozen=True, slots=True)
class InspectTable:
    """Look at the topic of a state table. Changes nothing."""

    shard: int
    topic: str


@dataclass(frozen=True, slots=True)
class EnsureTable:
    """Create the topic of a state table with its owner, or see to its policies.

    Dies after: the topic is there and ours; what its policies lack is made good next time. Once the first one
    is there, the number of shards is decided.
    """

    shard: int
    topic: str
    shard_count: int


@dataclass(frozen=True, slots=True)
class RenewTable:
    """Write the new uid on a table that an earlier object of the same name left. Dies after: nothing is
    pending.
    """

    shard: int
    topic: str


@dataclass(frozen=True, slots=True)
class ApplyWorkload:
    """Apply every object in Kubernetes as it should be, and look at the pods and Leases.

    Dies half way: some are applied; all are, next time. The Deployment comes last, for its pods need the
    rest.
    """

    shard_count: int
    suspended: bool


@dataclass(frozen=True, slots=True)
class StopWorkload:
    """Delete the Deployment and wait until its pods are gone: a consumer that lives would make its cursor
    anew.

    Dies after: it is gone, or going.
    """


@dataclass(frozen=True, slots=True)
class DeleteCursors:
    """Delete our cursor from a storage topic. Dies after: it is gone; deleting what is gone is success."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeleteTable:
    """Delete the topic of a state table. Dies after: it is gone."""

    shard: int
    topic: str


Action = (
    ReadMain
    | InspectCursors
    | CreateCursors
    | LookAtQueue
    | OnQueue
    | InspectTable
    | EnsureTable
    | RenewTable
    | ApplyWorkload
    | StopWorkload
    | DeleteCursors
    | DeleteTable
)
