"""`python -m millrace.shard`: a pod of a Subscription. It claims a shard or stands by, until told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from pathlib import Path

import uvloop
from prometheus_client import REGISTRY

from millrace import logs
from millrace.consuming.owning import Consuming
from millrace.consuming.terms import Clients
from millrace.core.errors import DomainError
from millrace.core.shardconfig import CONFIG_FILE, ShardConfig
from millrace.pulsar.clients import blocking, connect
from millrace.pulsar.errors import PulsarError
from millrace.shard import leases, metrics, pods
from millrace.shard.deliveries import HttpDeliverer
from millrace.shard.leases import LeaseClaims

logger = logging.getLogger("millrace.shard")

BEAT = 1.0


def main() -> int:
    """0 after a clean stop; 2 if what the pod is told cannot be used."""
    argparse.ArgumentParser(
        prog="python -m millrace.shard",
        description=f"{__doc__} It reads what the operator writes: {CONFIG_FILE}, or what MILLRACE_CONFIG "
        "names. MILLRACE_POD_NAME and MILLRACE_POD_UID say which pod it is.",
    ).parse_args()
    logs.configure(
        os.environ.get("MILLRACE_LOG_FORMAT", "json"), os.environ.get("MILLRACE_LOG_LEVEL", "INFO")
    )
    file = Path(os.environ.get("MILLRACE_CONFIG", CONFIG_FILE))
    try:
        config = ShardConfig.from_json(file.read_bytes())
        credentials = pods.credentials(config.pulsar)
    except (OSError, DomainError, PulsarError) as error:
        logger.error("%s: %s", file, error)
        return 2
    logs.OBJECT.set(f"Subscription {config.namespace}/{config.name}")
    clients = Clients(reading=connect(credentials), writing=connect(credentials))
    return uvloop.run(_run(config, clients))


async def _run(config: ShardConfig, clients: Clients) -> int:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    beat = metrics.Beat()
    beating = asyncio.create_task(_beat(beat))
    runner = await metrics.serve(beat, int(os.environ.get("MILLRACE_METRICS_PORT", "8080")))
    try:
        async with leases.connect(config.namespace) as connected:
            claims = LeaseClaims(
                connected,
                config,
                identity=os.environ.get("MILLRACE_POD_NAME") or os.uname().nodename,
                uid=os.environ.get("MILLRACE_POD_UID", ""),
                counts=lambda: consuming.blocked(),  # noqa: PLW0108 - it is made below
            )
            consuming = Consuming(
                claims,
                clients,
                lambda shard: pods.settings(config, shard),
                lambda _, epoch: HttpDeliverer(
                    config.delivery, config.topic, epoch, config.retry.hard_failure_codes
                ),
            )
            REGISTRY.register(metrics.ShardCollector(consuming))
            await consuming.run(stopping)
    finally:
        beating.cancel()
        await runner.cleanup()
        for client in (clients.reading, clients.writing):
            await blocking(client.close)
    logger.info("stopped")
    return 0


async def _beat(beat: metrics.Beat) -> None:
    while True:
        beat.at = time.monotonic()
        await asyncio.sleep(BEAT)


if __name__ == "__main__":
    sys.exit(main())
