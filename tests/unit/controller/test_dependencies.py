"""Which Subscriptions an event about a topic or a Deployment is news to."""

from __future__ import annotations

from typing import Any

from millrace.controller.dependencies import Dependencies
from millrace.controller.inventory import Inventory, Key

TOPIC: Key = ("compositetopics", "shop", "orders")


def subscription(namespace: str, name: str, /, **reference: str) -> tuple[Key, dict[str, Any]]:
    body = {"metadata": {"namespace": namespace, "name": name}, "spec": {"topicRef": reference}}
    return ("subscriptions", namespace, name), body


def inventory() -> Inventory:
    found = Inventory()
    for key, body in (
        subscription("shop", "billing", name="orders"),
        subscription("shop", "audit", name="payments"),
        subscription("store", "abroad", name="orders", namespace="shop"),
        subscription("store", "own", name="orders"),
    ):
        found.seen(key, body)
    return found


def topic(generation: int = 1, descriptor: int | None = 1) -> dict[str, Any]:
    metadata = {"namespace": "shop", "name": "orders", "uid": "u", "generation": generation}
    return {"metadata": metadata, "status": {"descriptorGeneration": descriptor}}


def deployment(generation: int, **labels: str) -> dict[str, Any]:
    metadata = {"namespace": "shop", "name": "billing-shards-0", "generation": generation, "labels": labels}
    return {"metadata": metadata}


OURS = {"millrace.dev/subscription": "billing"}
BILLING: Key = ("subscriptions", "shop", "billing")


def test_a_topic_is_news_to_those_that_refer_to_it_in_every_namespace() -> None:
    woken = set(Dependencies(inventory()).topic(TOPIC, topic(), gone=False))

    assert woken == {BILLING, ("subscriptions", "store", "abroad")}


def test_a_topic_is_news_again_only_when_its_spec_or_its_descriptor_changed() -> None:
    dependencies = Dependencies(inventory())

    def woken(body: dict[str, Any], *, gone: bool = False) -> int:
        return len(list(dependencies.topic(TOPIC, body, gone=gone)))

    assert woken(topic()) == 2
    assert woken(topic()) == 0
    assert woken(topic(descriptor=2)) == 2
    assert woken(topic(generation=2, descriptor=2)) == 2
    assert woken(topic(generation=2, descriptor=2), gone=True) == 2
    assert woken(topic(generation=2, descriptor=2)) == 2, "one that comes back is news"


def test_a_deployment_is_told_to_its_subscription_with_whether_somebody_changed_it() -> None:
    dependencies = Dependencies(inventory())

    assert list(dependencies.deployment(deployment(1, **OURS), gone=False)) == [(BILLING, False)]
    assert list(dependencies.deployment(deployment(1, **OURS), gone=False)) == [(BILLING, False)]
    assert list(dependencies.deployment(deployment(2, **OURS), gone=False)) == [(BILLING, True)]
    assert list(dependencies.deployment(deployment(2, **OURS), gone=True)) == [(BILLING, True)]
    assert list(dependencies.deployment(deployment(1, **OURS), gone=False)) == [(BILLING, False)]


def test_a_deployment_of_somebody_else_is_news_to_nobody() -> None:
    assert list(Dependencies(inventory()).deployment(deployment(1), gone=False)) == []
