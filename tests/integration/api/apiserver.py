"""What these tests do with the API server, and how it says no."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kubernetes import client

from millrace.api import GROUP, PAUSED_ANNOTATION, VERSION
from millrace.api.crds import KINDS, Kind

Manifest = dict[str, Any]

PULSAR_CONNECTION, COMPOSITE_TOPIC, SUBSCRIPTION = KINDS


@dataclass(frozen=True, slots=True)
class Refusal:
    """One cause of an "is invalid" answer."""

    field: str
    message: str


class RefusedError(Exception):
    """The API server did not accept an object."""

    def __init__(self, status: Manifest) -> None:
        super().__init__(status.get("message"))
        self.causes = [
            Refusal(cause.get("field", ""), cause["message"])
            for cause in status.get("details", {}).get("causes", [])
        ]

    def says(self, where: str, message: str) -> bool:
        """Whether a field was refused with exactly this sentence (after the API server's own first words)."""
        return any(cause.field == where and cause.message.endswith(message) for cause in self.causes)


@dataclass
class ApiServer:
    """The few calls that these tests make. Objects are paused, so that no operator touches them."""

    custom: client.CustomObjectsApi
    namespace: str
    names: Iterator[int] = field(default_factory=itertools.count)

    def create(self, kind: Kind, spec: Manifest, *, strict: bool = True, name: str | None = None) -> Manifest:
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": kind.name,
            "metadata": {"name": name or f"t{next(self.names)}", "annotations": {PAUSED_ANNOTATION: "true"}},
            "spec": spec,
        }
        try:
            created: Manifest = self.custom.create_namespaced_custom_object(
                GROUP,
                VERSION,
                self.namespace,
                kind.plural,
                body,
                field_validation="Strict" if strict else "Ignore",
            )
        except client.ApiException as error:
            raise RefusedError(json.loads(error.body)) from error
        return created

    def replace(self, kind: Kind, created: Manifest, spec: Manifest) -> Manifest:
        """Like `kubectl replace`: what the new spec leaves out is unset."""
        name = created["metadata"]["name"]
        for _ in range(10):  # a status may be written in between
            current = self.get(kind, name)
            try:
                replaced: Manifest = self.custom.replace_namespaced_custom_object(
                    GROUP, VERSION, self.namespace, kind.plural, name, current | {"spec": spec}
                )
            except client.ApiException as error:
                status = json.loads(error.body)
                if status.get("reason") != "Conflict":
                    raise RefusedError(status) from error
            else:
                return replaced
        raise AssertionError(f"{kind.name} {name} is written to all the time")

    def write_status(self, kind: Kind, name: str, status: Manifest) -> Manifest:
        current = self.get(kind, name)
        try:
            written: Manifest = self.custom.replace_namespaced_custom_object_status(
                GROUP, VERSION, self.namespace, kind.plural, name, current | {"status": status}
            )
        except client.ApiException as error:
            raise RefusedError(json.loads(error.body)) from error
        return written

    def get(self, kind: Kind, name: str) -> Manifest:
        found: Manifest = self.custom.get_namespaced_custom_object(
            GROUP, VERSION, self.namespace, kind.plural, name
        )
        return found
