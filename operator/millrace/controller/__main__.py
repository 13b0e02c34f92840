"""`python -m millrace.controller`: one replica of the operator, until it must stop or loses the lead."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from contextlib import suppress

from millrace import logs
from millrace.controller import health as healths
from millrace.controller.election import Election
from millrace.controller.health import Health, WatchAudit
from millrace.controller.kube import Kube, KubeError
from millrace.controller.leading import Leader
from millrace.controller.settings import Settings, SettingsError, from_environment

logger = logging.getLogger("millrace.controller")

BEAT = 1.0


def main() -> int:
    """0 after a clean stop, 1 when the lead was lost or something broke: the pod is then restarted."""
    argparse.ArgumentParser(
        prog="python -m millrace.controller",
        description=f"{__doc__} It is set up by MILLRACE_* environment variables, which the chart writes.",
    ).parse_args()
    try:
        settings = from_environment()
    except SettingsError as error:
        print(f"millrace: {error}", file=sys.stderr)
        return 2
    logs.configure(settings.log_format, settings.log_level)
    return asyncio.run(_run(settings))


async def _run(settings: Settings) -> int:
    stopping = asyncio.Event()
    _on_signals(stopping)
    health = Health(audit=WatchAudit(grace=2 * settings.audit_seconds))
    runner = await healths.serve(health, settings.metrics_port)
    beating = asyncio.create_task(_beat(health))
    try:
        async with await Kube.connect() as kube:
            election = Election(kube, settings.lease_namespace, settings.lease_name, settings.identity)
            if await _either(election.acquire(), stopping):
                return 0
            try:
                return await _lead(settings, kube, health, election, stopping)
            finally:
                # Only now, when nothing acts any more, may another replica begin.
                await election.release()
    finally:
        beating.cancel()
        await runner.cleanup()


async def _lead(
    settings: Settings, kube: Kube, health: Health, election: Election, stopping: asyncio.Event
) -> int:
    ready = asyncio.Event()
    keeping = asyncio.create_task(election.keep(), name="lease")
    leading = asyncio.create_task(_work(settings, kube, health, ready), name="lead")
    rearming = asyncio.create_task(_rearm(ready, stopping), name="signals")
    stopped = asyncio.create_task(stopping.wait(), name="stop")
    tasks = {keeping, leading, rearming, stopped}
    try:
        await asyncio.wait({keeping, leading, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            if not task.done():
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if stopping.is_set():
        logger.info("stopped")
        return 0
    if not leading.cancelled() and (error := leading.exception()) is not None:
        logger.error("the operator cannot go on", exc_info=error)
    return 1


async def _work(settings: Settings, kube: Kube, health: Health, ready: asyncio.Event) -> None:
    cluster = settings.cluster_id
    while not cluster:
        try:
            cluster = str((await kube.read_namespace("kube-system"))["metadata"]["uid"])
        except KubeError as error:
            logger.warning("the cluster's identity cannot be looked up yet: %s", error)
            await asyncio.sleep(BEAT)
    await Leader(settings, kube, health, cluster).lead(ready)


async def _rearm(ready: asyncio.Event, stopping: asyncio.Event) -> None:
    """kopf takes the signals for itself when it starts; the order of our stop is ours."""
    await ready.wait()
    _on_signals(stopping)


def _on_signals(stopping: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)


async def _either(work: object, stopping: asyncio.Event) -> bool:
    """Wait for the work or for the order to stop; whether it was the order."""
    working = asyncio.ensure_future(work)  # type: ignore[call-overload]
    stopped = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
    for task in (working, stopped):
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return stopping.is_set()


async def _beat(health: Health) -> None:
    while True:
        health.loop_beat = health.clock()
        await asyncio.sleep(BEAT)


if __name__ == "__main__":
    sys.exit(main())
