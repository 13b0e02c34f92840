"""The edge to the API server: the few requests that the operator makes, as plain documents.

The official client carries the requests (configuration, tokens that rotate, TLS); its models are not used, so
that a field this version does not know survives, and memory stays small. Watching is kopf's.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Self
from urllib.parse import quote

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from millrace.api import GROUP, VERSION
from millrace.controller import metrics

Document = dict[str, Any]

REQUEST_SECONDS = 15.0
FIELD_MANAGER = "millrace"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PLURALS = {
    "ConfigMap": "configmaps",
    "Deployment": "deployments",
    "Lease": "leases",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ServiceAccount": "serviceaccounts",
}


class KubeError(Exception):
    """The API server refused or could not be reached. `status` is 0 when there was no answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

    @property
    def conflict(self) -> bool:
        """Somebody else wrote the object first: look again."""
        return self.status == 409

    @property
    def not_found(self) -> bool:
        """The object is gone."""
        return self.status == 404


class Kube:
    """One session with the API server. Use as an async context manager."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    @classmethod
    async def connect(cls) -> Self:
        """As the pod's ServiceAccount, or as KUBECONFIG says."""
        configuration = Configuration()
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            await config.load_kube_config(client_configuration=configuration)
        return cls(ApiClient(configuration))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    # Our kinds

    async def list_objects(self, plural: str, namespaces: Sequence[str] = ()) -> list[Document]:
        """Every object of a kind, in these namespaces or in all."""
        items: list[Document] = []
        for namespace in namespaces or ("",):
            where = f"/namespaces/{quote(namespace)}" if namespace else ""
            answer = await self._request("GET", f"/apis/{GROUP}/{VERSION}{where}/{plural}", ("list", plural))
            items.extend(answer["items"])
        return items

    async def read(self, plural: str, namespace: str, name: str) -> Document:
        """One object."""
        return await self._request("GET", self._path(plural, namespace, name), ("get", plural))

    async def patch_status(
        self, plural: str, namespace: str, name: str, version: str, status: Mapping[str, Any]
    ) -> Document:
        """Replace fields of the status, if the object is still at that version."""
        body = {"metadata": {"resourceVersion": version}, "status": status}
        path = f"{self._path(plural, namespace, name)}/status"
        return await self._request("PATCH", path, ("patch-status", plural), body, MERGE_PATCH)

    async def patch_finalizers(
        self, plural: str, namespace: str, name: str, version: str, finalizers: Sequence[str]
    ) -> Document:
        """Set the list of finalizers, if the object is still at that version."""
        body = {"metadata": {"resourceVersion": version, "finalizers": [*finalizers]}}
        return await self._request(
            "PATCH", self._path(plural, namespace, name), ("patch", plural), body, MERGE_PATCH
        )

    async def apply(self, plural: str, namespace: str, name: str, manifest: Mapping[str, Any]) -> Document:
        """Server-side apply; what others set beside it stays."""
        path = f"{self._path(plural, namespace, name)}?fieldManager={FIELD_MANAGER}&force=true"
        return await self._request("PATCH", path, ("apply", plural), manifest, APPLY_PATCH)

    # Others' kinds

    async def read_secret(self, namespace: str, name: str) -> Document:
        """One Secret; never listed, never watched."""
        return await self._request(
            "GET", f"/api/v1/namespaces/{namespace}/secrets/{name}", ("get", "secrets")
        )

    async def read_config_map(self, namespace: str, name: str) -> Document:
        """One ConfigMap."""
        return await self._request(
            "GET", f"/api/v1/namespaces/{namespace}/configmaps/{name}", ("get", "configmaps")
        )

    async def read_namespace(self, name: str) -> Document:
        """One namespace."""
        return await self._request("GET", f"/api/v1/namespaces/{name}", ("get", "namespaces"))

    async def create_event(self, namespace: str, event: Mapping[str, Any]) -> Document:
        """A core/v1 Event."""
        return await self._request(
            "POST", f"/api/v1/namespaces/{namespace}/events", ("create", "events"), event
        )

    async def read_lease(self, namespace: str, name: str) -> Document | None:
        """The Lease, or None if there is none."""
        try:
            return await self._request("GET", self._lease(namespace, name), ("get", "leases"))
        except KubeError as error:
            if error.not_found:
                return None
            raise

    async def create_lease(self, namespace: str, name: str, spec: Mapping[str, Any]) -> Document:
        """Create the Lease; a conflict if somebody was faster."""
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name},
            "spec": spec,
        }
        path = self._lease(namespace, name).rpartition("/")[0]
        return await self._request("POST", path, ("create", "leases"), body)

    async def replace_lease(
        self, namespace: str, name: str, version: str, spec: Mapping[str, Any]
    ) -> Document:
        """Write the Lease if its version is still the given one."""
        metadata = {"name": name, "resourceVersion": version}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        return await self._request("PUT", self._lease(namespace, name), ("update", "leases"), body)

    # What we make for our kinds

    async def apply_object(self, manifest: Mapping[str, Any]) -> Document:
        """Server-side apply of any object whose kind is in `PLURALS`."""
        plural = PLURALS[manifest["kind"]]
        metadata = manifest["metadata"]
        path = _object_path(manifest["apiVersion"], plural, metadata["namespace"], metadata["name"])
        query = f"fieldManager={FIELD_MANAGER}&force=true"
        return await self._request("PATCH", f"{path}?{query}", ("apply", plural), manifest, APPLY_PATCH)

    async def list_leases(self, namespace: str, labels: Mapping[str, str]) -> list[Document]:
        """The Leases with all of these labels."""
        chosen = quote(",".join(f"{key}={value}" for key, value in labels.items()))
        path = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases?labelSelector={chosen}"
        return list((await self._request("GET", path, ("list", "leases")))["items"])

    async def read_deployment(self, namespace: str, name: str) -> Document | None:
        """The Deployment, or None if there is none."""
        path = _object_path("apps/v1", "deployments", namespace, name)
        try:
            return await self._request("GET", path, ("get", "deployments"))
        except KubeError as error:
            if error.not_found:
                return None
            raise

    async def delete_deployment(self, namespace: str, name: str) -> None:
        """Delete it once all its pods are gone; one that is gone is fine."""
        path = _object_path("apps/v1", "deployments", namespace, name)
        try:
            await self._request(
                "DELETE", path, ("delete", "deployments"), {"propagationPolicy": "Foreground"}
            )
        except KubeError as error:
            if not error.not_found:
                raise

    @staticmethod
    def _path(plural: str, namespace: str, name: str) -> str:
        return f"/apis/{GROUP}/{VERSION}/namespaces/{quote(namespace)}/{plural}/{quote(name)}"

    @staticmethod
    def _lease(namespace: str, name: str) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases/{quote(name)}"

    async def _request(
        self,
        method: str,
        path: str,
        counted_as: tuple[str, str],
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Document:
        metrics.API_CALLS.labels(*counted_as).inc()
        headers = {"Accept": "application/json", "Content-Type": content_type}
        try:
            serialized = await self._client.param_serialize(
                method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
            )
            async with asyncio.timeout(REQUEST_SECONDS):
                response = await self._client.call_api(*serialized, _request_timeout=REQUEST_SECONDS)
                data: bytes = await response.read()
        except TimeoutError as error:
            raise KubeError(f"{method} {path}: no answer within {REQUEST_SECONDS:.0f} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise KubeError(f"{method} {path}: {str(error) or type(error).__name__}") from error
        if not 200 <= response.status <= 299:
            raise KubeError(f"{method} {path}: {response.status} {_message(data)}", response.status)
        document: Document = json.loads(data)
        return document


def _object_path(api_version: str, plural: str, namespace: str, name: str) -> str:
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    return f"{root}/namespaces/{quote(namespace)}/{plural}/{quote(name)}"


def _message(data: bytes) -> str:
    try:
        return str(json.loads(data).get("message", ""))
    except (ValueError, AttributeError):
        return data[:200].decode(errors="replace")
