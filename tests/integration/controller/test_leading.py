"""Two replicas and one Lease: who leads when the leader is killed, told to stop, or frozen."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from kubernetes import client

from millrace.controller.election import Timing
from tests.integration.controller.apiproxy import ApiProxy
from tests.integration.controller.operators import Operator
from tests.integration.controller.places import Place

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEASE = Timing().lease
SOONEST_WITHOUT_RELEASE = LEASE - Timing().interval
"""A leader renews this often, so the Lease may be this old when it dies."""
MARGIN = 45.0
"""For a busy machine; what must not happen is that nobody leads for good."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def connected(place: Place) -> Place:
    await place.connect(place.admin.credentials.admin_url)
    return place


@asynccontextmanager
async def two_replicas(
    place: Place, lease: str, **of_the_leader: str
) -> AsyncIterator[tuple[Operator, Operator]]:
    """A leader and a standby with a Lease of their own."""
    leader = place.operator(f"{lease}-0", lease=lease, **of_the_leader)
    standby = place.operator(f"{lease}-1", lease=lease)
    await leader.start()
    await leader.leads()
    await standby.start()
    await standby.stands_by()
    try:
        yield leader, standby
    finally:
        await leader.kill()
        await standby.stop()


async def test_a_standby_leads_within_the_lease_time_after_the_leader_was_killed(connected: Place) -> None:
    async with two_replicas(connected, "killed") as (leader, standby):
        assert (await standby.probe("/healthz"))[0] == (await standby.probe("/readyz"))[0] == 200
        assert (await standby.metrics())["millrace_leading"] == 0
        await leader.kill()
        began = time.monotonic()
        await connected.create("after-a-kill", 2)
        await connected.ready("after-a-kill", within=LEASE + MARGIN)
        # Sooner would mean that a leader which is only slow could be overtaken.
        assert time.monotonic() - began > SOONEST_WITHOUT_RELEASE - 1
        assert (await standby.metrics())["millrace_leading"] == 1


async def test_a_leader_that_is_told_to_stop_hands_over_at_once(connected: Place) -> None:
    async with two_replicas(connected, "stopped") as (leader, standby):
        assert await connected.leader("stopped") == leader.identity
        assert await leader.stop() == 0
        # Nobody's already, or the other's: it need not expire.
        assert await connected.leader("stopped") in ("", standby.identity)
        await standby.leads(within=LEASE + MARGIN)
        assert await connected.leader("stopped") == standby.identity
        await connected.create("after-a-stop", 2)
        await connected.ready("after-a-stop")
        assert await standby.stop() == 0


async def test_a_leader_that_was_frozen_past_its_lease_stops_itself_and_writes_nothing(
    connected: Place, api_client: client.ApiClient
) -> None:
    async with (
        ApiProxy(connected.directory, api_client.configuration) as api,
        two_replicas(connected, "frozen", KUBECONFIG=str(api.kubeconfig)) as (leader, standby),
    ):
        await connected.create("before-the-frost", 2)
        await connected.ready("before-the-frost")
        assert [write for write in api.writes if write.path.endswith("/status")], "it wrote as the leader"

        leader.signal(signal.SIGSTOP)
        await connected.create("during-the-frost", 2)
        await connected.ready("during-the-frost", within=LEASE + MARGIN)
        await connected.switch("before-the-frost", 2, 4)
        await connected.ready("before-the-frost")
        thawed = time.monotonic()
        leader.signal(signal.SIGCONT)

        assert await leader.ended() == 1
        assert [write for write in api.writes if write.at > thawed and write.status < 300] == []
        assert (await standby.metrics())["millrace_leading"] == 1
