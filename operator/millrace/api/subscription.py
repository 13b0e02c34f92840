"""Subscription: a composite topic delivered to an HTTP endpoint, in order per group, by shards.

The rules below keep what cannot be undone from being asked for: where a subscription began, what it reads,
and whether it keeps order are written into its cursors and its retry queue from the first message on. How a
message is delivered is in `delivery`, which pods do it in `podtemplate`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from millrace.api.compositetopic import (
    MAX_PARTITIONS,
    MAX_STORAGE_TOPICS,
    DeletionPolicy,
    KubernetesNamespace,
)
from millrace.api.delivery import DeadLetter, Delivery, Filter, Retry, Throttle
from millrace.api.meta import (
    ATOMIC_LIST,
    Conditions,
    Generation,
    ObjectName,
    Resource,
    Timestamp,
    Wire,
    list_map,
)
from millrace.api.podtemplate import PodTemplate
from millrace.api.validations import Rule, validated_by

MAX_SHARDS = MAX_PARTITIONS
MAX_NAME = 52
"""Objects in Kubernetes are named after it, with a suffix, and labels hold at most 63 characters."""


class Ordering(StrEnum):
    """What is kept in order."""

    GROUP = "Group"
    NONE = "None"


class StartType(StrEnum):
    """Where a new subscription begins."""

    EARLIEST = "Earliest"
    LATEST = "Latest"
    TIME = "Time"


class TopicRef(Wire):
    """A CompositeTopic."""

    name: ObjectName
    """Its name."""

    namespace: KubernetesNamespace | None = None
    """Its namespace. Left out, it is that of the Subscription; another one has to list this one in its
    allowedNamespaces."""


class StartFrom(Wire):
    """Where a new subscription begins. Afterwards its cursors say where it is."""

    model_config = ConfigDict(
        json_schema_extra=validated_by(
            Rule(
                "(self.type == 'Time') == has(self.time)",
                "time belongs to type Time: set both, or neither",
                field="time",
            )
        )
    )

    type: StartType = StartType.EARLIEST
    """Earliest: with the oldest message that Pulsar keeps; Latest: with what is produced from now on; Time:
    with what was produced from that moment on."""

    time: Timestamp | None = None
    """Needed for type Time, for example 2026-01-31T08:00:00Z."""


_RULES = (
    Rule(
        "self.topicRef == oldSelf.topicRef",
        "topicRef never changes, for the cursors are on that topic; create another Subscription instead",
        field="topicRef",
        forbidden=True,
    ),
    Rule(
        "self.startFrom == oldSelf.startFrom",
        "startFrom never changes, for it has taken effect; create another Subscription to begin elsewhere",
        field="startFrom",
        forbidden=True,
    ),
    Rule(
        "self.ordering == oldSelf.ordering",
        "ordering never changes, for messages that are parked already follow it; "
        "create another Subscription instead",
        field="ordering",
        forbidden=True,
    ),
    Rule(
        "has(self.retryPartitions) == has(oldSelf.retryPartitions)"
        " && (!has(self.retryPartitions) || self.retryPartitions == oldSelf.retryPartitions)",
        "retryPartitions never changes, for the partition count of a topic cannot; "
        "create another Subscription instead",
        field="retryPartitions",
        forbidden=True,
    ),
    Rule(
        "has(self.deadLetterPartitions) == has(oldSelf.deadLetterPartitions)"
        " && (!has(self.deadLetterPartitions)"
        " || self.deadLetterPartitions == oldSelf.deadLetterPartitions)",
        "deadLetterPartitions never changes, for the partition count of a topic cannot; "
        "create another Subscription instead",
        field="deadLetterPartitions",
        forbidden=True,
    ),
)

NAME_RULE = Rule(
    f"self.metadata.name.size() <= {MAX_NAME}",
    f"the name of a Subscription has at most {MAX_NAME} characters, for pods and Leases are named after it",
)
"""Stands on the whole object: a rule on the spec does not see the name."""


class SubscriptionSpec(Wire):
    """What is delivered where, by how many shards."""

    model_config = ConfigDict(json_schema_extra=validated_by(*_RULES))

    topic_ref: TopicRef
    """The CompositeTopic to deliver. Never changes."""

    shard_count: Annotated[int, Field(ge=0, le=MAX_SHARDS)] = 1
    """Into how many shards the work is divided; each is one pod's. A count that does not divide the topic's
    partitions is raised to the next one that does, up to the partition count. 0 suspends delivery: nothing
    is lost. `kubectl scale` and autoscalers set it; with one of those, leave it out of Git."""

    allow_uneven: bool = False
    """Take shardCount as it is, also where it does not divide the partitions; some shards then have one
    partition more than others."""

    ordering: Ordering = Ordering.GROUP
    """Group: the messages of a group are delivered one after the other, and wait for one that fails. None:
    every message for itself. Never changes."""

    delivery: Delivery
    """Where and how messages are delivered."""

    retry: Retry = Retry()
    """What happens to a message that the endpoint does not take."""

    dead_letter: DeadLetter = DeadLetter()
    """What happens to one that it never takes."""

    throttle: Throttle = Throttle()
    """How fast at most, and when to slow down."""

    retry_partitions: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] | None = None
    """Partitions of the retry queue. Left out, those of the storage topic that producers write to when the
    subscription is created, which fits every shard count. Never changes."""

    dead_letter_partitions: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] | None = None
    """Partitions of the dead-letter queue; as for retryPartitions. Never changes."""

    start_from: StartFrom = StartFrom()
    """Where the subscription begins. Never changes."""

    filter: Filter | None = None
    """Which messages are delivered. The others are acknowledged and counted. Left out, all are."""

    standby: Annotated[int, Field(ge=0, le=16)] = 1
    """Pods beyond one a shard: they wait, and take a lost pod's shard over within seconds."""

    deletion_policy: DeletionPolicy = DeletionPolicy.RETAIN
    """Retain leaves cursors, retry queue, dead-letter queue and state in Pulsar when the object is deleted:
    one that is applied again goes on where this one stopped. Delete removes them, delivered or not."""

    pod_template: PodTemplate = PodTemplate()
    """What the pods of the shards are to have beside what they need."""


class ShardAssignment(Wire):
    """The partitions of one storage topic that a shard owns."""

    topic_name: Annotated[str, Field(max_length=1024)]
    """The full name of the storage topic."""

    storage_topic_index: Annotated[int, Field(ge=0)]
    """Its place in the CompositeTopic."""

    partitions: Annotated[str, Field(max_length=64)]
    """As a range: 0-5, or 3 for a single one; empty where the shard has none."""


class ShardStatus(Wire):
    """One shard."""

    id: Annotated[int, Field(ge=0)]
    """Its number, from 0."""

    owner: Annotated[str, Field(max_length=253)] | None = None
    """The pod that holds it; none while it waits for one."""

    epoch: Generation = 0
    """How often it changed hands."""

    assignments: Annotated[
        tuple[ShardAssignment, ...], Field(max_length=MAX_STORAGE_TOPICS, json_schema_extra=ATOMIC_LIST)
    ] = ()
    """What it owns of each storage topic that is not drained. Left out where there are too many shards."""


class Lag(Wire):
    """Messages that are not acknowledged yet, as Pulsar counts them."""

    main: Generation = 0
    """In the topic itself."""

    retry: Generation = 0
    """In the retry queue."""

    dead_letter: Generation = 0
    """In the dead-letter queue."""

    observed_at: Timestamp | None = None
    """When they were counted: at most once a minute, sooner where much changed."""


class SubscriptionStatus(Wire):
    """What is so. Cursors, queues and epochs in Pulsar are the truth: this is rebuilt when it is lost."""

    observed_generation: Generation = 0
    """The generation that was last acted on."""

    cluster_id: Annotated[str, Field(max_length=253)] | None = None
    """The Kubernetes cluster, as the topics' owner property says it."""

    connection: Annotated[str, Field(max_length=253)] | None = None
    """The PulsarConnection that is used: the topic's, or the default one of the namespace if the topic is in
    another."""

    pulsar_namespace: Annotated[str, Field(max_length=200)] | None = None
    """Where the topic, the queues and the state are."""

    subscription_name: Annotated[str, Field(max_length=1024)] | None = None
    """The name of the cursors in Pulsar."""

    effective_shard_count: Annotated[int, Field(ge=0)] | None = None
    """How many shards there are; other than spec.shardCount where that does not fit."""

    shard_generation: Generation = 0
    """Counts the changes of the shard count; Deployment and Leases are named after it."""

    replicas: Annotated[int, Field(ge=0)] | None = None
    """The same as effectiveShardCount, for autoscalers."""

    selector: Annotated[str, Field(max_length=1024)] | None = None
    """The labels of the pods, for autoscalers."""

    retry_descriptor_generation: Generation | None = None
    """The generation of the retry queue's descriptor."""

    dead_letter_descriptor_generation: Generation | None = None
    """The generation of the dead-letter queue's descriptor."""

    owned_shards: Annotated[int, Field(ge=0)] = 0
    """How many shards a pod holds."""

    shards: Annotated[
        tuple[ShardStatus, ...], Field(max_length=MAX_SHARDS, json_schema_extra=list_map("id"))
    ] = ()
    """The shards, by number; where there are very many, the first ones only."""

    lag: Lag | None = None
    """How much waits."""

    blocked_groups: Generation | None = None
    """Groups that wait because a message of theirs is in the retry queue."""

    dead_lettered_groups: Generation | None = None
    """Groups that have messages in the dead-letter queue."""

    conditions: Conditions = ()
    """Ready, Reconciling, Stalled, DataAtRisk and ShardCountAdjusted; docs/conditions.md explains every
    reason."""


class Subscription(Resource[SubscriptionSpec, SubscriptionStatus]):
    """A composite topic delivered to an HTTP endpoint: in order per group, losing nothing, by shards."""
