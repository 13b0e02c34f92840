"""The closed set of reasons that conditions give: what each means, and what a person does about it.

People write alerts and runbooks on these words, so they are part of the API: none is renamed or reused.
`docs/conditions.md` is generated from here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class ConditionType(StrEnum):
    """The conditions that objects have, as kstatus reads them."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    DATA_AT_RISK = "DataAtRisk"
    SHARD_COUNT_ADJUSTED = "ShardCountAdjusted"


class Reason(StrEnum):
    """Why a condition is as it is. `condition` is the one that is True with this reason.

    `Ready` is False with the same reason as the `Reconciling` or `Stalled` that is True at the time, so that
    one column of `kubectl get` tells the story.
    """

    condition: ConditionType | None
    remedy: str

    def __new__(
        cls, value: str, condition: ConditionType | None = None, meaning: str = "", remedy: str = ""
    ) -> Self:
        """A member carries its documentation with it. (The defaults let type checkers accept a lookup.)"""
        member = str.__new__(cls, value)
        member._value_ = value
        member.__doc__ = meaning
        member.condition = condition
        member.remedy = remedy
        return member

    READY = (
        "Ready",
        ConditionType.READY,
        "Everything is as declared.",
        "Nothing.",
    )
    SUSPENDED = (
        "Suspended",
        ConditionType.READY,
        "`shardCount` is 0: nothing is delivered, and what is produced waits.",
        "Raise `shardCount` to go on.",
    )
    NONE = (
        "None",
        None,
        "The condition is False, and that is all there is to say.",
        "Nothing.",
    )

    CREATING = (
        "Creating",
        ConditionType.RECONCILING,
        "Topics, the descriptor or their settings are being created.",
        "Wait.",
    )
    UPDATING = (
        "Updating",
        ConditionType.RECONCILING,
        "A setting in Pulsar is not as declared, and is being corrected.",
        "Wait. If it comes back, something else changes the topic: find out what.",
    )
    SWITCHING = (
        "Switching",
        ConditionType.RECONCILING,
        "The produce pointer is being raised: the next storage topic is prepared, or announced to clients.",
        "Wait. Producers hold their messages until it is done.",
    )
    SEALING = (
        "Sealing",
        ConditionType.RECONCILING,
        "The storage topic that producers leave is being closed, partition by partition.",
        "Wait. `status.storageTopics` counts the sealed partitions; the message names the one that is slow.",
    )
    DELETING = (
        "Deleting",
        ConditionType.RECONCILING,
        "The object is being deleted, and with `deletionPolicy: Delete` its topics with it.",
        "Wait. The message names what keeps a topic from being deleted, for example a connected consumer.",
    )
    WAITING_FOR_PULSAR = (
        "WaitingForPulsar",
        ConditionType.RECONCILING,
        "Pulsar does not answer, is overloaded, or answers with an error that passes.",
        "Bring Pulsar back. It is tried again, ever less often; the message has the last error.",
    )
    WAITING_FOR_CONNECTION = (
        "WaitingForConnection",
        ConditionType.RECONCILING,
        "The PulsarConnection exists, but is not ready.",
        "Look at the conditions of the PulsarConnection.",
    )
    WAITING_FOR_TOPIC = (
        "WaitingForTopic",
        ConditionType.RECONCILING,
        "The CompositeTopic exists, but has no descriptor yet.",
        "Look at the conditions of the CompositeTopic.",
    )
    STARTING_SHARDS = (
        "StartingShards",
        ConditionType.RECONCILING,
        "All is prepared, but not every shard is held by a pod.",
        "Wait. If it lasts, look at the pods: `kubectl describe deployment NAME-shards-N`. What their shards "
        "have not delivered waits, and is not lost.",
    )

    PAUSED = (
        "Paused",
        ConditionType.STALLED,
        "The annotation `millrace.dev/paused` is set, so nothing is read or changed.",
        "Remove the annotation to go on.",
    )
    INVALID_SPEC = (
        "InvalidSpec",
        ConditionType.STALLED,
        "The object cannot be acted on although the API server took it, for example because two entries "
        "mean the same topic, or because the CRD is older or newer than the operator.",
        "Correct what the message names; install the CRDs and the operator of one release.",
    )
    CONNECTION_NOT_FOUND = (
        "ConnectionNotFound",
        ConditionType.STALLED,
        "There is no such PulsarConnection in the namespace, or none is its default.",
        "Create it, set `isDefault: true` on one, or set `connectionRef`.",
    )
    AMBIGUOUS_DEFAULT = (
        "AmbiguousDefault",
        ConditionType.STALLED,
        "Several PulsarConnections of the namespace say `isDefault: true`.",
        "Leave it on one of them, or set `connectionRef`.",
    )
    SECRET_NOT_FOUND = (
        "SecretNotFound",
        ConditionType.STALLED,
        "A Secret or ConfigMap that the object or its PulsarConnection names does not exist, or lacks the "
        "key; or the PulsarConnection names none for the pods.",
        "Create it with the key that the message names. It is picked up without a restart.",
    )
    UNAUTHORIZED = (
        "Unauthorized",
        ConditionType.STALLED,
        "Pulsar does not know who is asking (401): the credentials are wrong or have expired.",
        "Renew the credentials in the Secret. They are picked up without a restart.",
    )
    FORBIDDEN = (
        "Forbidden",
        ConditionType.STALLED,
        "Pulsar knows who is asking, and does not permit it (403).",
        "Grant the role what the message names, in Pulsar.",
    )
    NAMESPACE_NOT_ALLOWED = (
        "NamespaceNotAllowed",
        ConditionType.STALLED,
        "The PulsarConnection does not list this Pulsar namespace.",
        "Use one that it lists, or have its owner add this one to `pulsarNamespaces`.",
    )
    NAMESPACE_NOT_FOUND = (
        "NamespaceNotFound",
        ConditionType.STALLED,
        "The Pulsar namespace, or its tenant, does not exist.",
        "Create it in Pulsar; Millrace never creates namespaces.",
    )
    FOREIGN_OWNER = (
        "ForeignOwner",
        ConditionType.STALLED,
        "A topic of this name belongs to another object or another cluster. It was not changed.",
        "Choose another `topicName`; or delete the other owner, if it is yours.",
    )
    TOPIC_EXISTS = (
        "TopicExists",
        ConditionType.STALLED,
        "A topic of this name exists and nobody owns it. It was not changed.",
        "Apply the object anew (delete it with `deletionPolicy: Retain`, for entries never change) with "
        "another `topicName`, or with `topicName` and `adopt: true` to take the topic over.",
    )
    PARTITION_MISMATCH = (
        "PartitionMismatch",
        ConditionType.STALLED,
        "The topic in Pulsar has another partition count than the entry says, or is not partitioned.",
        "If somebody added partitions in Pulsar, order is no longer certain: append a storage topic of the "
        "right count and raise `producePointer`. When adopting, write the count that the topic has.",
    )
    TOPIC_VANISHED = (
        "TopicVanished",
        ConditionType.STALLED,
        "A storage topic that clients know of was deleted outside, with what was in it.",
        "Restore it in Pulsar, or delete the object and its descriptor topic, and start anew.",
    )
    TERMINATED_OUTSIDE = (
        "TerminatedOutside",
        ConditionType.STALLED,
        "A partition was terminated in Pulsar though no switch was asked for; producers cannot write to it.",
        "Append a storage topic and raise `producePointer`: nothing that was acknowledged is lost.",
    )
    DESCRIPTOR_CONFLICT = (
        "DescriptorConflict",
        ConditionType.STALLED,
        "The descriptor in Pulsar contradicts the object: other entries, other routing, a higher pointer. "
        "This happens when an object is deleted and applied again in an older form.",
        "Write into the object what the message names: the descriptor is the truth. To start anew, delete "
        "the object, its topics and its descriptor topic.",
    )
    DESCRIPTOR_UNREADABLE = (
        "DescriptorUnreadable",
        ConditionType.STALLED,
        "The descriptor was written by a newer version, or by something else.",
        "Upgrade the operator, or remove from the topic what does not belong there.",
    )
    TOPIC_NOT_FOUND = (
        "TopicNotFound",
        ConditionType.STALLED,
        "There is no CompositeTopic as `topicRef` names it, or the operator does not watch its namespace.",
        "Create it; or delete the Subscription, and apply it with another `topicRef`.",
    )
    TOPIC_NOT_ALLOWED = (
        "TopicNotAllowed",
        ConditionType.STALLED,
        "The CompositeTopic is in another namespace, and does not list this one.",
        "Have its owner add this namespace to `allowedNamespaces`.",
    )
    QUEUE_MISMATCH = (
        "QueueMismatch",
        ConditionType.STALLED,
        "`retryPartitions` or `deadLetterPartitions` would put groups on other shards than the topic does.",
        "Leave the field out, or write the partition count that the message names, in a new Subscription.",
    )
    BARRIER_NEEDED = (
        "BarrierNeeded",
        ConditionType.STALLED,
        "The topic has moved to a storage topic that puts groups on other shards. The shards deliver up to "
        "the end of the one before, and stop there: going on would break the order. Nothing is lost.",
        "It takes a reshard to go on. To need none, append storage topics of which the partition counts are "
        "multiples of the first one's, and use a shard count that divides that one.",
    )

    RAISED_TO_FIT = (
        "RaisedToFit",
        ConditionType.SHARD_COUNT_ADJUSTED,
        "`shardCount` does not divide the partitions evenly, and was raised to the next count that does.",
        "Nothing; or write the count that the message names, or set `allowUneven: true`.",
    )
    CLAMPED_TO_PARTITIONS = (
        "ClampedToPartitions",
        ConditionType.SHARD_COUNT_ADJUSTED,
        "`shardCount` is more than there are partitions, and a shard needs at least one.",
        "Nothing; or append a storage topic with more partitions.",
    )
    RESHARD_PENDING = (
        "ReshardPending",
        ConditionType.SHARD_COUNT_ADJUSTED,
        "Another shard count is asked for than the shards run with; they go on with theirs.",
        "Wait; or write the count that they run with.",
    )

    NAMESPACE_TTL = (
        "NamespaceTTL",
        ConditionType.DATA_AT_RISK,
        "The Pulsar namespace has a message TTL: messages that nobody consumed in time are dropped.",
        "Remove it: `pulsar-admin namespaces remove-message-ttl TENANT/NAMESPACE`.",
    )
    BACKLOG_EVICTION = (
        "BacklogEviction",
        ConditionType.DATA_AT_RISK,
        "The backlog quota of the Pulsar namespace evicts: what exceeds it is dropped.",
        "Set its policy to `producer_request_hold`, or remove the quota.",
    )
    SUBSCRIPTION_EXPIRATION = (
        "SubscriptionExpiration",
        ConditionType.DATA_AT_RISK,
        "Subscriptions without a consumer expire, and what they had not consumed with them.",
        "Turn it off: `pulsar-admin namespaces set-subscription-expiration-time -t 0 TENANT/NAMESPACE`.",
    )
    BATCH_INDEX_ACK_OFF = (
        "BatchIndexAckOff",
        ConditionType.DATA_AT_RISK,
        "The broker forgets which messages of a batch were acknowledged; they come again after a restart.",
        "Set `acknowledgmentAtBatchIndexLevelEnabled=true` in the brokers' configuration.",
    )
