"""A real Pulsar for tests, found through the environment: credentials, fresh names.

`python -m sandbox env` prints the variables; without them the tests that need a broker are skipped.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pulsar

from millrace.pulsar.admin import Admin
from millrace.pulsar.clients import blocking, connect
from millrace.pulsar.credentials import Credentials, from_environment
from millrace.pulsar.errors import NotFound

NAMESPACE = os.environ.get("PULSAR_NAMESPACE", "public/default")


def available() -> bool:
    return "PULSAR_SERVICE_URL" in os.environ and "PULSAR_ADMIN_URL" in os.environ


def credentials() -> Credentials:
    return from_environment()


def fresh_topic(purpose: str = "test", namespace: str = NAMESPACE) -> str:
    """A full topic name that nobody else has."""
    return f"persistent://{namespace}/{purpose}-{uuid.uuid4().hex[:12]}"


@asynccontextmanager
async def open_client(
    of: Credentials | None = None, *, operation_timeout: float = 30.0
) -> AsyncIterator[pulsar.Client]:
    client = connect(of or credentials(), operation_timeout=operation_timeout)
    try:
        yield client
    finally:
        await blocking(client.close)


async def remove(admin: Admin, *topics: str) -> None:
    """Delete whatever of these there is, partitioned or not, in use or not."""
    for topic in topics:
        try:
            await admin.partitioned_topic(topic)
        except NotFound:
            await admin.delete_topic(topic, force=True)
        else:
            await admin.delete_partitioned_topic(topic, force=True)
