"""The whole of Pulsar goes away in the middle of the work, and comes back."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess

import pytest

from millrace.pulsar.clients import blocking
from tests.integration.controller.adminproxy import AdminProxy, Interrupt
from tests.integration.controller.places import Place

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.full,
    pytest.mark.skipif(
        "PULSAR_RESTART_COMMAND" not in os.environ, reason="no command that restarts the broker"
    ),
]


async def test_a_switch_goes_on_after_pulsar_was_restarted_in_the_middle_of_it(
    place: Place, proxy: AdminProxy
) -> None:
    operator = place.operator()
    await operator.start()
    await place.connect(proxy.url)
    await place.create("orders", 2)
    await place.ready("orders")
    written = await place.write(place.storage_topic("orders", 0), 2, each=10)
    pid = operator.pid
    restarting: list[asyncio.Task[object]] = []

    async def restart() -> None:
        command = shlex.split(os.environ["PULSAR_RESTART_COMMAND"])
        restarting.append(asyncio.create_task(blocking(subprocess.run, command, check=True)))

    # One partition is terminated and the other is not, or not yet.
    proxy.rule("/terminate", Interrupt(restart, after=True), times=1)
    await place.switch("orders", 2, 4)
    status = await place.ready("orders", within=240)
    assert restarting, "it was never restarted"
    await restarting[0]
    assert status["producePointer"] == 1
    sealed = (await place.descriptor("orders")).storage_topics[0].sealed or ()
    assert [entries[-1] for entries in written.values()] == list(sealed)
    assert operator.pid == pid
    assert (await operator.metrics())["millrace_reconciles_total{outcome=error}"] == 0, operator.last_words()
    assert await operator.stop() == 0
