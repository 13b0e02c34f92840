"""The CRDs themselves, as a real API server and kubectl see them."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes import client

from millrace.api import GROUP, VERSION
from millrace.api.compositetopic import (
    CompositeTopic,
    CompositeTopicStatus,
    StorageTopicState,
    StorageTopicStatus,
)
from millrace.api.crds import KINDS, Kind
from millrace.api.meta import Condition, ConditionStatus
from tests.integration.api.apiserver import COMPOSITE_TOPIC, PULSAR_CONNECTION, ApiServer, RefusedError

pytestmark = pytest.mark.integration

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TOPIC = {"pulsarNamespace": "public/default", "storageTopics": [{"partitions": 2}]}


def ready(message: str = "all is as declared") -> Condition:
    return Condition(
        type="Ready", status=ConditionStatus.TRUE, reason="Ready", message=message, last_transition_time=NOW
    )


def kubectl(*arguments: str) -> str:
    return subprocess.run(["kubectl", *arguments], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_definition_is_established_and_structural(
    definitions: client.ApiextensionsV1Api, kind: Kind
) -> None:
    found = definitions.read_custom_resource_definition(kind.crd_name)

    conditions = {each.type: each.status for each in found.status.conditions}
    assert conditions["Established"] == "True"
    assert "NonStructuralSchema" not in conditions
    assert found.status.stored_versions == [VERSION]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_field_is_explained(api_server: ApiServer, kind: Kind) -> None:
    explained = kubectl("explain", f"{kind.plural}.{GROUP}", "--recursive")
    fields = kubectl("explain", f"{kind.plural}.{GROUP}.spec")

    assert all(f"{name}\t" in explained for name in ("spec", "status", "conditions"))
    assert "<no description>" not in fields


def test_a_field_is_explained_with_its_default_and_choices(api_server: ApiServer) -> None:
    explained = kubectl("explain", "ct.spec.routing")

    assert "ShardConsistent keeps a group in its shard" in " ".join(explained.split())
    assert "ENUM:" in explained


def test_kinds_are_found_by_short_name_and_category(api_server: ApiServer) -> None:
    listed = kubectl("api-resources", f"--api-group={GROUP}", "--categories=millrace", "--no-headers")

    assert {line.split()[1] for line in listed.splitlines()} == {"ct", "msub", "pc,pcon"}


def test_an_unknown_field_is_refused_when_strict_and_dropped_when_not(api_server: ApiServer) -> None:
    misspelt = TOPIC | {"partitons": 3}

    with pytest.raises(RefusedError, match=r'unknown field "spec.partitons"'):
        api_server.create(COMPOSITE_TOPIC, misspelt)
    assert "partitons" not in api_server.create(COMPOSITE_TOPIC, misspelt, strict=False)["spec"]


def test_a_status_that_the_models_write_is_kept_whole(api_server: ApiServer) -> None:
    created = api_server.create(COMPOSITE_TOPIC, TOPIC)
    status = CompositeTopicStatus(
        observed_generation=1,
        cluster_id="c",
        descriptor_topic="persistent://public/default/d",
        descriptor_generation=3,
        produce_pointer=1,
        switching_to=2,
        partitions=4,
        routing="ShardConsistent",
        storage_topics=(
            StorageTopicStatus(
                index=0,
                topic="persistent://public/default/t-0",
                partitions=2,
                state=StorageTopicState.SEALED,
                sealed_partitions=2,
                last_positions=("9223372036854775807:9223372036854775807", "-1:-1"),
            ),
            StorageTopicStatus(
                index=1,
                topic="persistent://public/default/t-1",
                partitions=4,
                k=2,
                state=StorageTopicState.READY,
            ),
        ),
        conditions=(ready(),),
    )

    written = api_server.write_status(COMPOSITE_TOPIC, created["metadata"]["name"], status.to_wire())

    assert written["status"] == status.to_wire()
    assert CompositeTopic.parse(written).status == status


def test_a_status_of_1000_partitions_stays_below_32_kib(api_server: ApiServer) -> None:
    created = api_server.create(COMPOSITE_TOPIC, TOPIC)
    ends = tuple(f"{100_000 + partition}:{99_999}" for partition in range(500))
    topics = tuple(
        StorageTopicStatus(
            index=index,
            topic=f"persistent://public/default/namespace.name-{index}",
            partitions=500,
            state=StorageTopicState.SEALED,
            sealed_partitions=500,
            last_positions=ends,
        )
        for index in range(2)
    )

    status = CompositeTopicStatus(storage_topics=topics, conditions=(ready(),)).to_wire()
    written = api_server.write_status(COMPOSITE_TOPIC, created["metadata"]["name"], status)

    assert len(json.dumps(written["status"])) < 32 * 1024


def test_a_condition_type_may_stand_only_once(api_server: ApiServer) -> None:
    created = api_server.create(PULSAR_CONNECTION, connection())
    twice = {"conditions": [ready("a").to_wire(), ready("b").to_wire()]}

    with pytest.raises(RefusedError) as refused:
        api_server.write_status(PULSAR_CONNECTION, created["metadata"]["name"], twice)

    assert refused.value.says("status.conditions[1]", 'Duplicate value: {"type":"Ready"}'), (
        refused.value.causes
    )


def test_writing_the_spec_does_not_touch_the_status_nor_the_other_way_round(api_server: ApiServer) -> None:
    created = api_server.create(COMPOSITE_TOPIC, TOPIC)
    name = created["metadata"]["name"]
    status = CompositeTopicStatus(observed_generation=1).to_wire()

    written = api_server.write_status(COMPOSITE_TOPIC, name, status)
    replaced = api_server.replace(COMPOSITE_TOPIC, created, TOPIC | {"deletionPolicy": "Delete"})

    assert written["metadata"]["generation"] == 1
    assert replaced["metadata"]["generation"] == 2
    assert replaced["status"] == status


@pytest.mark.parametrize(
    ("kind", "columns", "wide"),
    [
        (COMPOSITE_TOPIC, "NAME PARTITIONS TOPICS POINTER READY REASON AGE", "ROUTING DESCRIPTOR MESSAGE"),
        (PULSAR_CONNECTION, "NAME URL DEFAULT READY REASON AGE", "ADMIN MESSAGE"),
    ],
    ids=lambda value: value.name if isinstance(value, Kind) else "",
)
def test_kubectl_get_shows_what_matters(api_server: ApiServer, kind: Kind, columns: str, wide: str) -> None:
    api_server.create(kind, TOPIC if kind is COMPOSITE_TOPIC else connection())

    get = ("get", kind.short_names[-1], "-n", api_server.namespace)
    shown = kubectl(*get).splitlines()[0].split()
    shown_wide = kubectl(*get, "-o", "wide").splitlines()[0].split()

    assert shown == columns.split()
    assert set(shown_wide) - set(shown) == set(wide.split())


def test_the_columns_are_filled_from_the_status(api_server: ApiServer) -> None:
    created = api_server.create(COMPOSITE_TOPIC, TOPIC)
    name = created["metadata"]["name"]
    topics = tuple(
        StorageTopicStatus(index=i, topic=f"t-{i}", partitions=4, state=StorageTopicState.READY)
        for i in range(3)
    )
    status = CompositeTopicStatus(
        partitions=4, produce_pointer=1, storage_topics=topics, conditions=(ready(),)
    )

    api_server.write_status(COMPOSITE_TOPIC, name, status.to_wire())
    row = kubectl("get", "ct", name, "-n", api_server.namespace, "--no-headers").split()

    assert row[:6] == [name, "4", "3", "1", "True", "Ready"]


def connection() -> dict[str, Any]:
    return {
        "serviceUrl": "pulsar://pulsar:6650",
        "adminUrl": "http://pulsar:8080",
        "pulsarNamespaces": ["public/default"],
    }
