"""A broker from the environment; every test has topics of its own and leaves none behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pulsar
import pytest

from millrace.pulsar.admin import Admin
from tests.support import pulsar as support

Fresh = Callable[[], str]


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
async def client() -> AsyncIterator[pulsar.Client]:
    async with support.open_client() as client:
        yield client


@pytest.fixture
async def fresh(admin: Admin) -> AsyncIterator[Fresh]:
    """Gives names of topics that do not exist yet; whatever becomes of them is removed afterwards."""
    given: list[str] = []

    def name() -> str:
        given.append(support.fresh_topic())
        return given[-1]

    yield name
    await support.remove(admin, *given)


@pytest.fixture
def topic(fresh: Fresh) -> str:
    return fresh()
