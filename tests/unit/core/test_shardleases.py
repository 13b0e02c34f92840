"""A shard's Lease, as it is read for the status."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.shardleases import ShardLease, parse


def lease(spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"labels": {"millrace.dev/shard": "3"}} | metadata, "spec": spec}


def test_a_lease_that_the_operator_has_just_created_has_no_holder() -> None:
    assert parse(lease()) == ShardLease(3)
    assert parse(lease({})) == ShardLease(3)


def test_a_lease_that_was_released_has_none_either() -> None:
    released = lease({"holderIdentity": ""}, annotations={"millrace.dev/epoch": "7"})

    assert parse(released) == ShardLease(3, None, 7)


def test_a_claimed_lease_names_its_holder_its_epoch_and_what_it_counts() -> None:
    annotations = {
        "millrace.dev/epoch": "12",
        "millrace.dev/blocked-groups": "5",
        "millrace.dev/dead-lettered-groups": "2",
    }

    assert parse(lease({"holderIdentity": "billing-shards-0-x"}, annotations=annotations)) == ShardLease(
        3, "billing-shards-0-x", 12, 5, 2
    )


@pytest.mark.parametrize("label", ["", "-1", "x", "٣"])
def test_a_lease_of_somebody_else_is_none_of_a_shard(label: str) -> None:
    assert parse(lease(labels={"millrace.dev/shard": label})) is None
    assert parse({"metadata": {}}) is None


@pytest.mark.parametrize("text", ["", "many", "-1", "1.5", "9" * 40, "٣"])
def test_a_count_that_cannot_be_read_is_0(text: str) -> None:
    assert parse(lease(annotations={"millrace.dev/epoch": text})) == ShardLease(3)
