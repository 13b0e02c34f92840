"""Where a group goes: the answer of `millrace route`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millrace.cli.display import visible
from millrace.core.groups import validate_group_id
from millrace.core.routing import Layout, group_hash, partition_of_hash, shard_of_partition


@dataclass(frozen=True, slots=True)
class Route:
    """One group in one layout. `shard` is None if no shard count was given."""

    group_id: str
    layout: Layout
    hash: int
    partition: int
    shards: int | None = None
    shard: int | None = None

    @property
    def base_partition(self) -> int:
        """The partition that the group had before the topic was scaled up by K."""
        return self.partition // self.layout.scale_factor

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "group": self.group_id,
            "hash": self.hash,
            "routing": self.layout.routing.value,
            "partitions": self.layout.partitions,
            "k": self.layout.scale_factor,
            "base": self.layout.base,
            "shards": self.shards,
            "partition": self.partition,
            "basePartition": self.base_partition,
            "shard": self.shard,
        }

    def text(self) -> str:
        """For people."""
        layout = self.layout
        lines = [
            ("group", f"{visible(self.group_id)} (hash {self.hash})"),
            ("routing", f"{layout.routing}, P = {layout.partitions}, K = {layout.scale_factor}"),
            ("partition", f"{self.partition} of 0..{layout.partitions - 1}"),
            ("base", f"{self.base_partition} of 0..{layout.base - 1}"),
        ]
        if self.shards is not None:
            lines.append(("shard", f"{self.shard} of 0..{self.shards - 1}"))
        return "\n".join(f"{name:<11}{value}" for name, value in lines)


def route(group_id: str, layout: Layout, shards: int | None) -> Route:
    """Find a group's way. Raises for a group id or a shard count that cannot be."""
    validate_group_id(group_id)
    hash_ = group_hash(group_id)
    partition = partition_of_hash(hash_, layout)
    shard = None if shards is None else shard_of_partition(partition, layout.partitions, shards)
    return Route(group_id, layout, hash_, partition, shards, shard)
