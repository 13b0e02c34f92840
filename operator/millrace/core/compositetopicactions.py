"""The words of a CompositeTopic's reconciliation: what is wanted, what is known, and every action there is.

All values; `compositetopics` decides with them, and the controller carries the actions out. Every action
may be repeated, and its docstring answers what holds if the process dies right after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millrace.core.descriptor import Descriptor
from millrace.core.ownership import Owner
from millrace.core.positions import EntryId
from millrace.core.routing import Routing


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """One storage topic as the spec has it, under its full name."""

    index: int
    topic: str
    partitions: int
    adopt: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """The spec, with names made and the status's memory of the descriptor (0: none that we know of)."""

    owner: Owner
    descriptor_topic: str
    routing: Routing
    topics: tuple[WantedTopic, ...]
    produce_pointer: int = 0
    published_generation: int = 0
    scale_factor: int = 1
    """K of the first storage topic: 1, but for a queue, which has to route like the topic that it is of."""
    local_name: str | None = None
    """Where the composite topic is not called like its owner."""

    @property
    def name(self) -> str:
        """What the descriptor calls the composite topic."""
        return f"{self.owner.namespace}/{self.local_name or self.owner.name}"


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as it was found. `partitions` is None for one that is not partitioned."""

    exists: bool
    partitions: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    created: bool = False
    """It was created in this very reconciliation, so it is empty and open."""
    settled: bool = False
    """Its policies are as they should be."""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What the partitions of a topic hold, all together."""

    holds_data: bool
    terminated: int


@dataclass(frozen=True, slots=True)
class SwitchFacts:
    """How far the step away from one storage topic has come in this reconciliation."""

    cursors_copied: bool = False
    sealed: tuple[EntryId, ...] | None = None
    cursors_copied_again: bool = False


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What this reconciliation has found out so far. What is absent is not known."""

    descriptor_topic: TopicFacts | None = None
    descriptor_read: bool = False
    descriptor: Descriptor | None = None
    topics: Mapping[int, TopicFacts] = field(default_factory=dict)
    partitions: Mapping[int, PartitionFacts] = field(default_factory=dict)
    switches: Mapping[int, SwitchFacts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClaimDescriptorTopic:
    """Create the descriptor topic with its owner, or find out whose it is; if ours, see to its policies.

    Dies after: the topic is there, ours and empty; the next reconciliation finds it and goes on.
    """

    topic: str


@dataclass(frozen=True, slots=True)
class InspectDescriptorTopic:
    """Look, and create nothing: the status says that a descriptor was published there. Changes nothing."""

    topic: str


@dataclass(frozen=True, slots=True)
class ReadDescriptor:
    """Read the newest descriptor. Changes nothing."""

    topic: str


@dataclass(frozen=True, slots=True)
class CreateStorageTopic:
    """Create a partitioned topic with its owner; where one is there already, look at that.

    Dies after: the topic is there, ours, and not published; the next reconciliation finds it and goes on.
    """

    index: int
    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class InspectStorageTopic:
    """Look at partition count and owner. Changes nothing."""

    index: int
    topic: str


@dataclass(frozen=True, slots=True)
class InspectPartitions:
    """Find out whether any partition holds data or is terminated. Changes nothing."""

    index: int
    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class AdoptTopic:
    """Write the owner, and the mark that forbids deletion, on a topic that nobody owns.

    Dies after: it is ours and marked. Whether it holds data is found out again before it is published, so a
    decision about its routing is never made on what was true before the crash.
    """

    index: int
    topic: str


@dataclass(frozen=True, slots=True)
class RenewOwner:
    """Write the new uid on a topic that an earlier object of the same name left. Dies after: nothing is
    pending.
    """

    index: int | None
    topic: str


@dataclass(frozen=True, slots=True)
class SettlePolicies:
    """See to it that the broker neither deletes the topic when idle nor retains it otherwise than asked.

    Dies after: the policies are there; they are compared again in the next reconciliation.
    """

    index: int
    topic: str
    fresh: bool


@dataclass(frozen=True, slots=True)
class PublishDescriptor:
    """Replace the descriptor, if nobody else has since it was read.

    Dies after, or does not learn whether it was written: the next reconciliation reads what is there.
    """

    topic: str
    descriptor: Descriptor
    expected_generation: int


@dataclass(frozen=True, slots=True)
class CopySubscriptions:
    """Create every durable subscription of storage topic `index` on the next one, at earliest.

    Dies after: some exist; those are left as they stand, and the rest is created next time. Until the step is
    published nothing is written to the next topic, so a cursor made later is not too late.
    """

    index: int
    source: str
    source_partitions: int
    target: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class SealPartitions:
    """Terminate every partition and find where each ends.

    Dies half way: some partitions are closed for good. The switch was announced before, so the next
    reconciliation goes on; producers wait meanwhile, and never guess the next topic.
    """

    index: int
    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Delete a topic that we created. Dies after: it is gone; deleting what is gone is success."""

    topic: str
    partitioned: bool
    index: int | None
    """None for the descriptor topic."""


Action = (
    ClaimDescriptorTopic
    | InspectDescriptorTopic
    | ReadDescriptor
    | CreateStorageTopic
    | InspectStorageTopic
    | InspectPartitions
    | AdoptTopic
    | RenewOwner
    | SettlePolicies
    | PublishDescriptor
    | CopySubscriptions
    | SealPartitions
    | DeleteTopic
)
