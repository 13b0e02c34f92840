"""Run the demonstration from the first apply to the verdict."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from rich.console import Console
from rich.live import Live

from demo import cluster
from demo.cluster import DemoError
from demo.delivering import BROKEN, FAILING, POISONED, SUBSCRIPTION, UNPROCESSABLE, Delivering
from demo.delivering import remove as remove_subscription
from demo.endpoint import Endpoint
from demo.screen import Story, render
from demo.workload import Workload
from millrace.client import Connection

TOPIC = "orders"
PULSAR_NAMESPACE = "public/default"
READY_WITHIN = 120.0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument(
        "--namespace", default="demo", help="Kubernetes namespace, with a PulsarConnection in it"
    )
    parser.add_argument("--producers", type=int, default=3, help="producers that write at once (default: 3)")
    parser.add_argument(
        "--groups", type=int, default=300, help="groups, each with an order of its own (default: 300)"
    )
    parser.add_argument("--rate", type=float, default=1500, help="messages per second in all (default: 1500)")
    parser.add_argument(
        "--before", type=float, default=6, help="seconds of load before the topic grows (default: 6)"
    )
    parser.add_argument(
        "--after", type=float, default=6, help="seconds of load after the switch (default: 6)"
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave topic, subscription and endpoint in place to look around"
    )
    return parser.parse_args()


async def start_clean(story: Story, namespace: str) -> None:
    """What an earlier run left would bring its messages along: remove it, data included."""
    if not (
        await cluster.kubectl("get", "pulsarconnections", "-n", namespace, "-o", "name", "--ignore-not-found")
    ).strip():
        raise DemoError(
            f"namespace {namespace} has no PulsarConnection. The sandbox brings one (make sandbox); on a "
            "cluster of your own, adapt and apply examples/connection.yaml, or choose with --namespace"
        )
    await remove_subscription(namespace, Endpoint(namespace, SUBSCRIPTION))
    if (
        await cluster.kubectl("get", "ct", TOPIC, "-n", namespace, "-o", "name", "--ignore-not-found")
    ).strip():
        story.tell("removing the topic of an earlier run")
        await remove_topic(namespace)


async def remove_topic(namespace: str) -> None:
    """Delete the topic with its data: the default policy would keep what is in Pulsar."""
    patch = '{"spec":{"deletionPolicy":"Delete"}}'
    await cluster.kubectl("patch", "ct", TOPIC, "-n", namespace, "--type", "merge", "-p", patch)
    await cluster.wait_until_ready(TOPIC, namespace, READY_WITHIN)
    await cluster.kubectl("delete", "ct", TOPIC, "-n", namespace, "--timeout=120s")


@contextlib.asynccontextmanager
async def watching(
    story: Story, workload: Workload, delivering: Delivering, namespace: str
) -> AsyncIterator[None]:
    """Redraw and refresh the status while the body runs."""

    async def refresh(live: Live | None) -> None:
        while True:
            with contextlib.suppress(DemoError):
                story.status = await cluster.status(TOPIC, namespace)
            if live:
                live.update(render(story, workload, delivering))
            await asyncio.sleep(0.25 if live else 1.0)

    live = Live(console=story.console, refresh_per_second=8) if story.live else None
    with live or contextlib.nullcontext():
        task = asyncio.create_task(refresh(live))
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            if live:
                live.update(render(story, workload, delivering))


async def alongside(tasks: list[asyncio.Task[None]], work: Coroutine[Any, Any, Any]) -> None:
    """Do something while the load runs; a producer or reader that fails ends the demonstration at once."""
    awaited = asyncio.ensure_future(work)
    done, _ = await asyncio.wait([awaited, *tasks], return_when=asyncio.FIRST_COMPLETED)
    if awaited not in done:
        awaited.cancel()
    for task in done:
        task.result()
    if awaited not in done:
        raise DemoError("a producer or the reader stopped early")


async def run(options: argparse.Namespace, console: Console) -> bool:
    """The demonstration itself; true if the promise held."""
    story = Story(console, live=console.is_terminal)
    endpoint = Endpoint(options.namespace, SUBSCRIPTION)
    delivering = Delivering.to(endpoint)
    await start_clean(story, options.namespace)
    starting = asyncio.ensure_future(endpoint.start())
    await cluster.apply_example("composite-topic.yaml", options.namespace)
    story.tell(f"applied [bold]examples/composite-topic.yaml[/bold]: {TOPIC}, 2 partitions")
    story.status = await cluster.wait_until_ready(TOPIC, options.namespace, READY_WITHIN)
    story.tell("the topic is Ready")
    await starting
    await delivering.begin(READY_WITHIN)
    story.tell("applied [bold]examples/subscription.yaml[/bold]: 2 shards deliver it to an HTTP endpoint")
    workload = Workload(
        Connection.from_environment(),
        PULSAR_NAMESPACE,
        f"{options.namespace}/{TOPIC}",
        options.producers,
        options.groups,
        options.rate,
        also_told=[delivering.deliveries.checker],
    )
    async with watching(story, workload, delivering, options.namespace):
        reader = asyncio.create_task(workload.read())
        following = asyncio.create_task(delivering.follow())
        writers = [asyncio.create_task(workload.produce(index)) for index in range(options.producers)]
        load = [reader, following, *writers]
        story.tell(
            f"{options.producers} producers write {options.groups} groups at {options.rate:,.0f} messages/s"
        )
        await alongside(load, asyncio.sleep(options.before))
        await grow(story, options, load)
        await alongside(load, lose_patience(story, delivering))
        await alongside(load, asyncio.sleep(options.after))
        workload.stopping.set()
        await asyncio.gather(*writers)
        story.tell("producers stopped; reading and delivering the rest")
        await _drained(workload, delivering, [reader, following])
        await delivering.read_dead_letters(workload.connection)
        for task in (reader, following):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    held = report(story, workload) & report_deliveries(story, delivering)
    if not options.keep:
        await remove_subscription(options.namespace, endpoint)
        await remove_topic(options.namespace)
    return held


async def grow(story: Story, options: argparse.Namespace, load: list[asyncio.Task[None]]) -> None:
    """From 2 to 12 partitions while everybody goes on."""
    await cluster.apply_example("composite-topic-grown.yaml", options.namespace)
    story.tell(
        "applied [bold]examples/composite-topic-grown.yaml[/bold]: 12 partitions more, producePointer 1"
    )
    await alongside(load, cluster.wait_until_ready(TOPIC, options.namespace, READY_WITHIN))
    story.tell("T0 is sealed in every partition; producers write to T1")


async def lose_patience(story: Story, delivering: Delivering) -> None:
    """The endpoint does not take two groups, and one of them recovers."""
    await delivering.refuse()
    story.tell(f"the endpoint answers {BROKEN} to {FAILING}, and {UNPROCESSABLE} to {POISONED}")
    await _until(lambda: delivering.failures(UNPROCESSABLE) > 0, f"{POISONED} was never refused")
    story.tell(f"{POISONED} is in the dead-letter queue, and blocks only itself")
    await _until(lambda: delivering.failures(BROKEN) > 2, f"{FAILING} was not tried again")
    story.tell(f"{FAILING} waits in the retry queue; the others go on")
    before = delivering.deliveries.taken[FAILING]
    await delivering.recover()
    await _until(lambda: delivering.deliveries.taken[FAILING] > before, f"{FAILING} did not recover")
    story.tell(f"the endpoint recovered: {FAILING} goes on where it stopped")


async def _until(condition: Callable[[], bool], failure: str, seconds: float = 60.0) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            raise DemoError(f"{failure} within {seconds:.0f} s")
        await asyncio.sleep(0.1)


async def _drained(
    workload: Workload, delivering: Delivering, tasks: list[asyncio.Task[None]], seconds: float = 60.0
) -> None:
    """Wait for what was acknowledged to be read back and delivered; what does not come in time is missing."""
    deadline = asyncio.get_running_loop().time() + seconds
    while (
        workload.checker.delivered < workload.acknowledged or delivering.missing
    ) and asyncio.get_running_loop().time() < deadline:
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(0.1)
    # Anything that was written twice would come after the last one that is expected.
    await asyncio.sleep(1.0)


def report(story: Story, workload: Workload) -> bool:
    """Say what became of it; the producer promises nothing lost, nothing twice, nothing out of order."""
    verdict = workload.checker.verdict()
    crossed = len(workload.read_per_storage_topic) > 1
    held = verdict.holds(repeats_allowed=0) and crossed
    story.console.print()
    colour, word = ("green", "held") if held else ("red", "BROKE")
    story.console.print(
        f"[bold {colour}]The promise {word}[/bold {colour}]: "
        f"{verdict.sent:,} sent, {verdict.delivered:,} read back "
        f"over {len(workload.read_per_storage_topic)} storage topics, {sum(verdict.missing.values())} lost, "
        f"{verdict.repeats} repeated, {len(verdict.violations)} out of order, in {workload.groups} groups."
    )
    for violation in verdict.violations[:5]:
        story.console.print(f"  {violation}")
    for group, count in list(verdict.missing.items())[:5]:
        story.console.print(f"  group {group}: {count} lost")
    if not crossed:
        story.console.print("  nothing was read from the second storage topic: the switch was not under load")
    return held


def report_deliveries(story: Story, delivering: Delivering) -> bool:
    """The same for the endpoint: after a fault it may be sent something twice, but nothing out of order."""
    deliveries, held = delivering.deliveries, delivering.held
    verdict = deliveries.checker.verdict()
    lost = sum(verdict.missing.values()) - len(delivering.dead)
    colour, word = ("green", "held") if held else ("red", "BROKE")
    story.console.print(
        f"[bold {colour}]The promise {word}[/bold {colour}] at the endpoint: "
        f"{deliveries.taken.total():,} taken, {deliveries.failures:,} refused, {lost} lost, "
        f"{verdict.repeats} repeated, {len(verdict.violations)} out of order, "
        f"{len(delivering.dead)} kept in the dead-letter queue, in order."
    )
    for violation in verdict.violations[:5]:
        story.console.print(f"  {violation}")
    for group, count in list(verdict.missing.items())[:5]:
        story.console.print(f"  group {group}: {count} not taken")
    return held


def main() -> int:
    """Exit code 0: held; 1: broke; 2: could not be run."""
    options = arguments()
    console = Console()
    try:
        return 0 if asyncio.run(run(options, console)) else 1
    except DemoError as error:
        console.print(f"[bold red]The demonstration could not go on:[/bold red] {error}")
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
