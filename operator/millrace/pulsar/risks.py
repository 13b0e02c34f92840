"""What a namespace or a broker does behind our back that can destroy data we promised to keep.

Deleting inactive topics is not among these: our topics override it for themselves. The rest cannot, or
should not, be overridden by us (an administrator wanted it), so it is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from millrace.pulsar.admin import Admin
from millrace.pulsar.errors import Forbidden, Rejected, Unauthorized


class RiskKind(StrEnum):
    """The closed set of dangers."""

    MESSAGE_TTL = "MessageTTL"
    BACKLOG_EVICTION = "BacklogEviction"
    SUBSCRIPTION_EXPIRATION = "SubscriptionExpiration"
    BATCH_INDEX_ACK_OFF = "BatchIndexAckOff"


@dataclass(frozen=True, slots=True)
class Risk:
    """One danger, with a sentence for the condition."""

    kind: RiskKind
    message: str


async def namespace_risks(
    admin: Admin, pulsar_namespace: str, broker_defaults: Mapping[str, str] | None = None
) -> tuple[Risk, ...]:
    """The dangers in one namespace. Pass `broker_defaults` to save the second of two calls."""
    policies = await admin.namespace_policies(pulsar_namespace)
    if broker_defaults is None:
        broker_defaults = await read_broker_defaults(admin)
    return assess(pulsar_namespace, policies, broker_defaults)


async def read_broker_defaults(admin: Admin) -> Mapping[str, str]:
    """The brokers' effective configuration; empty where we may not see it. Worth keeping for a while."""
    try:
        return await admin.runtime_configuration()
    except (Forbidden, Unauthorized, Rejected):
        return {}


def assess(namespace: str, policies: Mapping[str, Any], defaults: Mapping[str, str]) -> tuple[Risk, ...]:
    """Judge the policies; a namespace's own value wins over the brokers' default."""
    risks = []
    ttl = _number(policies.get("message_ttl_in_seconds"), defaults.get("ttlDurationDefaultInSeconds"))
    if ttl > 0:
        risks.append(
            Risk(
                RiskKind.MESSAGE_TTL,
                f"{namespace} expires messages after {ttl} s even if nobody received them; "
                "set the namespace's message TTL to 0",
            )
        )
    for quota, policy in sorted(_backlog_policies(policies, defaults).items()):
        if policy == "consumer_backlog_eviction":
            risks.append(
                Risk(
                    RiskKind.BACKLOG_EVICTION,
                    f"{namespace} drops the oldest unread messages when the backlog reaches its {quota} "
                    "limit; use the policy producer_request_hold or producer_exception",
                )
            )
    expiration = _number(
        policies.get("subscription_expiration_time_minutes"),
        defaults.get("subscriptionExpirationTimeMinutes"),
    )
    if expiration > 0:
        risks.append(
            Risk(
                RiskKind.SUBSCRIPTION_EXPIRATION,
                f"{namespace} deletes subscriptions that are idle for {expiration} min, and with them what "
                "they have not read; set the namespace's subscription expiration time to 0",
            )
        )
    if defaults.get("acknowledgmentAtBatchIndexLevelEnabled") == "false":
        risks.append(
            Risk(
                RiskKind.BATCH_INDEX_ACK_OFF,
                "the brokers acknowledge whole batches only, so that more is repeated after a fault; set "
                "acknowledgmentAtBatchIndexLevelEnabled=true",
            )
        )
    return tuple(risks)


def _backlog_policies(policies: Mapping[str, Any], defaults: Mapping[str, str]) -> dict[str, str]:
    """The eviction policy per sort of limit, where there is a limit."""
    fallback = defaults.get("backlogQuotaDefaultRetentionPolicy", "")
    found = {}
    limited = any(
        float(defaults.get(name) or -1) > 0
        for name in ("backlogQuotaDefaultLimitBytes", "backlogQuotaDefaultLimitGB")
    )
    if limited:
        found["destination_storage"] = fallback
    if float(defaults.get("backlogQuotaDefaultLimitSecond") or -1) > 0:
        found["message_age"] = fallback
    for sort, quota in (policies.get("backlog_quota_map") or {}).items():
        found[sort] = str(quota.get("policy"))
    return found


def _number(own: Any, default: str | None) -> int:
    if own is not None:
        return int(own)
    return int(default) if default and default.lstrip("-").isdigit() else 0
