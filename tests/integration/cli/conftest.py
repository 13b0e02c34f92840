"""A composite topic on a broker from the environment; nothing of it is left behind."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from millrace.core.descriptor import append, initial
from millrace.core.names import descriptor_topic_name, storage_topic_name
from millrace.core.routing import Routing
from millrace.pulsar import descriptors
from millrace.pulsar.admin import Admin
from tests.support import pulsar as support

OWNER = {"millrace.dev/name": "cli-test"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = __file__.rpartition("/")[0]
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.integration)
            if not support.available():
                item.add_marker(pytest.mark.skip("PULSAR_SERVICE_URL and PULSAR_ADMIN_URL are not set"))


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    async with Admin(support.credentials()) as admin:
        yield admin


@pytest.fixture
async def composite(admin: Admin) -> AsyncIterator[str]:
    """A composite topic of two storage topics, with producers on the first: NAMESPACE/NAME."""
    name = f"cli-{uuid.uuid4().hex[:8]}"
    storage = [storage_topic_name(support.NAMESPACE, "test", name, index) for index in (0, 1)]
    where = descriptor_topic_name(support.NAMESPACE, "test", name)
    for topic, partitions in zip(storage, (2, 12), strict=True):
        await admin.create_partitioned_topic(topic, partitions, OWNER)
    await descriptors.ensure_descriptor_topic(admin, where, OWNER)
    async with support.open_client() as client:
        first = initial(f"test/{name}", Routing.SHARD_CONSISTENT, [(storage[0], 2, False)])
        await descriptors.publish(client, where, first, expected_generation=0)
        await descriptors.publish(
            client, where, append(first, [(storage[1], 12, False)]), expected_generation=1
        )
    yield f"test/{name}"
    await support.remove(admin, where, *storage)
