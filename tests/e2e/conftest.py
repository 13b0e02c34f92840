"""A namespace per test or module with a working PulsarConnection, removed with everything in Pulsar."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from millrace.client import Connection
from tests.e2e import cluster
from tests.e2e.subscriptions import Shop, open_shop


@pytest.fixture
async def namespace() -> AsyncIterator[str]:
    """Deleted at the end together with the data of its topics, so that runs do not pile up in Pulsar."""
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    await cluster.create_connected_namespace(name)
    yield name
    await cluster.remove_namespace_with_data(name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop() -> AsyncIterator[Shop]:
    """A Subscription at work, for all tests of a module: each has groups of its own."""
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    await cluster.create_connected_namespace(name)
    try:
        yield await open_shop(name, 4)
    finally:
        await cluster.remove_namespace_with_data(name)


@pytest.fixture
def connection() -> Connection:
    """How the tests themselves reach Pulsar."""
    return Connection.from_environment(os.environ)
