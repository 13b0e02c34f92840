from __future__ import annotations

from typing import Any

import pytest

from millrace.pulsar.risks import RiskKind, assess

EVICTION = "consumer_backlog_eviction"
HOLD = "producer_request_hold"


def kinds(policies: dict[str, Any], defaults: dict[str, str] | None = None) -> list[RiskKind]:
    return [risk.kind for risk in assess("t/ns", policies, defaults or {})]


def test_a_namespace_with_no_policies_is_no_risk() -> None:
    assert kinds({}) == []


@pytest.mark.parametrize(
    ("own", "default", "risky"),
    [
        (60, None, True),
        (0, "60", False),
        (None, "60", True),
        (None, "0", False),
        (None, "", False),
        (-1, None, False),
    ],
)
def test_the_namespaces_own_ttl_wins_over_the_brokers(
    own: int | None, default: str | None, risky: bool
) -> None:
    defaults = {} if default is None else {"ttlDurationDefaultInSeconds": default}
    assert (RiskKind.MESSAGE_TTL in kinds({"message_ttl_in_seconds": own}, defaults)) is risky


def test_an_idle_subscription_that_is_deleted_is_a_risk() -> None:
    assert kinds({"subscription_expiration_time_minutes": 5}) == [RiskKind.SUBSCRIPTION_EXPIRATION]
    assert kinds({}, {"subscriptionExpirationTimeMinutes": "5"}) == [RiskKind.SUBSCRIPTION_EXPIRATION]


def test_a_backlog_that_is_evicted_is_a_risk_and_one_that_holds_producers_is_none() -> None:
    assert kinds({"backlog_quota_map": {"message_age": {"policy": EVICTION}}}) == [RiskKind.BACKLOG_EVICTION]
    assert kinds({"backlog_quota_map": {"destination_storage": {"policy": HOLD}}}) == []


def test_the_brokers_eviction_counts_only_with_a_limit_and_without_a_policy_of_the_namespace() -> None:
    evicting = {"backlogQuotaDefaultRetentionPolicy": EVICTION}
    assert kinds({}, evicting) == []
    assert kinds({}, evicting | {"backlogQuotaDefaultLimitGB": "10.0"}) == [RiskKind.BACKLOG_EVICTION]
    own = {"backlog_quota_map": {"destination_storage": {"policy": HOLD}}}
    assert kinds(own, evicting | {"backlogQuotaDefaultLimitGB": "10.0"}) == []


def test_brokers_that_acknowledge_only_whole_batches_are_shown() -> None:
    assert kinds({}, {"acknowledgmentAtBatchIndexLevelEnabled": "false"}) == [RiskKind.BATCH_INDEX_ACK_OFF]


def test_a_message_says_where_and_what_to_do() -> None:
    (risk,) = assess("t/ns", {"message_ttl_in_seconds": 60}, {})
    assert risk.message.startswith("t/ns expires messages after 60 s")
    assert "set the namespace's message TTL to 0" in risk.message
