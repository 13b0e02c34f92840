"""A Subscription delivers while what it stands on breaks: broker, API server, nodes, pods, endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from millrace.client import Connection
from tests.e2e import cluster
from tests.e2e.subscriptions import NAME, WINDOW, Shop, judge, load
from tests.support.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.full]

CHART = Path(__file__).resolve().parents[2] / "charts" / "millrace"
DEPLOYMENT = f"{NAME}-shards-0"
CLAIM_SECONDS = 10.0


async def test_the_broker_is_killed(shop: Shop, connection: Connection) -> None:
    async with load(connection, shop, "broker") as running:
        await cluster.sandbox("kill", "pulsar")
        await cluster.sandbox("restart", "pulsar")
        await running.more(600, seconds=180)
    judge(running)


async def test_deliveries_go_on_while_the_api_server_is_away_for_longer_than_a_claim_lasts(
    shop: Shop, connection: Connection
) -> None:
    async with load(connection, shop, "apiserver") as running:
        owners = await shop.owners()
        await cluster.sandbox("kill", "kube-apiserver")
        away = time.time()
        try:
            await eventually(lambda: time.time() > away + 2 * CLAIM_SECONDS, timeout=60)
        finally:
            back = time.time()
            await cluster.sandbox("restart", "kube-apiserver")
        await running.more(300)
        late = [at for at in running.deliveries.times if away + CLAIM_SECONDS < at < back]
        assert len(late) > 300, f"only {len(late)} were delivered meanwhile"
        assert await shop.owners() == owners, "nobody could renew, so nobody may take over for that"
    judge(running, repeats_allowed=0)


def process_of(uid: str) -> int:
    """The shard's process on this machine, found by the pod's uid in its control group."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal():
            with contextlib.suppress(OSError):
                groups = (directory / "cgroup").read_text().replace("_", "-")
                if uid in groups and b"millrace.shard" in (directory / "cmdline").read_bytes():
                    found.append(int(directory.name))
    [process] = found
    return process


@contextlib.asynccontextmanager
async def stopped(process: int) -> AsyncIterator[None]:
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


async def test_an_owner_that_slept_past_its_claim_delivers_nothing_when_it_wakes(
    shop: Shop, connection: Connection
) -> None:
    async with load(connection, shop, "zombie") as running:
        sleeper = await shop.owner()
        pod = await cluster.get("pod", sleeper, shop.namespace)
        async with stopped(process_of(pod["metadata"]["uid"])):

            async def moved() -> bool:
                return await shop.owner() not in ("", sleeper)

            await eventually(moved, timeout=60)
            newest = max(running.epochs)
            await eventually(lambda: max(running.epochs) > newest, timeout=60, describe=lambda: str(running))
        await running.more(900)
    judge(running)


@pytest.mark.parametrize(
    ("prefix", "rule"),
    [
        ("errors", {"status": 500, "flap": 2}),
        ("refuses", {"status": 0, "flap": 2}),
        ("busy", {"status": 503, "flap": 2}),
    ],
)
async def test_an_endpoint_flaps(
    prefix: str, rule: dict[str, Any], shop: Shop, connection: Connection
) -> None:
    async with load(connection, shop, prefix, rate=150) as running:
        await shop.endpoint.answer({prefix: rule})
        status = rule["status"]
        await eventually(
            lambda: running.deliveries.statuses[status] > 100, timeout=60, describe=lambda: str(running)
        )
        await running.more(300)
        await shop.endpoint.answer({})
    judge(running, repeats_allowed=0)


async def test_a_group_that_takes_too_long_is_tried_again_and_holds_up_nobody(
    shop: Shop, connection: Connection
) -> None:
    slow = "slow-0005"
    await shop.endpoint.answer({slow: {"delay": 4.0}})
    async with load(connection, shop, "slow") as running:
        await eventually(
            lambda: running.verdict().repeats > 0, timeout=60, describe=lambda: f"no second try; {running}"
        )
        await running.more(600)
        await shop.endpoint.answer({})
    verdict = judge(running)
    assert verdict.repeats < 30, "only what timed out may come again"


async def test_an_owner_is_evicted(shop: Shop, connection: Connection) -> None:
    async with load(connection, shop, "evict") as running:
        evicted = await shop.owner()
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": evicted, "namespace": shop.namespace},
        }
        path = f"/api/v1/namespaces/{shop.namespace}/pods/{evicted}/eviction"
        await cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))

        async def moved() -> bool:
            return await shop.owner() not in ("", evicted)

        await eventually(moved, timeout=60)
        await running.more(600)
    # It let go in an orderly way, so what comes again is only what stood behind messages not sent yet.
    judge(running, repeats_allowed=WINDOW)


async def helm(*arguments: str, home: Path) -> None:
    places = {f"HELM_{kind}_HOME": str(home / kind) for kind in ("CACHE", "CONFIG", "DATA")}
    process = await asyncio.create_subprocess_exec(
        "helm",
        *arguments,
        *("--namespace", cluster.RELEASE_NAMESPACE, "--wait", "--timeout", "180s"),
        env={**os.environ, **places},
    )
    assert await process.wait() == 0, f"helm {arguments[0]} failed"


async def rolled(shop: Shop, level: str) -> None:
    """Wait until every pod of the shards was replaced by one that logs at this level."""

    async def told() -> bool:
        deployment = await cluster.get("deployment", DEPLOYMENT, shop.namespace)
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        return {"name": "MILLRACE_LOG_LEVEL", "value": level} in container["env"]

    await eventually(told, timeout=120)
    await cluster.kubectl(
        "rollout", "status", f"deployment/{DEPLOYMENT}", "-n", shop.namespace, "--timeout=180s"
    )


async def test_the_chart_is_upgraded_and_rolled_back(
    shop: Shop, connection: Connection, tmp_path: Path
) -> None:
    async with load(connection, shop, "upgrade") as running:
        changed = ("--reuse-values", "--set", "log.level=WARNING")
        await helm("upgrade", cluster.RELEASE, str(CHART), *changed, home=tmp_path)
        await rolled(shop, "WARNING")
        await running.more(600)
        await helm("rollback", cluster.RELEASE, home=tmp_path)
        await rolled(shop, "INFO")
        await running.more(600)
    # Nobody was killed: each of the two owners let go in an orderly way, twice.
    judge(running, repeats_allowed=4 * WINDOW)
