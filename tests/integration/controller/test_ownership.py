"""Whose a topic is: what is adopted, what is left alone, and what an older form of an object is told."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from millrace.api import FINALIZER
from millrace.api.reasons import Reason
from millrace.core.ownership import ADOPTED, NAME, Owner, owner_properties
from millrace.core.routing import Routing
from millrace.pulsar.errors import NotFound
from tests.integration.controller.operators import Operator
from tests.integration.controller.places import Place
from tests.support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

THEIRS = owner_properties(Owner("another-cluster", "shop", "orders", "their-uid"))


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def operator(place: Place) -> AsyncIterator[Operator]:
    operator = place.operator()
    await operator.start()
    await place.connect(place.admin.credentials.admin_url)
    await operator.leads()
    yield operator
    assert (await operator.metrics())["millrace_reconciles_total{outcome=error}"] == 0, operator.last_words()
    assert await operator.stop() == 0


async def existing_topic(place: Place, local: str, properties: dict[str, str]) -> str:
    topic = f"persistent://{place.pulsar_namespace}/{local}"
    assert await place.admin.create_partitioned_topic(topic, 2, properties)
    return topic


def named(local: str, *, adopt: bool = False) -> list[dict[str, object]]:
    return [{"partitions": 2, "topicName": local, "adopt": adopt}]


async def test_a_topic_that_nobody_owns_is_taken_over_only_when_asked(place: Place) -> None:
    topic = await existing_topic(place, "bare", {})
    await place.create("uninvited", storageTopics=named("bare"))
    assert topic in await place.says("uninvited", Reason.TOPIC_EXISTS)
    assert (await place.admin.partitioned_topic(topic)).properties == {}

    await place.create("invited", storageTopics=named("bare", adopt=True))
    status = await place.ready("invited")
    assert status["storageTopics"][0]["routing"] == "ShardConsistent", "it was empty"
    properties = (await place.admin.partitioned_topic(topic)).properties
    assert (properties[NAME], properties[ADOPTED]) == ("invited", "true")
    assert await place.admin.inactive_policy(topic) is False

    # Now that it has an owner, it is no longer anybody's.
    await place.create("too-late", storageTopics=named("bare", adopt=True))
    assert f"{place.namespace}/invited" in await place.says("too-late", Reason.FOREIGN_OWNER)


async def test_what_was_in_an_adopted_topic_is_read_but_not_added_to(place: Place) -> None:
    topic = await existing_topic(place, "full", {})
    written = await place.write(topic, 2, each=3)
    await place.create("heir", storageTopics=named("full", adopt=True))
    status = await place.ready("heir")
    assert status["storageTopics"][0]["routing"] == "Unknown"
    assert (await place.descriptor("heir")).produce_topic.layout.routing is Routing.UNKNOWN

    grown = [*named("full", adopt=True), {"partitions": 4}]
    await place.patch("heir", storageTopics=grown, producePointer=1)
    await place.ready("heir")
    descriptor = await place.descriptor("heir")
    assert descriptor.produce_topic.layout.routing is Routing.SHARD_CONSISTENT
    assert descriptor.storage_topics[0].sealed == (written[0][-1], written[1][-1])


async def test_an_adopted_topic_is_never_deleted(place: Place) -> None:
    topic = await existing_topic(place, "precious", {})
    await place.write(topic, 2, each=3)
    storage = [*named("precious", adopt=True), {"partitions": 4}]
    await place.create("brief", storageTopics=storage, deletionPolicy="Delete")
    await place.ready("brief")
    created = place.storage_topic("brief", 1)
    assert (await place.admin.partitioned_topic(created)).partitions == 4
    assert (await place.get("brief"))["metadata"]["finalizers"] == [FINALIZER]
    await place.delete("brief")

    async def gone() -> bool:
        return not await place.exists("brief")

    await eventually(gone, timeout=60)
    assert (await place.admin.partitioned_topic(topic)).partitions == 2
    assert (await place.admin.internal_stats(f"{topic}-partition-0")).entries == 3
    for vanished in (created, place.descriptor_topic("brief")):
        with pytest.raises(NotFound):
            await place.admin.properties(vanished)


async def test_a_topic_of_another_cluster_is_left_alone(place: Place) -> None:
    topic = await existing_topic(place, "theirs", THEIRS)
    await place.create("intruder", storageTopics=named("theirs", adopt=True), deletionPolicy="Delete")
    message = await place.says("intruder", Reason.FOREIGN_OWNER)
    assert f"{topic} belongs to shop/orders of cluster another-cluster" in message
    await place.delete("intruder")

    async def gone() -> bool:
        return not await place.exists("intruder")

    await eventually(gone, timeout=60)
    assert (await place.admin.partitioned_topic(topic)).properties == THEIRS
    assert await place.admin.inactive_policy(topic) is None


async def test_a_verdict_that_stands_makes_no_noise_when_it_is_looked_at_again(
    place: Place, operator: Operator
) -> None:
    await existing_topic(place, "watched", THEIRS)
    await place.create("noisy", storageTopics=named("watched"))
    await place.says("noisy", Reason.FOREIGN_OWNER)
    before, events = (await place.get("noisy"))["status"], await place.events("noisy")
    assert [event for event in events if event == Reason.FOREIGN_OWNER] == [Reason.FOREIGN_OWNER]

    async def looks() -> float:
        return (await operator.metrics())["millrace_reconciles_total{kind=CompositeTopic}"]

    for number in range(3):
        already = await looks()
        await place.annotate("noisy", **{"looked-at": str(number)})

        async def looked_again(already: float = already) -> bool:
            return await looks() > already

        await eventually(looked_again)
    assert (await place.get("noisy"))["status"] == before
    assert await place.events("noisy") == events


async def test_a_pulsar_namespace_that_the_connection_does_not_list_is_out_of_bounds(place: Place) -> None:
    await place.create("trespasser", 2, pulsarNamespace="public/default")
    message = await place.says("trespasser", Reason.NAMESPACE_NOT_ALLOWED)
    assert f"does not list public/default, only {place.pulsar_namespace}" in message
    there = await place.admin.topics("public/default")
    assert [topic for topic in there if place.topics_of("trespasser") in topic] == []


async def test_a_pulsar_namespace_that_does_not_exist_is_told(place: Place) -> None:
    missing = f"public/{place.namespace}-missing"
    await place.connect(
        place.admin.credentials.admin_url, "generous", pulsarNamespaces=["public/*"], isDefault=False
    )
    await place.create("homeless", 2, pulsarNamespace=missing, connectionRef={"name": "generous"})
    assert missing in await place.says("homeless", Reason.NAMESPACE_NOT_FOUND)


async def test_an_older_form_of_an_object_is_told_what_is_published(place: Place) -> None:
    await place.create("again", 2)
    await place.ready("again")
    await place.switch("again", 2, 4)
    await place.ready("again")
    published = await place.descriptor("again")
    await place.delete("again")

    await place.create("again", 2)
    message = await place.says("again", Reason.DESCRIPTOR_CONFLICT)
    assert "there are 2 storage topics, not 1" in message
    assert "producePointer is 1 already, and cannot be 0" in message
    assert await place.descriptor("again") == published

    await place.switch("again", 2, 4)
    await place.ready("again")
    assert await place.descriptor("again") == published
    uid = (await place.get("again"))["metadata"]["uid"]
    for index in (0, 1):
        there = await place.admin.partitioned_topic(place.storage_topic("again", index))
        assert uid in there.properties.values()
