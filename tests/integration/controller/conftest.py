"""The operator as a process against a real API server and a real Pulsar, one place for each module."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from kubernetes import client

from tests.integration.controller.adminproxy import AdminProxy
from tests.integration.controller.places import Place, open_place
from tests.support import pulsar as support


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = __file__.rpartition("/")[0]
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.integration)
            if not support.available():
                item.add_marker(pytest.mark.skip("PULSAR_SERVICE_URL and PULSAR_ADMIN_URL are not set"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(
    api_client: client.ApiClient,
    definitions: client.ApiextensionsV1Api,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Place]:
    async with open_place(api_client, tmp_path_factory.mktemp("operators")) as place:
        yield place


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy() -> AsyncIterator[AdminProxy]:
    """Faults between the operator and Pulsar's admin API."""
    async with AdminProxy(support.credentials()) as proxy:
        yield proxy
