"""CompositeTopic: an append-only list of storage topics, and the pointer to the one that producers write to.

The rules below keep what cannot be undone from being asked for: a storage topic that was published is known
to producers and consumers, and one that was left behind is sealed for ever.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, computed_field

from millrace.api.meta import (
    ATOMIC_LIST,
    SET,
    Conditions,
    Generation,
    LocalRef,
    PulsarNamespace,
    Resource,
    Wire,
    list_map,
)
from millrace.api.quantities import UNLIMITED, Duration, Size
from millrace.api.validations import Matching, Rule, validated_by

MAX_STORAGE_TOPICS = 64
MAX_PARTITIONS = 4096
MAX_LISTED_POSITIONS = 1200
"""The status lists last positions only while all together are at most this many (the descriptor has all)."""


class Routing(StrEnum):
    """How a group id becomes a partition."""

    SHARD_CONSISTENT = "ShardConsistent"
    RANGE = "Range"


class DeletionPolicy(StrEnum):
    """What becomes of the Pulsar topics when the object is deleted."""

    RETAIN = "Retain"
    DELETE = "Delete"


class StorageTopicState(StrEnum):
    """How far a storage topic is in its life."""

    PENDING = "Pending"
    READY = "Ready"
    SEALING = "Sealing"
    SEALED = "Sealed"


LocalTopicName = Annotated[
    str,
    Field(min_length=1, max_length=200),
    Matching(
        "[-=:.A-Za-z0-9_]+",
        "must be a name within pulsarNamespace: letters, digits and any of - = : . _ "
        "(leave out persistent:// and the namespace)",
    ),
]

KubernetesNamespace = Annotated[
    str,
    Field(min_length=1, max_length=63),
    Matching("[a-z0-9]([-a-z0-9]*[a-z0-9])?", "must be the name of a Kubernetes namespace"),
]


class StorageTopicSpec(Wire):
    """One partitioned Pulsar topic. Its partition count never changes; to grow, append another one."""

    model_config = ConfigDict(
        json_schema_extra=validated_by(
            Rule(
                "!self.adopt || has(self.topicName)",
                "topicName is required when adopt is true: say which existing topic to adopt",
                field="topicName",
            ),
            Rule(
                "!has(self.topicName) || !self.topicName.contains('-partition-')",
                "topicName must not contain -partition-, by which Pulsar names partitions; "
                "name the whole topic",
                field="topicName",
            ),
        )
    )

    partitions: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)]
    """How many partitions it has: 1, 2, 3 or a multiple of 4 or 6, unless allowUneven is set."""

    topic_name: LocalTopicName | None = None
    """The topic's name within pulsarNamespace. Left out, it is made of the object's namespace, its name and
    the entry's index."""

    adopt: bool = False
    """Take over an existing topic that nobody owns. It must have exactly this many partitions, and is never
    deleted by Millrace. Where it holds data, its routing counts as unknown."""


class Retention(Wire):
    """How much Pulsar keeps of what all subscriptions have acknowledged; the stricter limit wins."""

    time: Annotated[Duration, Field(json_schema_extra={"default": UNLIMITED})] = Duration(None)
    """For how long, for example 7d, 12h or 30m; -1 for ever."""

    size: Annotated[Size, Field(json_schema_extra={"default": UNLIMITED})] = Size(None)
    """How much per partition, for example 10Gi or 512Mi; -1 without limit."""


_INDICES = f"[{', '.join(str(index) for index in range(MAX_STORAGE_TOPICS))}]"
# all() gives no index in CEL before Kubernetes 1.33: this is the portable way to walk two lists side by side.
_CHANGED = (
    f"{_INDICES}.filter(i, i < self.storageTopics.size() && i < oldSelf.storageTopics.size()"
    " && self.storageTopics[i] != oldSelf.storageTopics[i])"
)
_EVEN = "(t.partitions in [1, 2, 3] || t.partitions % 4 == 0 || t.partitions % 6 == 0)"

_RULES = (
    Rule(
        f"self.allowUneven || self.storageTopics.all(t, {_EVEN})",
        f"partitions must be 1, 2, 3 or a multiple of 4 or 6, not "
        f"{{self.storageTopics.filter(t, !{_EVEN})[0].partitions}}; "
        "use such a count, for it divides evenly among many shard counts, or set allowUneven: true",
        field="storageTopics",
    ),
    Rule(
        f"!oldSelf.allowUneven || self.allowUneven || self.storageTopics.all(t, {_EVEN})",
        "allowUneven cannot be turned off while a storage topic has an uneven partition count, "
        "for entries never change; keep allowUneven: true",
        field="allowUneven",
        forbidden=True,
    ),
    Rule(
        "self.storageTopics.all(t, !has(t.topicName)"
        " || self.storageTopics.exists_one(o, has(o.topicName) && o.topicName == t.topicName))",
        "each topicName may be used once: give every storage topic a name of its own, or leave topicName out",
        field="storageTopics",
    ),
    Rule(
        "self.storageTopics.size() >= oldSelf.storageTopics.size()",
        "storageTopics is append-only, and had {oldSelf.storageTopics.size()} entries, not "
        "{self.storageTopics.size()}: keep every entry, in order, and append new ones at the end",
        field="storageTopics",
        forbidden=True,
    ),
    Rule(
        f"{_CHANGED}.size() == 0",
        f"storageTopics[{{{_CHANGED}[0]}}] never changes: "
        "leave it as it was, append a new entry and raise producePointer",
        field="storageTopics",
        forbidden=True,
    ),
    Rule(
        "self.producePointer < self.storageTopics.size()",
        "producePointer is {self.producePointer}, but the last storage topic has index "
        "{self.storageTopics.size() - 1}; append the storage topic first, or in the same change",
        field="producePointer",
    ),
    Rule(
        "self.producePointer >= oldSelf.producePointer",
        "producePointer only grows: it is {oldSelf.producePointer} and cannot become {self.producePointer}, "
        "for what lies before it is sealed for ever; append a storage topic and point to that one",
        field="producePointer",
        forbidden=True,
    ),
    Rule(
        "self.routing == oldSelf.routing",
        "routing never changes, for it decides in which partition a group is; "
        "create another CompositeTopic instead",
        field="routing",
        forbidden=True,
    ),
    Rule(
        "self.pulsarNamespace == oldSelf.pulsarNamespace",
        "pulsarNamespace never changes, for topics cannot move; create another CompositeTopic instead",
        field="pulsarNamespace",
        forbidden=True,
    ),
    Rule(
        "!has(oldSelf.connectionRef)"
        " || (has(self.connectionRef) && self.connectionRef == oldSelf.connectionRef)",
        "connectionRef never changes once it is set, for the topics are in that cluster; "
        "edit the PulsarConnection, or create another CompositeTopic",
        field="connectionRef",
        forbidden=True,
    ),
)


class CompositeTopicSpec(Wire):
    """A topic that can be given more, or fewer, partitions while each group's order holds."""

    model_config = ConfigDict(json_schema_extra=validated_by(*_RULES))

    connection_ref: LocalRef | None = None
    """The PulsarConnection to use. Left out, it is the default one of the namespace. It can be set later, but
    then never changes."""

    pulsar_namespace: PulsarNamespace
    """The Pulsar namespace of all topics, as TENANT/NAMESPACE. Never changes."""

    routing: Routing = Routing.SHARD_CONSISTENT
    """ShardConsistent keeps a group in its shard when partitions are multiplied; Range keeps it there
    whenever the shard count divides both partition counts, up or down. Never changes."""

    allow_uneven: bool = False
    """Allow any partition count. Such a topic divides evenly among few shard counts only."""

    storage_topics: Annotated[
        tuple[StorageTopicSpec, ...],
        Field(min_length=1, max_length=MAX_STORAGE_TOPICS, json_schema_extra=ATOMIC_LIST),
    ]
    """The storage topics in order. Append-only: appending creates a topic and moves nothing."""

    produce_pointer: Annotated[int, Field(ge=0, le=MAX_STORAGE_TOPICS - 1)] = 0
    """The index of the storage topic that producers write to. Raising it seals the topics before it, for
    ever, and producers move on with no message lost or out of order. It only grows."""

    retention: Retention | None = None
    """What Pulsar keeps after it is acknowledged. Left out, the Pulsar namespace decides."""

    deletion_policy: DeletionPolicy = DeletionPolicy.RETAIN
    """Retain leaves the Pulsar topics when the object is deleted; Delete removes those that Millrace created.
    Adopted topics always stay."""

    allowed_namespaces: Annotated[
        tuple[KubernetesNamespace, ...], Field(max_length=64, json_schema_extra=SET)
    ] = ()
    """Other Kubernetes namespaces whose subscriptions may refer to this topic."""


class StorageTopicStatus(Wire):
    """What became of one storage topic."""

    index: Annotated[int, Field(ge=0)]
    """Its place in spec.storageTopics."""

    topic: Annotated[str, Field(max_length=1024)]
    """The full name of the Pulsar topic."""

    partitions: Annotated[int, Field(ge=1)]
    """How many partitions it has."""

    k: Annotated[int, Field(ge=1)] = 1
    """The scale factor: its partitions divided by those of its base."""

    routing: Annotated[str, Field(max_length=64)] = Routing.SHARD_CONSISTENT.value
    """ShardConsistent or Range; Unknown where it was adopted with data in it."""

    state: StorageTopicState
    """Pending, Ready, Sealing or Sealed."""

    sealed_partitions: Annotated[int, Field(ge=0)] = 0
    """How many partitions are sealed."""

    last_positions: Annotated[
        tuple[Annotated[str, Field(max_length=41)], ...],
        Field(max_length=MAX_PARTITIONS, json_schema_extra=ATOMIC_LIST),
    ] = ()
    """Once sealed, the last position (LEDGER:ENTRY) of each partition; -1:-1 where it is empty. Left out
    where there are too many; the descriptor always has them."""


class CompositeTopicStatus(Wire):
    """What is so. The truth is the descriptor topic in Pulsar: this is rebuilt from there when it is lost."""

    observed_generation: Generation = 0
    """The generation that was last acted on."""

    cluster_id: Annotated[str, Field(max_length=253)] | None = None
    """The Kubernetes cluster, as the topics' owner property says it."""

    descriptor_topic: Annotated[str, Field(max_length=1024)] | None = None
    """The topic that tells producers and consumers all of this."""

    descriptor_generation: Generation | None = None
    """The descriptor's own generation."""

    produce_pointer: Annotated[int, Field(ge=0)] | None = None
    """Where producers write now; behind spec.producePointer during a switch."""

    switching_to: Annotated[int, Field(ge=0)] | None = None
    """While a switch is under way, the pointer that it leads to."""

    partitions: Annotated[int, Field(ge=0)] | None = None
    """The partition count of the storage topic that producers write to."""

    routing: Annotated[str, Field(max_length=64)] | None = None
    """The routing that is in force."""

    storage_topics: Annotated[
        tuple[StorageTopicStatus, ...],
        Field(max_length=MAX_STORAGE_TOPICS, json_schema_extra=list_map("index")),
    ] = ()
    """Each storage topic, by index."""

    conditions: Conditions = ()
    """Ready, Reconciling, Stalled and DataAtRisk; docs/conditions.md explains every reason."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def topics(self) -> int:
        """How many storage topics there are (a printer column cannot count)."""
        return len(self.storage_topics)


class CompositeTopic(Resource[CompositeTopicSpec, CompositeTopicStatus]):
    """A topic whose partition count changes, up and down, while every group's messages stay in order."""
