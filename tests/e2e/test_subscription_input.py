"""What cannot work is told, and loses nothing: specs that name what is not there, messages that are odd."""

from __future__ import annotations

import pytest

from demo.cluster import DemoError, delete_with_data
from demo.endpoint import Deliveries
from millrace.client import Connection, Producer
from millrace.core.promise import PromiseChecker
from millrace.core.routing import Layout, partition_of
from millrace.pulsar.clients import blocking
from tests.e2e import cluster
from tests.e2e.subscriptions import (
    NAME,
    PULSAR_NAMESPACE,
    TOPIC,
    Shop,
    dead_letters,
    judge,
    load,
    subscription,
)
from tests.support import pulsar as support
from tests.support.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.full]


async def test_an_unknown_topic_is_told_and_waited_for(shop: Shop) -> None:
    manifest = subscription(shop.namespace, "early", url=shop.endpoint.url, topicRef={"name": "later"})
    await cluster.apply(manifest)
    await cluster.condition("early", shop.namespace, "Stalled", "TopicNotFound", kind="msub")
    await cluster.apply(cluster.composite_topic("later", shop.namespace, 2))
    await cluster.ready("early", shop.namespace, seconds=120, kind="msub")
    await delete_with_data("subscription", "early", shop.namespace)


async def test_a_missing_secret_is_named_and_waited_for(shop: Shop) -> None:
    reference = {"secretKeyRef": {"name": "api-key", "key": "value"}}
    headers = [{"name": "x-api-key", "valueFrom": reference}]
    await cluster.apply(
        subscription(shop.namespace, "keyed", url=shop.endpoint.url, delivery={"headers": headers})
    )
    status = await cluster.condition("keyed", shop.namespace, "Stalled", "SecretNotFound", kind="msub")
    assert any("api-key" in each["message"] for each in status["conditions"])
    await cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "api-key", "namespace": shop.namespace},
            "stringData": {"value": "open sesame"},
        }
    )
    await cluster.ready("keyed", shop.namespace, seconds=120, kind="msub")
    await delete_with_data("subscription", "keyed", shop.namespace)


@pytest.mark.parametrize("url", ["ftp://shop/orders", "shop:8080", "http://user:secret@shop/", "http://"])
async def test_a_url_that_is_none_is_refused_with_a_sentence(url: str, shop: Shop) -> None:
    with pytest.raises(DemoError, match="must be http://HOST or https://HOST"):
        await cluster.apply(subscription(shop.namespace, "nowhere", url=url))


async def test_messages_wait_for_an_endpoint_that_cannot_be_reached(
    shop: Shop, connection: Connection
) -> None:
    async with load(connection, shop, "reach", rate=150) as running:
        await cluster.apply(subscription(shop.namespace, url="http://nobody.invalid:81/orders"))
        await cluster.kubectl(
            *("rollout", "status", f"deployment/{NAME}-shards-0", "-n", shop.namespace, "--timeout=180s")
        )

        async def told() -> bool:
            return ((await shop.status()).get("blockedGroups") or 0) > 10

        await eventually(told, timeout=120)
        await cluster.apply(subscription(shop.namespace, url=shop.endpoint.url))
        await running.more(300, seconds=180)
    judge(running, repeats_allowed=0)


async def test_odd_messages_arrive_as_they_are_or_are_kept_as_they_are(
    shop: Shop, connection: Connection
) -> None:
    """CR and LF in a property, bytes that are no text, and a group id that fits into no request."""
    binary = bytes(range(256))
    smuggling = "harmless\r\nx-smuggled: yes\r\n\r\nPOST /rules HTTP/1.1"
    huge = "odd-" + "g" * 1_000_000
    topic = f"{shop.namespace}/{TOPIC}"
    async with await Producer.open(connection, topic, pulsar_namespace=PULSAR_NAMESPACE) as producer:
        await producer.send("odd-property", b"{}", {"note": smuggling, "Name: x\r\ny": smuggling})
        await producer.send("odd-payload", binary)
        await producer.send("odd-\r\n\N{SNOWMAN}", b"a group")
    # Ours would refuse such a group.
    status = await cluster.status(TOPIC, shop.namespace)
    place = partition_of(huge, Layout(4))
    async with support.open_client() as client:
        foreign = await blocking(
            client.create_producer, f"{status['storageTopics'][0]['topic']}-partition-{place}"
        )
        await blocking(foreign.send, b"does not fit", partition_key=huge)
        await blocking(foreign.send, b"neither does this", partition_key=huge)
    deliveries = Deliveries(shop.endpoint, PromiseChecker(), "odd-")

    async def all_came() -> bool:
        await deliveries.look()
        return len(deliveries.others) >= 3

    await eventually(all_came, timeout=60, interval=0.5, describe=lambda: str(deliveries.others))
    came = {record["group"]: record for record in deliveries.others}
    assert set(came) == {"odd-property", "odd-payload", "odd-\r\n\N{SNOWMAN}"}
    assert came["odd-payload"]["body"].encode("latin-1") == binary
    headers = came["odd-property"]["headers"]
    assert "x-smuggled" not in headers
    assert headers["ce-note"] == "harmless%0D%0Ax-smuggled:%20yes%0D%0A%0D%0APOST%20/rules%20HTTP/1.1"
    kept = await dead_letters(connection, shop.namespace, 2)
    assert [(group == huge, payload) for group, _, payload in kept] == [
        (True, b"does not fit"),
        (True, b"neither does this"),
    ]
