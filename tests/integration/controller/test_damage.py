"""What others do to our topics in Pulsar: mended where that is safe, and told where it is not.

The operator compares every second here; by default it does so every ten minutes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from millrace.api.reasons import ConditionType, Reason
from millrace.pulsar.admin import Retention
from millrace.pulsar.descriptors import COMPACTION_THRESHOLD
from millrace.pulsar.errors import NotFound
from tests.integration.controller.places import Manifest, Place, condition
from tests.support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def comparing_often(place: Place) -> AsyncIterator[None]:
    operator = place.operator(MILLRACE_RESYNC_SECONDS="1")
    await operator.start()
    await place.connect(place.admin.credentials.admin_url)
    await operator.leads()
    yield
    assert (await operator.metrics())["millrace_reconciles_total{outcome=error}"] == 0, operator.last_words()
    assert await operator.stop() == 0


async def test_settings_that_somebody_changed_are_put_right(place: Place) -> None:
    admin = place.admin
    await place.create("drifting", 2, retention={"time": "1d"})
    await place.ready("drifting")
    topic, descriptor = place.storage_topic("drifting", 0), place.descriptor_topic("drifting")
    declared = Retention(minutes=24 * 60, megabytes=-1)

    async def settings() -> tuple[object, ...]:
        return (
            await admin.get_retention(topic),
            await admin.inactive_policy(topic),
            await admin.deduplication(topic),
            await admin.inactive_policy(descriptor),
            await admin.compaction_threshold(descriptor),
        )

    right = (declared, False, True, False, COMPACTION_THRESHOLD)
    assert await settings() == right
    await admin.set_retention(topic, Retention(minutes=60, megabytes=-1))
    await admin.set_inactive_policy(topic, deletes=True)
    await admin.set_deduplication(topic, enabled=False)
    await admin.set_inactive_policy(descriptor, deletes=True)
    await admin.set_compaction_threshold(descriptor, 1)

    async def put_right() -> bool:
        return await settings() == right

    await eventually(put_right, timeout=60, interval=0.25)
    await place.ready("drifting")
    assert (await place.descriptor("drifting")).generation == 1


async def test_a_storage_topic_that_producers_have_not_reached_is_created_again(place: Place) -> None:
    await place.create("spare", 2, 4)
    await place.ready("spare")
    await place.admin.delete_partitioned_topic(place.storage_topic("spare", 1), force=True)

    async def back() -> bool:
        try:
            return (await place.admin.partitioned_topic(place.storage_topic("spare", 1))).partitions == 4
        except NotFound:
            return False

    await eventually(back, timeout=60, interval=0.25)
    await place.ready("spare")


async def test_a_storage_topic_that_held_data_is_not_created_again_silently(place: Place) -> None:
    await place.create("lost", 2)
    await place.ready("lost")
    topic = place.storage_topic("lost", 0)
    await place.admin.delete_partitioned_topic(topic, force=True)
    assert f"{topic} was published and is gone" in await place.says("lost", Reason.TOPIC_VANISHED)
    with pytest.raises(NotFound):
        await place.admin.partitioned_topic(topic)


async def test_a_partition_that_somebody_terminated_is_told_and_a_switch_leads_on(place: Place) -> None:
    await place.create("closed", 2)
    await place.ready("closed")
    await place.admin.terminate(f"{place.storage_topic('closed', 0)}-partition-1")
    await place.says("closed", Reason.TERMINATED_OUTSIDE)
    await place.switch("closed", 2, 4)
    assert (await place.ready("closed"))["producePointer"] == 1


async def test_a_namespace_that_expires_messages_puts_data_at_risk_until_it_no_longer_does(
    place: Place,
) -> None:
    def at_risk(found: Manifest) -> bool:
        return bool(condition(found.get("status", {}), ConditionType.DATA_AT_RISK).get("status") == "True")

    def safe(found: Manifest) -> bool:
        return bool(condition(found.get("status", {}), ConditionType.DATA_AT_RISK).get("status") == "False")

    await place.create("expiring", 2)
    await place.ready("expiring")
    await place.status_when("expiring", "safe", safe, within=30)

    namespace = f"namespaces/{place.pulsar_namespace}"
    await place.ask_admin("POST", f"{namespace}/messageTTL", 3600)
    status = await place.status_when("expiring", "at risk", at_risk, within=60)
    told = condition(status, ConditionType.DATA_AT_RISK)
    assert told["reason"] == Reason.NAMESPACE_TTL
    assert f"{place.pulsar_namespace} expires messages after 3600 s" in told["message"]
    assert condition(status, ConditionType.READY)["status"] == "True", "it works all the same"
    assert Reason.NAMESPACE_TTL in await place.events("expiring")

    await place.ask_admin("DELETE", f"{namespace}/messageTTL")
    await place.status_when("expiring", "safe again", safe, within=60)
