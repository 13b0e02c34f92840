"""Our finalizer on an object, put there and taken off without touching those of others."""

from __future__ import annotations

from millrace.api import FINALIZER
from millrace.api.meta import ObjectMeta
from millrace.controller.inventory import Inventory, Key
from millrace.controller.kube import Kube


async def set_finalizer(
    kube: Kube, inventory: Inventory, key: Key, metadata: ObjectMeta, *, present: bool
) -> None:
    """Write the list of finalizers with ours, or without; raises a conflict if the object moved on."""
    plural, namespace, name = key
    body = inventory.get(key)
    if body is None:
        return
    others = [each for each in metadata.finalizers if each != FINALIZER]
    finalizers = [*others, FINALIZER] if present else others
    version = str(body["metadata"]["resourceVersion"])
    inventory.wrote(key, await kube.patch_finalizers(plural, namespace, name, version, finalizers))
