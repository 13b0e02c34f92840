"""A Subscription as the operator makes it: in a real Pulsar, and in a real Kubernetes (without its pods)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pulsar
import pytest

from millrace.core.shardconfig import ShardConfig
from millrace.pulsar.admin import Admin
from millrace.pulsar.clients import blocking
from tests.integration.controller.operating import Operated, kubectl
from tests.support.pulsar import NAMESPACE, credentials, open_client
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    async with Admin(credentials()) as opened:
        yield opened


def topic(operated: Operated, name: str, partitions: int = 4, **spec: Any) -> str:
    """A CompositeTopic of its own for a test; the full name of its first storage topic."""
    operated.apply(
        "CompositeTopic",
        name,
        {
            "pulsarNamespace": NAMESPACE,
            "storageTopics": [{"partitions": partitions}],
            "deletionPolicy": "Delete",
        }
        | spec,
    )
    kubectl("wait", "--for=condition=Ready", f"ct/{name}", "-n", operated.namespace, "--timeout=40s")
    return f"persistent://{NAMESPACE}/{operated.namespace}.{name}-0"


def own(operated: Operated, name: str, suffix: str) -> str:
    return f"persistent://{NAMESPACE}/{operated.namespace}.{name}_{suffix}"


async def produce(storage_topic: str, count: int) -> None:
    async with open_client() as client:
        producer = await blocking(
            client.create_producer,
            storage_topic,
            message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
            batching_enabled=False,
        )
        for number in range(count):
            await blocking(producer.send, b"m", partition_key=str(number))
        await blocking(producer.close)


async def backlog(admin: Admin, operated: Operated, storage_topic: str, name: str) -> int | None:
    stats = await admin.partitioned_stats(storage_topic)
    cursor = stats["subscriptions"].get(f"millrace.{operated.cluster_id}.{operated.namespace}.{name}")
    return None if cursor is None else int(cursor["msgBacklog"])


async def ours(admin: Admin, operated: Operated, name: str) -> set[str]:
    """Every topic of a subscription, partitions aside."""
    begin = own(operated, name, "")
    found = [*await admin.topics(NAMESPACE), *await admin.partitioned_topics(NAMESPACE)]
    return {
        each.removeprefix(begin) for each in found if each.startswith(begin) and "-partition-" not in each
    }


async def test_everything_is_made_in_pulsar_and_in_kubernetes(operated: Operated, admin: Admin) -> None:
    storage = topic(operated, "made")
    operated.subscribe("made", "made", shardCount=2)

    await operated.reaches("made", "StartingShards")

    expected = {"rq-0", "rq-descriptor", "dlq-0", "dlq-descriptor", "state-0-0", "state-0-1"}
    assert await ours(admin, operated, "made") == expected
    for each in (storage, own(operated, "made", "rq-0"), own(operated, "made", "dlq-0")):
        assert await backlog(admin, operated, each, "made") == 0
    properties = await admin.properties(own(operated, "made", "state-0-1"))
    assert properties["millrace.dev/kind"] == "Subscription"
    assert properties["millrace.dev/shard-count"] == "2"
    deployment = operated.get("deployment", "made-shards-0")
    assert deployment is not None
    assert deployment["spec"]["replicas"] == 3
    config_map = operated.get("configmap", "made-shards")
    assert config_map is not None
    config = ShardConfig.from_json(config_map["data"]["shard.json"])
    assert config.descriptor_topic.endswith(f"{operated.namespace}.made-descriptor")
    status = operated.status("made")
    assert [shard["assignments"][0]["partitions"] for shard in status["shards"]] == ["0-1", "2-3"]


async def test_it_is_ready_when_pods_hold_all_shards_and_says_who_holds_which(operated: Operated) -> None:
    topic(operated, "held")
    operated.subscribe("held", "held", shardCount=2)
    await operated.reaches("held", "StartingShards")

    operated.hold("held", 0, "pod-a", 3, blocked_groups=5)
    operated.hold("held", 1, "pod-b", 1, dead_lettered_groups=2)

    await operated.reaches("held", "Ready")
    status = operated.status("held")
    assert [(each["owner"], each["epoch"]) for each in status["shards"]] == [("pod-a", 3), ("pod-b", 1)]
    assert status["ownedShards"] == 2


@pytest.mark.parametrize(
    ("start", "expected"), [("Earliest", 12), ("Latest", 0), ("Time", 8)], ids=["earliest", "latest", "time"]
)
async def test_a_subscription_begins_where_it_is_asked_to(
    operated: Operated, admin: Admin, start: str, expected: int
) -> None:
    name = f"from-{start.lower()}"
    # What is older than its subscription is there only if it is retained.
    storage = topic(operated, name, 2, retention={"time": "1d"})
    await produce(storage, 4)
    # A moment is written to the second: the first whole one after what was produced.
    moment = int(datetime.now(UTC).timestamp()) + 1

    async def passed() -> bool:
        return datetime.now(UTC).timestamp() > moment

    await eventually(passed)
    await produce(storage, 8)
    spec: dict[str, Any] = {"type": start}
    if start == "Time":
        spec["time"] = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    operated.subscribe(name, name, startFrom=spec)
    await operated.reaches(name, "StartingShards")

    assert await backlog(admin, operated, storage, name) == expected
    assert operated.status(name)["lag"]["main"] == expected


async def test_what_others_change_is_put_right(operated: Operated) -> None:
    topic(operated, "drift")
    operated.subscribe("drift", "drift", shardCount=2)
    await operated.reaches("drift", "StartingShards")

    kubectl("scale", "deployment", "drift-shards-0", "--replicas=1", "-n", operated.namespace)
    kubectl("delete", "lease", "drift-0-1", "-n", operated.namespace)

    def right() -> bool:
        deployment = operated.get("deployment", "drift-shards-0")
        lease = operated.get("lease", "drift-0-1")
        return deployment is not None and deployment["spec"]["replicas"] == 3 and lease is not None

    await operated.until(right)
    kubectl("delete", "deployment", "drift-shards-0", "-n", operated.namespace)
    await operated.until(right)


async def test_a_count_is_adjusted_suspended_and_resumed(operated: Operated) -> None:
    topic(operated, "count", 12)
    operated.subscribe("count", "count", shardCount=5)
    await operated.reaches("count", "StartingShards")
    adjusted = operated.condition("count", "ShardCountAdjusted")
    assert (adjusted["status"], adjusted["reason"]) == ("True", "RaisedToFit")
    assert operated.status("count")["effectiveShardCount"] == 6

    kubectl("scale", "msub", "count", "--replicas=0", "-n", operated.namespace)
    await operated.reaches("count", "Suspended")
    deployment = operated.get("deployment", "count-shards-0")
    assert deployment is not None
    assert deployment["spec"]["replicas"] == 0

    kubectl("scale", "msub", "count", "--replicas=4", "-n", operated.namespace)
    await operated.until(
        lambda: operated.condition("count", "ShardCountAdjusted").get("reason") == "ReshardPending"
    )
    assert operated.status("count")["effectiveShardCount"] == 6


async def test_a_topic_that_does_not_exist_is_told_and_found_when_it_comes(operated: Operated) -> None:
    operated.subscribe("early", "late")

    told = await operated.reaches("early", "TopicNotFound")
    assert "there is no CompositeTopic late" in told["message"]

    topic(operated, "late")
    await operated.reaches("early", "StartingShards")


async def test_a_secret_that_does_not_exist_is_told_and_found_when_it_comes(operated: Operated) -> None:
    topic(operated, "secretive")
    source = {"secretKeyRef": {"name": "endpoint", "key": "bearer"}}
    headers = [{"name": "Authorization", "valueFrom": source}]
    operated.subscribe(
        "secretive", "secretive", delivery={"url": "http://nowhere.invalid/", "headers": headers}
    )

    told = await operated.reaches("secretive", "SecretNotFound")
    assert told["message"] == (
        f"there is no Secret {operated.namespace}/endpoint, which the pods need; create it with the key "
        "bearer"
    )
    assert operated.get("deployment", "secretive-shards-0") is None

    arguments = ("-n", operated.namespace, "--from-literal=bearer=s")
    kubectl("create", "secret", "generic", "endpoint", *arguments)
    await operated.reaches("secretive", "StartingShards")


async def test_a_topic_of_another_namespace_is_delivered_only_if_it_says_so(operated: Operated) -> None:
    topic(operated, "shared")
    spec = {
        "topicRef": {"name": "shared", "namespace": operated.namespace},
        "delivery": {"url": "http://nowhere.invalid/"},
        "deletionPolicy": "Delete",
    }
    operated.apply("Subscription", "abroad", spec, namespace=operated.other)
    await operated.reaches("abroad", "TopicNotAllowed", namespace=operated.other)

    allowed = json.dumps({"spec": {"allowedNamespaces": [operated.other]}})
    kubectl("patch", "ct", "shared", "-n", operated.namespace, "--type=merge", "-p", allowed)

    await operated.reaches("abroad", "StartingShards", namespace=operated.other)
    assert operated.status("abroad", namespace=operated.other)["connection"] == "default"


async def test_a_topic_that_moves_on_is_followed_and_a_barrier_is_told(
    operated: Operated, admin: Admin
) -> None:
    topic(operated, "moving", 4)
    operated.subscribe("moving", "moving", shardCount=2)
    await operated.reaches("moving", "StartingShards")

    storage = [{"partitions": 4}, {"partitions": 8}, {"partitions": 6}]
    spec = {"pulsarNamespace": NAMESPACE, "storageTopics": storage, "deletionPolicy": "Delete"}
    operated.apply("CompositeTopic", "moving", spec | {"producePointer": 1})

    def follows(index: int) -> bool:
        shards = operated.status("moving").get("shards", [])
        return all(index in {each["storageTopicIndex"] for each in s["assignments"]} for s in shards)

    await operated.until(lambda: follows(1))
    following = f"persistent://{NAMESPACE}/{operated.namespace}.moving-2"
    assert await backlog(admin, operated, following, "moving") == 0

    operated.apply("CompositeTopic", "moving", spec | {"producePointer": 2})
    told = await operated.reaches("moving", "BarrierNeeded")
    assert "moving-2" in told["message"]


async def test_a_deletion_takes_everything_with_it_if_that_is_the_policy(
    operated: Operated, admin: Admin
) -> None:
    storage = topic(operated, "gone")
    operated.subscribe("gone", "gone", deletionPolicy="Delete")
    await operated.reaches("gone", "StartingShards")

    kubectl("delete", "msub", "gone", "-n", operated.namespace, "--timeout=60s")

    assert await ours(admin, operated, "gone") == set()
    assert await backlog(admin, operated, storage, "gone") is None
    await operated.until(lambda: operated.get("configmap", "gone-shards") is None)


async def test_a_deletion_leaves_everything_in_pulsar_otherwise_and_another_goes_on_with_it(
    operated: Operated, admin: Admin
) -> None:
    storage = topic(operated, "kept")
    operated.subscribe("kept", "kept", shardCount=2)
    await operated.reaches("kept", "StartingShards")
    found = operated.get("msub", "kept")
    assert found is not None
    assert "finalizers" not in found["metadata"]

    kubectl("delete", "msub", "kept", "-n", operated.namespace, "--timeout=60s")
    await operated.until(lambda: operated.get("deployment", "kept-shards-0") is None)
    await produce(storage, 3)
    operated.subscribe("kept", "kept", shardCount=4, startFrom={"type": "Latest"}, deletionPolicy="Delete")
    await operated.reaches("kept", "StartingShards")

    assert operated.status("kept")["effectiveShardCount"] == 2, "the shards that there are know the groups"
    assert operated.status("kept")["lag"]["main"] == 3, "what came meanwhile is delivered"
    again = operated.get("msub", "kept")
    assert again is not None
    properties = await admin.properties(own(operated, "kept", "state-0-0"))
    assert properties["millrace.dev/uid"] == again["metadata"]["uid"]


async def test_a_paused_subscription_is_left_alone(operated: Operated) -> None:
    topic(operated, "still")
    operated.subscribe("still", "still")
    await operated.reaches("still", "StartingShards")
    kubectl("annotate", "msub", "still", "millrace.dev/paused=true", "-n", operated.namespace)
    await operated.reaches("still", "Paused")

    kubectl("scale", "msub", "still", "--replicas=0", "-n", operated.namespace)
    await operated.until(lambda: operated.status("still")["observedGeneration"] == 2)

    deployment = operated.get("deployment", "still-shards-0")
    assert deployment is not None
    assert deployment["spec"]["replicas"] == 2
