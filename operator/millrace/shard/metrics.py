"""What a shard tells of itself: metrics, and whether it is alive and ready.

Ready means owner or standby: a rollout must not wait for a shard to become free. Alive means that the event
loop turns; whether Pulsar or the endpoint are there is told by conditions and metrics, not by a restart.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from aiohttp import web
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from millrace.consuming.flow import Flow
from millrace.consuming.owning import Consuming

LONGEST_BEAT = 60.0


class ShardCollector(Collector):
    """Reads the counters of the present term when asked; those of former terms are added up."""

    def __init__(self, consuming: Consuming) -> None:
        self._consuming = consuming
        self._flow: Flow | None = None
        self._counted: Counter[str] = Counter()
        self._total: Counter[str] = Counter()

    def collect(self) -> Iterator[Metric]:
        """Everything, as of now."""
        term = self._consuming.term
        flow = None if term is None else term.flow
        if flow is not self._flow:
            self._flow, self._counted = flow, Counter()
        if flow is not None:
            self._total.update(flow.counts - self._counted)
            self._counted = flow.counts.copy()
        messages = CounterMetricFamily(
            "millrace_shard_messages", "Messages, by what became of them.", labels=["outcome"]
        )
        for outcome in (
            "delivered",
            "redelivered",
            "failed",
            "refused",
            "filtered",
            "retried",
            "dead_lettered",
        ):
            messages.add_metric([outcome], self._total[outcome])
        yield messages
        shard = "" if self._consuming.shard is None else str(self._consuming.shard)
        owner = GaugeMetricFamily(
            "millrace_shard_epoch",
            "The epoch of the shard that this pod delivers; 0: none.",
            labels=["shard"],
        )
        owner.add_metric([shard], term.epoch if term is not None and term.delivering else 0)
        yield owner
        yield GaugeMetricFamily(
            "millrace_shard_in_flight", "Deliveries under way.", flow.core.in_flight if flow else 0
        )
        blocked, dead = flow.blocked() if flow else (0, 0)
        groups = GaugeMetricFamily(
            "millrace_shard_groups", "Groups with something parked, by queue.", labels=["queue"]
        )
        groups.add_metric(["retry"], blocked)
        groups.add_metric(["dead_letter"], dead)
        yield groups
        yield GaugeMetricFamily(
            "millrace_shard_known_groups",
            "Groups with a state, or with a message in hand.",
            len(flow.core.groups) if flow else 0,
        )


class Beat:
    """When the event loop last turned."""

    def __init__(self) -> None:
        self.at = time.monotonic()


async def serve(beat: Beat, port: int) -> web.AppRunner:
    """Probes and metrics on all addresses; the caller cleans the runner up."""

    async def alive(_: web.Request) -> web.Response:
        age = time.monotonic() - beat.at
        if age > LONGEST_BEAT:
            return web.Response(status=503, text=f"the event loop has not turned for {age:.0f} s\n")
        return web.Response(text="ok\n")

    async def prometheus(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(REGISTRY),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    application = web.Application()
    application.add_routes(
        [web.get("/healthz", alive), web.get("/readyz", alive), web.get("/metrics", prometheus)]
    )
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner
