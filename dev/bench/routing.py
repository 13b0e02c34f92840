"""How fast groups are routed: one at a time, as the producer does, and by both routers."""

from __future__ import annotations

import json
import time

from millrace.core.routing import Layout, Routing, group_hash, partition_of_hash

GROUPS = 200_000
ROUNDS = 3


def main() -> None:
    """One line per router: the best of a few rounds, which is the one that was least disturbed."""
    group_ids = [f"customer-{number:08d}" for number in range(GROUPS)]
    for routing in (Routing.SHARD_CONSISTENT, Routing.RANGE):
        layout = Layout(24, 4 if routing is Routing.SHARD_CONSISTENT else 1, routing)
        best = float("inf")
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            for group_id in group_ids:
                partition_of_hash(group_hash(group_id), layout)
            best = min(best, time.perf_counter() - begin)
        print(
            json.dumps(
                {
                    "measurement": "routing",
                    "routing": routing.value,
                    "groups_per_second": round(GROUPS / best),
                    "microseconds_per_group": round(best / GROUPS * 1e6, 3),
                }
            ),
            flush=True,
        )
