"""The default connection that the chart asks for: a file in the pod, applied to each namespace it names.

Helm cannot create an object beside its CRD in one release, so the operator does it. Server-side apply
leaves alone what others set beside it, and repeating it changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from millrace.api import API_VERSION
from millrace.controller.kube import Kube, KubeError
from millrace.controller.pulsarconnections import KIND, PLURAL
from millrace.controller.settings import SettingsError

logger = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


@dataclass(frozen=True, slots=True)
class DefaultConnection:
    """What the file says."""

    name: str
    namespaces: tuple[str, ...]
    spec: dict[str, Any]

    def manifest(self, namespace: str) -> dict[str, Any]:
        """The object in one namespace."""
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": self.name, "namespace": namespace},
            "spec": self.spec,
        }


def read(path: Path) -> DefaultConnection | None:
    """Read the file; None where there is none, which is how most installations are."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    document = yaml.safe_load(text)
    try:
        return DefaultConnection(
            str(document["name"]), tuple(map(str, document["namespaces"])), dict(document["spec"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SettingsError(f"{path} must have name, namespaces and spec: {error!r}") from error


async def keep_applied(kube: Kube, wanted: DefaultConnection) -> None:
    """Apply it everywhere, each namespace until it succeeds: one that is not there yet delays no other."""
    async with asyncio.TaskGroup() as group:
        for namespace in wanted.namespaces:
            group.create_task(_apply(kube, wanted, namespace))


async def _apply(kube: Kube, wanted: DefaultConnection, namespace: str) -> None:
    pause = FIRST_PAUSE
    while True:
        try:
            await kube.apply(PLURAL, namespace, wanted.name, wanted.manifest(namespace))
        except KubeError as error:
            logger.warning(
                "the default connection %s/%s was not applied, again in %.0f s: %s",
                namespace,
                wanted.name,
                pause,
                error,
            )
        else:
            logger.info("the default connection %s/%s is applied", namespace, wanted.name)
            return
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)
