"""What the probes and the metrics of a real replica say, also when its watch is dead and nothing else is."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from kubernetes import client

from millrace.api.reasons import Reason
from tests.integration.controller.adminproxy import AdminProxy, Answer
from tests.integration.controller.apiproxy import ApiProxy
from tests.integration.controller.operators import Operator
from tests.integration.controller.places import Place
from tests.support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

DOCUMENTED = (
    "millrace_leading",
    "millrace_reconciles_total",
    "millrace_reconcile_seconds_count",
    "millrace_queue_wait_seconds_count",
    "millrace_pulsar_admin_calls_total",
    "millrace_pulsar_admin_call_seconds_count",
    "millrace_api_server_calls_total",
    "process_resident_memory_bytes",
    "process_open_fds",
    "python_info",
)
STANDING_AT_ZERO = ("millrace_queue_depth", "millrace_workers_busy", "millrace_watch_missed_total")
"""On a replica that has nothing to do and is well."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(place: Place, api_client: client.ApiClient) -> AsyncIterator[ApiProxy]:
    async with ApiProxy(place.directory, api_client.configuration) as api:
        yield api


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(place: Place, proxy: AdminProxy, api: ApiProxy) -> Operator:
    operator = place.operator(KUBECONFIG=str(api.kubeconfig), MILLRACE_AUDIT_SECONDS="1")
    await operator.start()
    await place.connect(proxy.url)
    await operator.leads()
    return operator


async def test_the_documented_series_are_there_once_work_was_done(place: Place, operator: Operator) -> None:
    await place.create("orders", 2)
    await place.ready("orders")

    async def at_rest() -> bool:
        metrics = await operator.metrics()
        return metrics["millrace_workers_busy"] == 0 and metrics["millrace_queue_depth"] == 0

    await eventually(at_rest)
    metrics = await operator.metrics()
    assert [name for name in DOCUMENTED if not metrics[name] > 0] == []
    assert [name for name in STANDING_AT_ZERO if metrics[name] != 0] == []
    assert metrics["millrace_reconciles_total{kind=CompositeTopic}"] >= 1
    assert metrics["millrace_reconciles_total{kind=PulsarConnection}"] >= 1
    assert metrics["millrace_reconciles_total{outcome=done}"] >= 2
    assert metrics["millrace_pulsar_admin_calls_total{operation=create_partitioned_topic}"] == 1
    assert metrics["millrace_pulsar_admin_calls_total{status=204}"] > 0
    assert metrics["millrace_api_server_calls_total{verb=patch-status}"] > 0


async def test_a_pulsar_that_is_away_does_not_make_the_operator_unwell(
    place: Place, operator: Operator, proxy: AdminProxy
) -> None:
    rule = proxy.rule("", Answer(403))
    await place.create("unlucky", 2)
    await place.says("unlucky", Reason.FORBIDDEN)
    assert (await operator.probe("/healthz"))[0] == (await operator.probe("/readyz"))[0] == 200
    assert (await operator.metrics())["millrace_pulsar_admin_calls_total{status=403}"] > 0
    rule.end()
    await place.ready("unlucky")


async def test_a_dead_watch_makes_the_operator_unwell_though_the_api_server_answers(
    place: Place, operator: Operator, api: ApiProxy
) -> None:
    assert await operator.probe("/healthz") == (200, "ok\n")
    api.silence_watches()
    await place.create("unseen", 2)

    async def unwell() -> bool:
        return (await operator.probe("/healthz"))[0] == 503

    await eventually(unwell, timeout=60, describe=operator.last_words)
    said = f"the watch has not shown a change of compositetopics {place.namespace}/unseen"
    assert said in (await operator.probe("/healthz"))[1]
    assert said in (await operator.probe("/readyz"))[1]
    assert (await operator.metrics())["millrace_watch_missed_total{kind=CompositeTopic}"] > 0
    assert "status" not in await place.get("unseen")

    # What the kubelet does then is the cure.
    await operator.kill()
    api.let_watches_flow()
    await operator.start()
    await place.ready("unseen")
    assert await operator.probe("/healthz") == (200, "ok\n")
    assert await operator.stop() == 0
