"""A token that rotates is picked up by the process that runs."""

from __future__ import annotations

import pytest

from millrace.api.reasons import Reason
from tests.integration.controller.places import CONNECTION, Place, good_token

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_wrong_token_is_told_and_a_good_one_is_used_without_a_restart(place: Place) -> None:
    operator = place.operator(MILLRACE_RESYNC_SECONDS="1")
    await operator.start()
    await place.connect(place.admin.credentials.admin_url)
    await place.create("orders", 2)
    await place.ready("orders")
    pid = operator.pid

    # Of the right form, and signed with another key.
    await place.set_secret("pulsar-admin", token=f"{good_token()[:-12]}AAAAAAAAAAAA")
    assert "answered 401" in await place.says("orders", Reason.UNAUTHORIZED)

    await place.set_secret("pulsar-admin", token=good_token())
    await place.ready("orders")
    await place.ready("pulsar", kind=CONNECTION)
    await place.switch("orders", 2, 4)
    assert (await place.ready("orders"))["producePointer"] == 1
    assert operator.pid == pid
    assert await operator.stop() == 0
