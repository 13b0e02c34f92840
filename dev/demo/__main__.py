"""Run the demonstration from the first apply to the verdict."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from rich.console import Console
from rich.live import Live

from demo import cluster
from demo.cluster import DemoError
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
    parser.add_argument("--keep", action="store_true", help="leave the topic in place to look around")
    return parser.parse_args()


async def start_clean(story: Story, namespace: str) -> None:
    """An earlier run's topic would bring its messages along: remove it, data included."""
    if not (
        await cluster.kubectl("get", "pulsarconnections", "-n", namespace, "-o", "name", "--ignore-not-found")
    ).strip():
        raise DemoError(
            f"namespace {namespace} has no PulsarConnection. The sandbox brings one (make sandbox); on a "
            "cluster of your own, adapt and apply examples/connection.yaml, or choose with --namespace"
        )
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
async def watching(story: Story, workload: Workload, namespace: str) -> AsyncIterator[None]:
    """Redraw and refresh the status while the body runs."""

    async def refresh(live: Live | None) -> None:
        while True:
            with contextlib.suppress(DemoError):
                story.status = await cluster.topic_status(TOPIC, namespace)
            if live:
                live.update(render(story, workload))
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
                live.update(render(story, workload))


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
    await start_clean(story, options.namespace)
    await cluster.apply_example("composite-topic.yaml", options.namespace)
    story.tell(f"applied [bold]examples/composite-topic.yaml[/bold]: {TOPIC}, 2 partitions")
    story.status = await cluster.wait_until_ready(TOPIC, options.namespace, READY_WITHIN)
    story.tell("the topic is Ready")
    workload = Workload(
        Connection.from_environment(),
        PULSAR_NAMESPACE,
        f"{options.namespace}/{TOPIC}",
        options.producers,
        options.groups,
        options.rate,
    )
    async with watching(story, workload, options.namespace):
        reader = asyncio.create_task(workload.read())
        writers = [asyncio.create_task(workload.produce(index)) for index in range(options.producers)]
        load = [reader, *writers]
        story.tell(
            f"{options.producers} producers write {options.groups} groups at {options.rate:,.0f} messages/s"
        )
        await alongside(load, asyncio.sleep(options.before))
        await cluster.apply_example("composite-topic-grown.yaml", options.namespace)
        story.tell(
            "applied [bold]examples/composite-topic-grown.yaml[/bold]: 12 partitions more, producePointer 1"
        )
        await alongside(load, cluster.wait_until_ready(TOPIC, options.namespace, READY_WITHIN))
        story.tell("T0 is sealed in every partition; producers write to T1")
        await alongside(load, asyncio.sleep(options.after))
        workload.stopping.set()
        await asyncio.gather(*writers)
        story.tell("producers stopped; reading the rest")
        await _drained(workload, reader)
        reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reader
    held = report(story, workload)
    if not options.keep:
        await remove_topic(options.namespace)
    return held


async def _drained(workload: Workload, reader: asyncio.Task[None], seconds: float = 60.0) -> None:
    """Wait for what was acknowledged to be read back; what does not come in time is missing."""
    deadline = asyncio.get_running_loop().time() + seconds
    while workload.checker.delivered < workload.acknowledged and asyncio.get_running_loop().time() < deadline:
        if reader.done():
            reader.result()
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
