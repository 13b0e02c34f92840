from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from millrace.api.compositetopic import CompositeTopic, CompositeTopicStatus, DeletionPolicy, Routing
from millrace.api.meta import Condition, InvalidResourceError
from millrace.api.pulsarconnection import PulsarConnection, PulsarConnectionSpec


def body(**parts: Any) -> dict[str, Any]:
    return {
        "apiVersion": "millrace.dev/v1alpha1",
        "kind": "CompositeTopic",
        "metadata": {"name": "orders", "namespace": "shop", "uid": "u-1", "generation": 3},
        "spec": {"pulsarNamespace": "public/default", "storageTopics": [{"partitions": 2}]},
    } | parts


def connection(**fields: Any) -> PulsarConnectionSpec:
    spec = {
        "serviceUrl": "pulsar://pulsar:6650",
        "adminUrl": "http://pulsar:8080",
        "pulsarNamespaces": ["public/default"],
    }
    return PulsarConnectionSpec.model_validate(spec | fields)


def test_an_object_is_read_with_its_defaults() -> None:
    topic = CompositeTopic.parse(body())

    assert topic.metadata.namespace == "shop"
    assert topic.spec.storage_topics[0].partitions == 2
    assert topic.spec.routing is Routing.SHARD_CONSISTENT
    assert topic.spec.deletion_policy is DeletionPolicy.RETAIN
    assert topic.status == CompositeTopicStatus()


def test_fields_of_a_newer_version_are_ignored_everywhere() -> None:
    newer = body(status={"novelty": 1})
    newer["spec"]["novelty"] = {"a": 1}
    newer["spec"]["storageTopics"][0]["novelty"] = True

    assert CompositeTopic.parse(newer) == CompositeTopic.parse(body())


@pytest.mark.parametrize(
    "status", [None, {"storageTopics": 3}, {"storageTopics": [{"index": 0, "state": "New"}]}]
)
def test_a_status_that_cannot_be_read_counts_as_empty(status: Any) -> None:
    assert CompositeTopic.parse(body(status=status)).status == CompositeTopicStatus()


def test_a_spec_that_cannot_be_read_says_which_field_and_why() -> None:
    wrong = body(spec={"pulsarNamespace": "public", "storageTopics": [{"partitions": 0}]})

    with pytest.raises(InvalidResourceError) as error:
        CompositeTopic.parse(wrong)

    assert "spec.pulsarNamespace: must be a Pulsar namespace written TENANT/NAMESPACE" in str(error.value)
    assert "spec.storageTopics[0].partitions: Input should be greater than or equal to 1" in str(error.value)


def test_values_are_frozen() -> None:
    topic = CompositeTopic.parse(body())

    with pytest.raises(ValidationError, match="frozen"):
        topic.spec.produce_pointer = 1  # type: ignore[misc]


def test_an_object_that_is_written_is_the_same_when_read_again() -> None:
    topic = CompositeTopic.parse(body())

    assert CompositeTopic.parse(topic.to_wire()) == topic


def test_the_wire_is_camel_case_and_python_is_not() -> None:
    assert CompositeTopic.parse(body()).spec.to_wire()["producePointer"] == 0


def test_the_status_counts_its_storage_topics() -> None:
    status = CompositeTopicStatus.model_validate(
        {"storageTopics": [{"index": 0, "topic": "t", "partitions": 2, "state": "Ready"}]}
    )

    assert status.to_wire()["topics"] == 1


def test_a_time_is_written_as_kubernetes_writes_it() -> None:
    condition = Condition.model_validate(
        {
            "type": "Ready",
            "status": "True",
            "reason": "Ready",
            "message": "",
            "lastTransitionTime": "2026-01-02T04:04:05.678+01:00",
        }
    )

    assert condition.to_wire()["lastTransitionTime"] == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize(
    ("annotations", "paused"),
    [({}, False), ({"millrace.dev/paused": "false"}, False), ({"millrace.dev/paused": "true"}, True),
     ({"millrace.dev/paused": ""}, True)],
)  # fmt: skip
def test_an_object_is_paused_by_its_annotation(annotations: dict[str, str], paused: bool) -> None:
    metadata = {"name": "orders", "namespace": "shop", "annotations": annotations}

    assert CompositeTopic.parse(body(metadata=metadata)).metadata.paused is paused


@pytest.mark.parametrize(
    ("listed", "namespace", "permitted"),
    [
        (["public/default"], "public/default", True),
        (["public/default"], "public/other", False),
        (["public/*"], "public/other", True),
        (["public/*"], "publicity/other", False),
        (["a/b", "public/*"], "a/b", True),
        (["a/b", "public/*"], "a/c", False),
    ],
)
def test_a_connection_permits_the_namespaces_that_it_lists(
    listed: list[str], namespace: str, permitted: bool
) -> None:
    assert connection(pulsarNamespaces=listed).permits(namespace) is permitted


def test_the_models_refuse_what_the_api_server_refuses_of_a_single_field() -> None:
    with pytest.raises(ValidationError, match="must be pulsar://HOST:PORT"):
        connection(serviceUrl="http://pulsar:6650")


def test_a_connection_is_read_whole() -> None:
    spec = connection(auth={"type": "Token"}, adminSecretRef={"name": "pulsar"}).to_wire()

    read = PulsarConnection.parse({"metadata": {"name": "p", "namespace": "shop"}, "spec": spec}).spec

    assert read.admin_secret_ref is not None
    assert read.admin_secret_ref.token_key == "token"
    assert read.tls is None
