"""What tests of shards share: both event loops, and certificates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from tests.support.endpoints import Authority


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Pods run uvloop, applications that embed a consumer may not: everything holds on both."""
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The one that endpoints' certificates are of."""
    return Authority.create(tmp_path_factory.mktemp("authority"), "trusted")


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """One that nobody should trust."""
    return Authority.create(tmp_path_factory.mktemp("stranger"), "stranger")
