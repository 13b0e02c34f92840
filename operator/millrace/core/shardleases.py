"""The Lease of a shard, as pods write it and the operator reads it.

The operator creates it bare; whoever claims the shard writes the rest. The epoch grows with every change of
owner, and is an annotation because a Lease has no field that means it (`leaseTransitions` has 31 bits, and
others write it). What a shard counts is written along with a renewal, so that it costs no request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EPOCH = "millrace.dev/epoch"
BLOCKED_GROUPS = "millrace.dev/blocked-groups"
DEAD_LETTERED_GROUPS = "millrace.dev/dead-lettered-groups"
HOLDER_UID = "millrace.dev/holder-uid"
"""The UID of the pod that `holderIdentity` names: a pod of the same name may be another one."""

SHARD = "millrace.dev/shard"
"""A label, on every Lease of a shard: its number."""


@dataclass(frozen=True, slots=True)
class ShardLease:
    """What a Lease says of its shard. `holder` is None while nobody has it."""

    shard: int
    holder: str | None = None
    epoch: int = 0
    blocked_groups: int = 0
    dead_lettered_groups: int = 0


def parse(lease: Mapping[str, Any]) -> ShardLease | None:
    """Read a Lease; None if it is no shard's. What cannot be read counts as 0: it is only shown."""
    metadata = lease.get("metadata") or {}
    label = (metadata.get("labels") or {}).get(SHARD, "")
    if not label.isascii() or not label.isdigit():
        return None
    annotations = metadata.get("annotations") or {}
    return ShardLease(
        shard=int(label),
        holder=(lease.get("spec") or {}).get("holderIdentity") or None,
        epoch=_count(annotations, EPOCH),
        blocked_groups=_count(annotations, BLOCKED_GROUPS),
        dead_lettered_groups=_count(annotations, DEAD_LETTERED_GROUPS),
    )


def _count(annotations: Mapping[str, str], key: str) -> int:
    text = annotations.get(key, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
