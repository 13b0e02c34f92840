from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.api.crds import KINDS, definition
from millrace.api.delivery import OnDeadLetter, PropertyFilter
from millrace.api.meta import InvalidResourceError
from millrace.api.quantities import Interval
from millrace.api.subscription import Ordering, StartType, Subscription, SubscriptionStatus

SPEC = {"topicRef": {"name": "orders"}, "delivery": {"url": "https://billing.example/events"}}


def subscription(**fields: Any) -> Subscription:
    metadata = {"name": "billing", "namespace": "shop", "uid": "u-1", "generation": 1}
    return Subscription.parse({"metadata": metadata, "spec": SPEC | fields})


def version() -> dict[str, Any]:
    kind = next(kind for kind in KINDS if kind.model is Subscription)
    found: dict[str, Any] = definition(kind)["spec"]["versions"][0]
    return found


def test_an_object_is_read_with_its_defaults() -> None:
    spec = subscription().spec

    assert (spec.shard_count, spec.standby, spec.allow_uneven) == (1, 1, False)
    assert spec.ordering is Ordering.GROUP
    assert spec.start_from.type is StartType.EARLIEST
    assert spec.dead_letter.on_dead_letter is OnDeadLetter.BLOCK
    assert (spec.retry.initial.seconds, spec.retry.max.seconds, spec.retry.multiplier) == (1, 300, 2)
    assert (spec.filter, spec.retry_partitions, spec.dead_letter_partitions) == (None, None, None)
    assert subscription().status == SubscriptionStatus()


def test_an_object_that_is_written_is_the_same_when_read_again() -> None:
    whole = subscription(
        shardCount=0,
        startFrom={"type": "Time", "time": "2026-01-02T03:04:05Z"},
        filter={"properties": [{"property": "a", "in": ["b"]}, {"property": "c", "exists": False}]},
        podTemplate={"resources": {"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}}},
    )

    assert Subscription.parse(whole.to_wire()) == whole


def test_a_filter_keeps_the_word_in_on_the_wire() -> None:
    demand = PropertyFilter.model_validate({"property": "country", "in": ["at", "ch"]})

    assert demand.in_ == ("at", "ch")
    assert demand.to_wire() == {"property": "country", "in": ["at", "ch"]}


def test_a_quantity_of_resources_may_be_a_number_or_a_text() -> None:
    resources = subscription(
        podTemplate={"resources": {"requests": {"cpu": 2, "memory": "1Gi"}}}
    ).spec.pod_template.resources

    assert resources is not None
    assert resources.requests == {"cpu": "2", "memory": "1Gi"}


def test_a_moment_is_read_with_its_zone() -> None:
    start = subscription(startFrom={"type": "Time", "time": "2026-01-02T04:04:05+01:00"}).spec.start_from

    assert start.time == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"delivery": {"url": "https://user:secret@billing"}}, "spec.delivery.url: must be http://HOST"),
        ({"shardCount": -1}, "spec.shardCount: Input should be greater than or equal to 0"),
        ({"retry": {"initial": "-1"}}, "spec.retry.initial: '-1' is not an interval"),
        ({"retry": {"hardFailureCodes": [200]}}, "spec.retry.hardFailureCodes[0]: Input should be greater"),
    ],
)
def test_a_spec_that_cannot_be_read_says_which_field_and_why(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidResourceError) as error:
        subscription(**fields)

    assert complaint in str(error.value)


def test_the_scale_subresource_points_at_fields_that_exist() -> None:
    found = version()
    schema = found["schema"]["openAPIV3Schema"]["properties"]

    assert found["subresources"]["scale"] == {
        "specReplicasPath": ".spec.shardCount",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    # Without a default /scale fails on an object that leaves the field out.
    assert schema["spec"]["properties"]["shardCount"]["default"] == 1
    assert {"replicas", "selector"} <= schema["status"]["properties"].keys()


def test_every_column_points_at_a_field_that_exists() -> None:
    schema = version()["schema"]["openAPIV3Schema"]
    for column in version()["additionalPrinterColumns"]:
        path = column["jsonPath"].removeprefix(".").partition("[")[0].split(".")
        node = schema
        for name in path if path[0] != "metadata" else []:
            assert name in node["properties"], column
            node = node["properties"][name]


@pytest.mark.parametrize(
    ("text", "seconds"), [("1ms", 0.001), ("250ms", 0.25), ("30s", 30), ("5m", 300), ("999999h", 3599996400)]
)
def test_an_interval_is_read_in_seconds(text: str, seconds: float) -> None:
    assert Interval.parse(text).seconds == seconds


@pytest.mark.parametrize("text", ["-1", "0s", "1", "1d", "1.5s", "1000000s", " 1s", ""])
def test_what_is_no_interval_is_refused_with_what_would_be_one(text: str) -> None:
    with pytest.raises(ValueError, match="one of ms, s, m, h"):
        Interval.parse(text)


@given(st.integers(1, 999_999), st.sampled_from(["ms", "s", "m", "h"]))
def test_an_interval_that_is_written_is_the_same_when_read_again(amount: int, unit: str) -> None:
    interval = Interval.parse(f"{amount}{unit}")

    assert Interval.parse(str(interval)) == interval
