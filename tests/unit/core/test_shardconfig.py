"""The configuration of a shard pod survives the way through JSON, and says what is wrong with one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from millrace.api.delivery import Method, OnDeadLetter
from millrace.api.pulsarconnection import AuthType
from millrace.api.subscription import Ordering
from millrace.core.shardconfig import (
    FORMAT_VERSION,
    BatchConfig,
    DeliveryConfig,
    HeaderConfig,
    OAuth2Config,
    PropertyDemand,
    PulsarConfig,
    RetryConfig,
    ShardConfig,
    ShardConfigError,
    ThrottleConfig,
    Timing,
)

MINIMAL = ShardConfig(
    cluster_id="prod-eu",
    namespace="shop",
    name="billing",
    generation=0,
    shard_count=4,
    topic="shop/orders",
    subscription_name="millrace.prod-eu.shop.billing",
    descriptor_topic="persistent://public/default/shop.orders-descriptor",
    retry_descriptor_topic="persistent://public/default/shop.billing_rq-descriptor",
    dead_letter_descriptor_topic="persistent://public/default/shop.billing_dlq-descriptor",
    state_topic_prefix="persistent://public/default/shop.billing_state-0-",
    lease_prefix="billing-0-",
    pulsar=PulsarConfig("pulsar://pulsar:6650", "http://pulsar:8080"),
    delivery=DeliveryConfig("https://billing.example/events"),
)

FULL = replace(
    MINIMAL,
    generation=3,
    pulsar=PulsarConfig(
        "pulsar+ssl://pulsar:6651",
        "https://pulsar:8443",
        auth_type=AuthType.OAUTH2,
        token_file="/t",
        certificate_file="/c",
        private_key_file="/k",
        credentials_file="/o",
        oauth2=OAuth2Config("https://issuer", "pulsar", "a b"),
        ca_file="/ca",
        allow_insecure=True,
        validate_hostname=False,
    ),
    delivery=DeliveryConfig(
        "https://billing.example/events",
        method=Method.PUT,
        timeout_seconds=2.5,
        max_in_flight=8,
        headers=(HeaderConfig("x-tenant", "é"), HeaderConfig("x-empty", "")),
        headers_directory="/h",
        batch=BatchConfig(100, 0.1),
        signing_secret_file="/s",
        ca_file="/ca",
        certificate_file="/c",
        private_key_file="/k",
    ),
    ordering=Ordering.NONE,
    retry=RetryConfig(0.5, 60.0, 1.5, 0.0, 3, (400, 422)),
    on_dead_letter=OnDeadLetter.SKIP,
    throttle=ThrottleConfig(12.5, 0.25),
    filter=(PropertyDemand("country", ("at", "ch")), PropertyDemand("test", present=False)),
    timing=Timing(0.5, 2.0, 4.0, 1.0, 10.0),
)


def document(config: ShardConfig, **changes: Any) -> str:
    return json.dumps(json.loads(config.to_json()) | changes)


@pytest.mark.parametrize("config", [MINIMAL, FULL], ids=["minimal", "full"])
def test_a_configuration_that_is_written_is_the_same_when_read_again(config: ShardConfig) -> None:
    assert ShardConfig.from_json(config.to_json()) == config
    assert ShardConfig.from_json(config.to_json().encode()) == config


def test_the_document_is_camel_case_and_says_its_version() -> None:
    written = json.loads(FULL.to_json())

    assert written["version"] == FORMAT_VERSION
    assert written["delivery"]["signingSecretFile"] == "/s"
    assert written["retry"]["hardFailureCodes"] == [400, 422]
    assert written["pulsar"]["authType"] == "OAuth2"


def test_equal_configurations_have_one_digest_and_others_another() -> None:
    again = ShardConfig.from_json(FULL.to_json())

    assert again.digest == FULL.digest
    assert replace(FULL, shard_count=5).digest != FULL.digest


def test_a_shard_finds_its_table_and_its_lease() -> None:
    assert MINIMAL.state_topic(2) == "persistent://public/default/shop.billing_state-0-2"
    assert MINIMAL.lease_name(2) == "billing-0-2"


def test_fields_of_a_newer_version_are_ignored_and_missing_ones_have_their_default() -> None:
    newer = json.loads(document(MINIMAL, version=FORMAT_VERSION + 1, novelty={"a": 1}))
    del newer["retry"], newer["timing"]["renewSeconds"]
    newer["delivery"]["novelty"] = True

    assert ShardConfig.from_json(json.dumps(newer)) == MINIMAL


def test_a_document_for_newer_readers_is_refused() -> None:
    with pytest.raises(ShardConfigError, match="needs a reader of version 2 or newer; this one is 1"):
        ShardConfig.from_json(document(MINIMAL, oldestReader=FORMAT_VERSION + 1))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"shardCount": "4"}, "shardCount is a text, not a whole number"),
        ({"shardCount": True}, "shardCount is true or false, not a whole number"),
        ({"shardCount": 1.0}, "shardCount is a number, not a whole number"),
        ({"name": None}, "name is null, not a text"),
        ({"ordering": "Sometimes"}, "ordering is 'Sometimes', not one of Group, None"),
        ({"delivery": {"method": "POST"}}, "delivery.url is missing"),
        ({"delivery": []}, "delivery is a list, not an object"),
        ({"filter": {}}, "filter is an object, not a list"),
        (
            {"filter": [{"property": "a"}, {"property": 1}]},
            "filter[1].property is a whole number, not a text",
        ),
        ({"retry": {"maxSeconds": "5m"}}, "retry.maxSeconds is a text, not a number"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ShardConfigError) as error:
        ShardConfig.from_json(document(MINIMAL, **changes))

    assert str(error.value).endswith(complaint)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", '{"oldestReader": "1"}', '{"version": 1}', b"\xff"]
)
def test_what_is_no_configuration_is_refused(text: str | bytes) -> None:
    with pytest.raises(ShardConfigError, match="not a shard configuration"):
        ShardConfig.from_json(text)


@pytest.mark.parametrize(
    ("demand", "found", "holds"),
    [
        (PropertyDemand("p", ("a", "b")), "a", True),
        (PropertyDemand("p", ("a", "b")), "c", False),
        (PropertyDemand("p", ("a", "b")), None, False),
        (PropertyDemand("p"), "", True),
        (PropertyDemand("p"), None, False),
        (PropertyDemand("p", present=False), None, True),
        (PropertyDemand("p", present=False), "", False),
    ],
)
def test_a_demand_on_a_property_holds_or_does_not(
    demand: PropertyDemand, found: str | None, holds: bool
) -> None:
    assert demand.holds(found) is holds
