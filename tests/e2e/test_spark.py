"""The route census as a SparkApplication: a real driver and a real executor, and the answers of the core."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml

from demo.cluster import EXAMPLES, DemoError
from millrace.core.routing import (
    Layout,
    Routing,
    next_layout,
    partition_of,
    shard_consistent,
    shard_of,
)
from sandbox import environment, images
from sandbox import layout as sandbox_layout
from tests.e2e import cluster
from tests.support.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

IMAGE = "MILLRACE_SPARK_IMAGE"
SECONDS = 400.0
"""Two JVMs and a Python start one after the other, on cores that they share with everything else."""

GROUPS = 30_000
NOW = Layout(10, 5)
NEXT_PARTITIONS = 20
SHARDS = (1, 2, 5)


@pytest.fixture(scope="session")
def spark_image() -> str:
    """Built and imported on first use; a cluster of one's own has to have it already."""
    if environment.uses_own_cluster():
        if not os.environ.get(IMAGE):
            pytest.skip(
                f"set {IMAGE} to an image that the cluster can pull, made by `docker build --target spark`"
            )
        return os.environ[IMAGE]
    return images.ensure_spark(sandbox_layout.Layout.named(os.environ["SANDBOX"])).reference


@pytest.fixture
async def restricted_namespace() -> AsyncIterator[str]:
    """A namespace that lets in no pod that asks for more than the profile `restricted` grants."""
    name = f"e2e-spark-{uuid.uuid4().hex[:8]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    )
    yield name
    await cluster.kubectl("delete", "namespace", name, "--timeout=120s")


def example(namespace: str, image: str, arguments: list[str]) -> list[cluster.Manifest]:
    """`examples/spark-route-census.yaml`, the driver's rights included, for a namespace and an image."""
    manifests = list(yaml.safe_load_all((EXAMPLES / "spark-route-census.yaml").read_text()))
    for manifest in manifests:
        manifest["metadata"]["namespace"] = namespace
        for subject in manifest.get("subjects", []):
            subject["namespace"] = namespace
        if manifest["kind"] == "SparkApplication":
            manifest["spec"] |= {"image": image, "arguments": arguments}
    return manifests


def expected() -> dict[str, Any]:
    """What the application has to say, by the core alone and one group at a time."""
    then = next_layout(NOW, NEXT_PARTITIONS, NOW.routing)
    ids = [f"group-{number}" for number in range(GROUPS)]

    def topic(layout: Layout) -> dict[str, Any]:
        spread = Counter(partition_of(group, layout) for group in ids)
        return {
            "partitions": layout.partitions,
            "k": layout.scale_factor,
            "routing": Routing.SHARD_CONSISTENT.value,
            "groups": [spread[partition] for partition in range(layout.partitions)],
        }

    def sharded(count: int) -> dict[str, Any]:
        spread = Counter(shard_of(group, NOW, count) for group in ids)
        moved = sum(shard_of(group, NOW, count) != shard_of(group, then, count) for group in ids)
        return {
            "count": count,
            "groups": [spread[shard] for shard in range(count)],
            "consistent": shard_consistent(NOW, then, count),
            "moved": moved,
            "movedShare": round(moved / GROUPS, 6),
        }

    return {
        "groups": GROUPS,
        "topic": topic(NOW),
        "next": topic(then),
        "shards": [sharded(count) for count in SHARDS],
    }


async def log_of(pod: str, namespace: str) -> str:
    try:
        return await cluster.kubectl("logs", pod, "-n", namespace)
    except DemoError as error:
        return str(error)


async def completed(name: str, namespace: str) -> cluster.Manifest:
    """Wait for the application's end; any but COMPLETED fails at once, with the driver's last words."""
    status: cluster.Manifest = {}

    async def is_completed() -> bool:
        nonlocal status
        status = (await cluster.get("sparkapplication", name, namespace)).get("status", {})
        state = status.get("applicationState", {}).get("state", "")
        if "FAILED" in state or "FAILING" in state:
            log = await log_of(status.get("driverInfo", {}).get("podName", f"{name}-driver"), namespace)
            pytest.fail(f"{status['applicationState']}\n{log[-5000:]}")
        return bool(state == "COMPLETED")

    await eventually(is_completed, timeout=SECONDS, interval=1.0, describe=lambda: json.dumps(status))
    return status


async def test_the_census_runs_in_restricted_pods_and_agrees_with_the_core(
    restricted_namespace: str, spark_image: str
) -> None:
    arguments = ["--generate", GROUPS, "--partitions", NOW.partitions, "--k", NOW.scale_factor]
    arguments += ["--next-partitions", NEXT_PARTITIONS, "--shards", *SHARDS]
    await cluster.apply(*example(restricted_namespace, spark_image, [str(each) for each in arguments]))
    status = await completed("route-census", restricted_namespace)
    assert len(status["executorState"]) == 1, "the work was done by one executor, in a pod of its own"
    log = await cluster.kubectl("logs", status["driverInfo"]["podName"], "-n", restricted_namespace)
    assert json.loads(log.splitlines()[-1]) == expected()
