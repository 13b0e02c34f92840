"""A composite topic as its descriptor in Pulsar tells it: the answer of `millrace topic`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from millrace.cli.display import Output, print_json, terminal, visible
from millrace.cli.options import Access
from millrace.client import Connection
from millrace.client.errors import TopicNotFound
from millrace.core.descriptor import Descriptor
from millrace.core.routing import Routing
from millrace.pulsar import descriptors

if TYPE_CHECKING:
    from rich.table import Table


async def show(access: Access, topic: str, output: Output) -> None:
    """Read the newest descriptor and print it."""
    where = access.descriptor_topic(topic)
    async with access.connection() as connection:
        descriptor = await newest(connection, where)
    if output == "json":
        print_json({**json.loads(descriptor.to_json()), "descriptorTopic": where})
        return
    console = terminal()
    console.print(heading(descriptor), style="bold", soft_wrap=True)
    console.print(f"descriptor {where}", soft_wrap=True)
    console.print()
    console.print(table(descriptor))


async def newest(connection: Connection, where: str) -> Descriptor:
    """The descriptor of now. (Whoever only follows may hear of older generations first.)"""
    descriptor = await descriptors.read(connection.client, where)
    if descriptor is None:
        raise TopicNotFound(
            f"there is no composite topic behind {where}: check the name and the Pulsar namespace, "
            "and that its CompositeTopic is Ready"
        )
    return descriptor


def heading(descriptor: Descriptor) -> str:
    """What is true of the whole."""
    moving = "" if descriptor.switching_to is None else f", switching to {descriptor.switching_to}"
    return (
        f"{visible(descriptor.name)}: {descriptor.routing} routing, generation {descriptor.generation}, "
        f"produce pointer {descriptor.produce_pointer}{moving}"
    )


def state(descriptor: Descriptor, index: int) -> str:
    """What a storage topic is there for now."""
    if index < descriptor.produce_pointer:
        return "sealed"
    if index > descriptor.produce_pointer:
        return "appended"
    return "producing" if descriptor.switching_to is None else "sealing"


def table(descriptor: Descriptor) -> Table:
    """The storage topics, oldest first."""
    from rich.table import Table  # noqa: PLC0415 - JSON needs none of it

    rows = Table(box=None, pad_edge=False)
    rows.add_column("INDEX", justify="right")
    rows.add_column("STATE")
    rows.add_column("PARTITIONS", justify="right")
    rows.add_column("K", justify="right")
    rows.add_column("TOPIC", overflow="fold")
    for index, topic in enumerate(descriptor.storage_topics):
        unknown = " (routing unknown)" if topic.layout.routing is Routing.UNKNOWN else ""
        rows.add_row(
            str(index),
            state(descriptor, index),
            str(topic.layout.partitions),
            str(topic.layout.scale_factor),
            f"{visible(topic.topic)}{unknown}",
            style="green" if index == descriptor.produce_pointer else None,
        )
    return rows
