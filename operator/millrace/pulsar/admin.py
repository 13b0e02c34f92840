"""The operations of Pulsar's admin API that we use, as values in and values out.

A topic is named in full, `persistent://tenant/namespace/name`. Creating answers whether *we* created: what
exists already may be somebody else's, which is for the caller to find out. Deleting something already gone
is success.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

from millrace.core.positions import EntryId
from millrace.pulsar.credentials import Credentials
from millrace.pulsar.errors import Conflict, Misconfigured, NotFound
from millrace.pulsar.transport import Answer, Observer, Request, Transport

PARTITIONED_METADATA = "application/vnd.partitioned-topic-metadata+json"


@dataclass(frozen=True, slots=True)
class PartitionedTopic:
    """A partitioned topic as Pulsar has it."""

    partitions: int
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Retention:
    """How long acknowledged data is kept; -1 is for ever, without limit."""

    minutes: int
    megabytes: int


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    """One ledger of a topic. The open one is listed with 0 entries; the count is in `InternalStats`."""

    ledger: int
    entries: int


@dataclass(frozen=True, slots=True)
class InternalStats:
    """What the broker knows of a topic's storage."""

    state: str
    ledgers: tuple[LedgerInfo, ...]
    current_ledger_entries: int
    last_confirmed: EntryId
    cursors: tuple[str, ...]
    entries: int

    @property
    def terminated(self) -> bool:
        """Whether the topic is sealed."""
        return self.state == "Terminated"


class Admin:
    """One connection's admin API. Use as an async context manager, or call `close`.

    `timeout` bounds one request, `deadline` a call with its retries, `concurrency` the requests under way.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        timeout: float = 10.0,
        deadline: float = 25.0,
        concurrency: int = 16,
        observer: Observer | None = None,
    ) -> None:
        self.credentials = credentials
        self._transport = Transport(
            credentials, timeout=timeout, deadline=deadline, concurrency=concurrency, observer=observer
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    # Topics

    async def create_partitioned_topic(
        self, topic: str, partitions: int, properties: Mapping[str, str]
    ) -> bool:
        """Create with its properties in one call; False if a topic of that name exists."""
        return await self._create(
            topic,
            "/partitions",
            "create_partitioned_topic",
            {"partitions": partitions, "properties": dict(properties)},
            PARTITIONED_METADATA,
        )

    async def create_topic(self, topic: str, properties: Mapping[str, str]) -> bool:
        """Create a non-partitioned topic with its properties; False if a topic of that name exists."""
        return await self._create(topic, "", "create_topic", dict(properties), "application/json")

    async def partitioned_topic(self, topic: str) -> PartitionedTopic:
        """Partition count and properties. NotFound also for a non-partitioned topic."""
        answer = await self._topic("GET", topic, "/partitions", "partitioned_topic", "look up")
        document = answer.json() or {}
        partitions = int(document.get("partitions", 0))
        if partitions == 0:
            raise NotFound(f"there is no partitioned topic {topic}")
        return PartitionedTopic(partitions, dict(document.get("properties") or {}))

    async def properties(self, topic: str) -> dict[str, str]:
        """The properties of a topic of either sort."""
        answer = await self._topic("GET", topic, "/properties", "properties", "read the properties of")
        return dict(answer.json() or {})

    async def update_properties(self, topic: str, properties: Mapping[str, str]) -> None:
        """Set these properties; others stay."""
        await self._topic(
            "PUT", topic, "/properties", "update_properties", "set the properties of", body=dict(properties)
        )

    async def delete_partitioned_topic(self, topic: str, *, force: bool = False) -> None:
        """Delete with all partitions. Conflict while it has producers or consumers, unless forced."""
        await self._delete(topic, "/partitions", "delete_partitioned_topic", force)

    async def delete_topic(self, topic: str, *, force: bool = False) -> None:
        """Delete a non-partitioned topic. Conflict while it has producers or consumers, unless forced."""
        await self._delete(topic, "", "delete_topic", force)

    async def terminate(self, partition_topic: str) -> None:
        """Close for good. Idempotent. Its answer is no reliable end: see `termination.seal_partition`."""
        await self._topic("POST", partition_topic, "/terminate", "terminate", "terminate")

    async def unload(self, topic: str) -> None:
        """Make the broker close the topic and load it again."""
        await self._topic("PUT", topic, "/unload", "unload", "unload")

    async def compact(self, topic: str) -> None:
        """Start compaction now; one that runs already is fine."""
        await self._topic("PUT", topic, "/compaction", "compact", "compact", accept=(409,))

    async def internal_stats(self, topic: str) -> InternalStats:
        """Ledgers and cursors. Loads the topic if need be."""
        answer = await self._topic(
            "GET", topic, "/internalStats", "internal_stats", "read the internal stats of"
        )
        document = answer.json()
        return InternalStats(
            state=document["state"],
            ledgers=tuple(LedgerInfo(item["ledgerId"], item["entries"]) for item in document["ledgers"]),
            current_ledger_entries=document["currentLedgerEntries"],
            last_confirmed=EntryId.parse(document["lastConfirmedEntry"]),
            cursors=tuple(document["cursors"]),
            entries=document["numberOfEntries"],
        )

    async def stats(self, topic: str) -> dict[str, Any]:
        """Rates, publishers, subscriptions: as the broker words them."""
        return dict((await self._topic("GET", topic, "/stats", "stats", "read the stats of")).json())

    async def partitioned_stats(self, topic: str) -> dict[str, Any]:
        """The same for a partitioned topic, summed and per partition."""
        answer = await self._topic(
            "GET",
            topic,
            "/partitioned-stats",
            "partitioned_stats",
            "read the stats of",
            query={"perPartition": "true"},
        )
        return dict(answer.json())

    # Subscriptions

    async def subscriptions(self, topic: str) -> list[str]:
        """Names of the durable and live subscriptions; of a partitioned topic, those of any partition."""
        answer = await self._topic(
            "GET", topic, "/subscriptions", "subscriptions", "list the subscriptions of"
        )
        return sorted(answer.json())

    async def create_subscription(
        self, topic: str, name: str, position: Literal["earliest", "latest"] = "earliest"
    ) -> bool:
        """Create a durable cursor (in every partition); False if it exists, wherever it stands."""
        limit = 2**63 - 1
        where = (
            {"ledgerId": limit, "entryId": limit} if position == "latest" else {"ledgerId": -1, "entryId": -1}
        )
        answer = await self._topic(
            "PUT",
            topic,
            f"/subscription/{quote(name, safe='')}",
            "create_subscription",
            f"create the subscription {name} on",
            body={**where, "partitionIndex": -1},
            accept=(409,),
        )
        return answer.status != 409

    async def reset_subscription(self, topic: str, name: str, timestamp_ms: int) -> None:
        """Move a cursor (in every partition) to the first message published at that time or later."""
        await self._topic(
            "POST",
            topic,
            f"/subscription/{quote(name, safe='')}/resetcursor/{timestamp_ms}",
            "reset_subscription",
            f"move the subscription {name} of",
        )

    async def delete_subscription(self, topic: str, name: str, *, force: bool = False) -> None:
        """Delete a cursor; one that is gone is fine."""
        await self._topic(
            "DELETE",
            topic,
            f"/subscription/{quote(name, safe='')}",
            "delete_subscription",
            f"delete the subscription {name} of",
            query={"force": "true"} if force else None,
            accept=(404,),
        )

    # Policies of a topic

    async def set_inactive_policy(self, topic: str, *, deletes: bool = False) -> None:
        """Whether the broker may delete the topic when nobody uses it."""
        await self._topic(
            "POST",
            topic,
            "/inactiveTopicPolicies",
            "set_inactive_policy",
            "set the inactive-topic policy of",
            body={
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": 60,
                "deleteWhileInactive": deletes,
            },
        )

    async def inactive_policy(self, topic: str) -> bool | None:
        """Whether the topic's own policy lets the broker delete it; None if it has none of its own."""
        answer = await self._topic(
            "GET", topic, "/inactiveTopicPolicies", "inactive_policy", "read the inactive-topic policy of"
        )
        document = answer.json()
        return None if document is None else bool(document["deleteWhileInactive"])

    async def set_deduplication(self, topic: str, *, enabled: bool) -> None:
        """Whether the broker drops what a producer sends again after a lost connection."""
        await self._topic(
            "POST",
            topic,
            "/deduplicationEnabled",
            "set_deduplication",
            "set the deduplication of",
            body=enabled,
        )

    async def deduplication(self, topic: str) -> bool | None:
        """The topic's own setting; None if it has none of its own."""
        answer = await self._topic(
            "GET", topic, "/deduplicationEnabled", "deduplication", "read the deduplication of"
        )
        document = answer.json()
        return None if document is None else bool(document)

    async def set_retention(self, topic: str, retention: Retention) -> None:
        """How long acknowledged data stays."""
        await self._topic(
            "POST",
            topic,
            "/retention",
            "set_retention",
            "set the retention of",
            body={"retentionTimeInMinutes": retention.minutes, "retentionSizeInMB": retention.megabytes},
        )

    async def get_retention(self, topic: str) -> Retention | None:
        """The topic's own retention; None if it has none."""
        document = (
            await self._topic("GET", topic, "/retention", "get_retention", "read the retention of")
        ).json()
        if document is None:
            return None
        return Retention(document["retentionTimeInMinutes"], document["retentionSizeInMB"])

    async def remove_retention(self, topic: str) -> None:
        """Back to what the namespace says."""
        await self._topic(
            "DELETE", topic, "/retention", "remove_retention", "remove the retention of", accept=(404,)
        )

    async def set_compaction_threshold(self, topic: str, threshold: int) -> None:
        """Compact when this many bytes have gathered since the last time."""
        await self._topic(
            "POST",
            topic,
            "/compactionThreshold",
            "set_compaction_threshold",
            "set the compaction threshold of",
            body=threshold,
        )

    async def compaction_threshold(self, topic: str) -> int | None:
        """The topic's own threshold in bytes; None if it has none."""
        answer = await self._topic(
            "GET", topic, "/compactionThreshold", "compaction_threshold", "read the compaction threshold of"
        )
        document = answer.json()
        return None if document is None else int(document)

    # Namespaces and the cluster

    async def namespace_policies(self, namespace: str) -> dict[str, Any]:
        """All policies of `tenant/namespace`, as the broker words them."""
        answer = await self._call(
            "GET",
            f"/admin/v2/namespaces/{namespace}",
            "namespace_policies",
            f"read the policies of {namespace}",
        )
        return dict(answer.json())

    async def partitioned_topics(self, namespace: str) -> list[str]:
        """Full names of the partitioned topics in `tenant/namespace`."""
        answer = await self._call(
            "GET",
            f"/admin/v2/persistent/{namespace}/partitioned",
            "partitioned_topics",
            f"list the partitioned topics of {namespace}",
        )
        return sorted(answer.json())

    async def topics(self, namespace: str) -> list[str]:
        """Full names of the topics in `tenant/namespace`; each partition is one."""
        answer = await self._call(
            "GET", f"/admin/v2/persistent/{namespace}", "topics", f"list the topics of {namespace}"
        )
        return sorted(answer.json())

    async def runtime_configuration(self) -> dict[str, str]:
        """The effective configuration of the broker that answers. Needs a super-user."""
        answer = await self._call(
            "GET",
            "/admin/v2/brokers/configuration/runtime",
            "runtime_configuration",
            "read the brokers' configuration",
        )
        return dict(answer.json())

    async def clusters(self) -> list[str]:
        """The names of the clusters: the cheapest proof that address and credentials are right."""
        return list((await self._call("GET", "/admin/v2/clusters", "clusters", "list the clusters")).json())

    # How

    async def _create(self, topic: str, path: str, operation: str, body: Any, content_type: str) -> bool:
        try:
            await self._topic("PUT", topic, path, operation, "create", body=body, content_type=content_type)
        except Conflict as error:
            # 409 is also the answer while a topic or its namespace is being deleted.
            if "exist" in error.said:
                return False
            raise
        return True

    async def _delete(self, topic: str, path: str, operation: str, force: bool) -> None:
        query = {"force": "true"} if force else None
        await self._topic("DELETE", topic, path, operation, "delete", query=query, accept=(404,))

    async def _topic(
        self, method: str, topic: str, path: str, operation: str, verb: str, **extra: Any
    ) -> Answer:
        return await self._call(method, topic_path(topic) + path, operation, f"{verb} {topic}", **extra)

    async def _call(self, method: str, path: str, operation: str, attempt: str, **extra: Any) -> Answer:
        return await self._transport.call(Request(method, path, operation, attempt, **extra))


def topic_path(topic: str) -> str:
    """The admin path of a full topic name; the local name is escaped, whatever it holds."""
    scheme, separator, rest = topic.partition("://")
    parts = rest.split("/", 2)
    if scheme != "persistent" or not separator or len(parts) != 3 or not all(parts):
        raise Misconfigured(f"{topic!r} is no topic name: expected persistent://tenant/namespace/name")
    tenant, namespace, name = (quote(part, safe="") for part in parts)
    return f"/admin/v2/persistent/{tenant}/{namespace}/{name}"
