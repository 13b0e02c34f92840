"""What a person sees meanwhile: the topic, the flow, the judgement, and what just happened."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from demo.delivering import FAILING, POISONED, Delivering
from demo.workload import Workload


@dataclass(slots=True)
class Story:
    """What has happened so far; printed line by line where there is no terminal to redraw."""

    console: Console
    live: bool
    started: float = field(default_factory=time.monotonic)
    lines: list[str] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)

    def tell(self, line: str) -> None:
        """Add one line."""
        stamped = f"[dim]{time.monotonic() - self.started:5.1f} s[/dim]  {line}"
        self.lines.append(stamped)
        if not self.live:
            self.console.print(stamped)


def render(story: Story, workload: Workload, delivering: Delivering) -> RenderableType:
    """The whole screen."""
    return Group(
        Panel(_topics(story.status), title="CompositeTopic", border_style="cyan"),
        Panel(_flow(workload), title="messages", border_style="cyan"),
        Panel(_deliveries(delivering), title="Subscription", border_style="cyan"),
        Panel(Text.from_markup("\n".join(story.lines[-8:])), title="what happened", border_style="dim"),
    )


def _topics(status: dict[str, Any]) -> RenderableType:
    table = Table(box=None, pad_edge=False)
    for column in ("", "storage topic", "partitions", "K", "state", "sealed"):
        table.add_column(column)
    pointer = status.get("producePointer")
    for topic in status.get("storageTopics", []):
        sealed = topic.get("sealedPartitions", 0)
        table.add_row(
            "▶" if topic["index"] == pointer else "",
            topic["topic"].rpartition("/")[2],
            str(topic["partitions"]),
            str(topic.get("k", "")),
            topic.get("state", ""),
            f"{sealed}/{topic['partitions']}" if sealed else "",
        )
    return table


def _flow(workload: Workload) -> RenderableType:
    checker = workload.checker
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("sent", f"{checker.sent:,}")
    table.add_row("acknowledged", f"{workload.acknowledged:,}  {_by_topic(workload.per_storage_topic)}")
    table.add_row("read back", f"{checker.delivered:,}  {_by_topic(workload.read_per_storage_topic)}")
    broken = len(checker.violations)
    table.add_row("out of order", Text(str(broken), style="bold red" if broken else "green"))
    table.add_row("repeated", Text(str(checker.repeats), style="bold red" if checker.repeats else "green"))
    return table


def _deliveries(delivering: Delivering) -> RenderableType:
    deliveries, status = delivering.deliveries, delivering.status
    checker = deliveries.checker
    table = Table(box=None, pad_edge=False, show_header=False)
    for shard in status.get("shards", []):
        owns = "  ".join(
            f"[dim]T{each['storageTopicIndex']}[/dim] {each['partitions']}" for each in shard["assignments"]
        )
        table.add_row(f"shard {shard['id']}", f"epoch {shard['epoch']}  {shard.get('owner', '-')}  {owns}")
    waiting = deliveries.missing_of(FAILING)
    table.add_row("taken by the endpoint", f"{deliveries.taken.total():,}  refused {deliveries.failures:,}")
    table.add_row(f"{FAILING} (retry queue)", f"{waiting:,} not taken yet")
    table.add_row(f"{POISONED} (dead-letter queue)", f"{deliveries.missing_of(POISONED):,} not taken")
    broken = len(checker.violations)
    table.add_row("out of order", Text(str(broken), style="bold red" if broken else "green"))
    table.add_row("repeated", str(checker.repeats))
    return table


def _by_topic(counts: dict[int, int]) -> str:
    return "  ".join(f"[dim]T{index}[/dim] {count:,}" for index, count in sorted(counts.items()))
