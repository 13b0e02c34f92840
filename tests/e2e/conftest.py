"""A namespace per test with a working PulsarConnection in it, removed with everything in Pulsar."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator

import pytest

from millrace.client import Connection
from tests.e2e import cluster


@pytest.fixture
async def namespace() -> AsyncIterator[str]:
    """Deleted at the end together with the data of its topics, so that runs do not pile up in Pulsar."""
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    await cluster.create_connected_namespace(name)
    yield name
    await cluster.remove_namespace_with_data(name)


@pytest.fixture
def connection() -> Connection:
    """How the tests themselves reach Pulsar."""
    return Connection.from_environment(os.environ)
