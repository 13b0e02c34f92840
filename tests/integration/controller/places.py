"""A place of a test module's own: a Kubernetes namespace, a Pulsar namespace, and what is done in them."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pulsar
from kubernetes import client

from millrace.api import API_VERSION, GROUP, VERSION
from millrace.api.crds import KINDS
from millrace.api.reasons import ConditionType, Reason
from millrace.core.descriptor import Descriptor
from millrace.core.names import descriptor_topic_name, partition_topic_name, storage_topic_name
from millrace.core.positions import EntryId
from millrace.pulsar import descriptors
from millrace.pulsar.admin import Admin
from millrace.pulsar.clients import blocking
from millrace.pulsar.tables import entry_of
from tests.integration.controller.operators import Operator
from tests.support import pulsar as support
from tests.support.waiting import eventually

Manifest = dict[str, Any]
CONNECTION, TOPIC, *_ = KINDS
DEADLINE = 120.0
EVERY = 0.25


class Place:
    """Made by `open_place`. Names are short: no other module can see them."""

    def __init__(self, api: client.ApiClient, admin: Admin, directory: Path, name: str) -> None:
        self._custom = client.CustomObjectsApi(api)
        self._core = client.CoreV1Api(api)
        self._leases = client.CoordinationV1Api(api)
        self.directory = directory
        self.admin = admin
        self.namespace = name
        self.cluster = f"cluster-of-{name}"
        self.pulsar_namespace = f"public/{name}"
        self.operators: list[Operator] = []

    # Operators

    def operator(self, identity: str = "operator-0", *, lease: str = "millrace", **settings: str) -> Operator:
        """A replica that sees this place and nothing else; not started yet."""
        made = Operator(
            identity,
            self.directory,
            {
                "MILLRACE_LEASE_NAMESPACE": self.namespace,
                "MILLRACE_LEASE_NAME": lease,
                "MILLRACE_WATCH_NAMESPACES": self.namespace,
                "MILLRACE_CLUSTER_ID": self.cluster,
                **settings,
            },
        )
        self.operators.append(made)
        return made

    async def leader(self, lease: str) -> str:
        """Who holds the Lease; empty if nobody does."""
        found = await asyncio.to_thread(self._leases.read_namespaced_lease, lease, self.namespace)
        return found.spec.holder_identity or ""

    # Kubernetes

    async def set_secret(self, name: str, **data: str) -> None:
        """Create or replace a Secret; an underscore in a key stands for a dot."""
        encoded = {
            key.replace("_", "."): base64.b64encode(value.encode()).decode() for key, value in data.items()
        }
        body = {"metadata": {"name": name}, "data": encoded}
        try:
            await asyncio.to_thread(self._core.create_namespaced_secret, self.namespace, body)
        except client.ApiException as error:
            if error.status != 409:
                raise
            await asyncio.to_thread(self._core.replace_namespaced_secret, name, self.namespace, body)

    async def connect(self, admin_url: str, name: str = "pulsar", **spec: Any) -> None:
        """A PulsarConnection with a Secret of its own: the default one, unless it is said otherwise."""
        assert self.admin.credentials.tls.ca_file is not None, "the sandbox's Pulsar has TLS"
        await self.set_secret(f"{name}-admin", token=good_token())
        await self.set_secret("pulsar-ca", ca_crt=self.admin.credentials.tls.ca_file.read_text())
        wanted = {
            "serviceUrl": self.admin.credentials.service_url,
            "adminUrl": admin_url,
            "pulsarNamespaces": [self.pulsar_namespace],
            "isDefault": name == "pulsar",
            "auth": {"type": "Token"},
            "adminSecretRef": {"name": f"{name}-admin"},
            "tls": {"caSecretRef": {"name": "pulsar-ca"}},
        }
        await self._create(CONNECTION, name, wanted | spec)

    async def create(self, name: str, *partitions: int, **spec: Any) -> None:
        """A CompositeTopic with one storage topic per partition count, unless it is said otherwise."""
        wanted: Manifest = {
            "pulsarNamespace": self.pulsar_namespace,
            "storageTopics": [{"partitions": count} for count in partitions],
        }
        await self._create(TOPIC, name, wanted | spec)

    async def _create(self, kind: Any, name: str, spec: Manifest) -> None:
        body = {"apiVersion": API_VERSION, "kind": kind.name, "metadata": {"name": name}, "spec": spec}
        await asyncio.to_thread(
            self._custom.create_namespaced_custom_object, GROUP, VERSION, self.namespace, kind.plural, body
        )

    async def patch(self, name: str, **spec: Any) -> None:
        """Merge this into the spec of a CompositeTopic."""
        await self._patch(name, {"spec": spec})

    async def annotate(self, name: str, **annotations: str) -> None:
        """Any annotation has the object looked at now."""
        await self._patch(name, {"metadata": {"annotations": annotations}})

    async def _patch(self, name: str, body: Manifest) -> None:
        await asyncio.to_thread(
            self._custom.patch_namespaced_custom_object,
            *(GROUP, VERSION, self.namespace, TOPIC.plural, name, body),
        )

    async def switch(self, name: str, *partitions: int) -> None:
        """Append storage topics so that there are these, and raise the pointer to the last."""
        topics = [{"partitions": count} for count in partitions]
        await self.patch(name, storageTopics=topics, producePointer=len(topics) - 1)

    async def delete(self, name: str) -> None:
        """Delete a CompositeTopic."""
        await asyncio.to_thread(
            self._custom.delete_namespaced_custom_object,
            *(GROUP, VERSION, self.namespace, TOPIC.plural, name),
        )

    async def get(self, name: str, kind: Any = TOPIC) -> Manifest:
        """The whole object."""
        found: Manifest = await asyncio.to_thread(
            self._custom.get_namespaced_custom_object,
            *(GROUP, VERSION, self.namespace, kind.plural, name),
        )
        return found

    async def exists(self, name: str) -> bool:
        """Whether the CompositeTopic is still there."""
        try:
            await self.get(name)
        except client.ApiException as error:
            if error.status == 404:
                return False
            raise
        return True

    # What the operator says

    async def events(self, name: str) -> list[str]:
        """The reasons of all events about an object, sorted."""
        found = await asyncio.to_thread(
            self._core.list_namespaced_event, self.namespace, field_selector=f"involvedObject.name={name}"
        )
        return sorted(event.reason for event in found.items)

    async def status_when(
        self, name: str, what: str, holds: Callable[[Manifest], bool], *, kind: Any = TOPIC, within: float
    ) -> Manifest:
        """Wait until this is true of an object, and return its status."""
        last: Manifest = {}

        async def true_of_it() -> bool:
            nonlocal last
            last = await self.get(name, kind)
            return holds(last)

        def known() -> str:
            said = [
                f"{each['type']}={each['status']} {each['reason']}: {each['message']}"
                for each in last.get("status", {}).get("conditions", [])
            ]
            logs = [operator.last_words() for operator in self.operators]
            return "\n".join([f"{name} should be {what}, and says:", *said, *logs])

        await eventually(true_of_it, timeout=within, interval=EVERY, describe=known)
        status: Manifest = last["status"]
        return status

    async def ready(self, name: str, *, kind: Any = TOPIC, within: float = DEADLINE) -> Manifest:
        """Wait until it is Ready for the newest generation; its status."""
        return await self.status_when(
            name,
            "Ready",
            lambda found: _says(found, ConditionType.READY, Reason.READY),
            kind=kind,
            within=within,
        )

    async def says(self, name: str, reason: Reason, *, kind: Any = TOPIC, within: float = DEADLINE) -> str:
        """Wait until it gives this reason for the newest generation; the sentence that goes with it."""
        assert reason.condition is not None
        status = await self.status_when(
            name, reason, lambda found: _says(found, reason.condition, reason), kind=kind, within=within
        )
        return condition(status, reason.condition)["message"]

    # Pulsar

    def storage_topic(self, name: str, index: int) -> str:
        return storage_topic_name(self.pulsar_namespace, self.namespace, name, index)

    def descriptor_topic(self, name: str) -> str:
        return descriptor_topic_name(self.pulsar_namespace, self.namespace, name)

    def topics_of(self, name: str) -> str:
        """What the names of all topics of an object have in common, and no other's."""
        return f"/{self.namespace}.{name}-"

    async def descriptor(self, name: str) -> Descriptor:
        """What clients are told."""
        async with support.open_client() as connected:
            found = await descriptors.read(connected, self.descriptor_topic(name))
        assert found is not None, "there is no descriptor"
        return found

    async def write(self, topic: str, partitions: int, each: int) -> dict[int, list[EntryId]]:
        """Messages for every partition; where each of them is."""
        async with support.open_client() as connected:
            return {
                number: await blocking(_send, connected, partition_topic_name(topic, number), each)
                for number in range(partitions)
            }

    async def topics(self) -> set[str]:
        """Local names of all topics, partitions counted as one, that are not Pulsar's own."""
        names = {
            name.rpartition("/")[2].partition("-partition-")[0]
            for name in await self.admin.topics(self.pulsar_namespace)
        }
        partitioned = await self.admin.partitioned_topics(self.pulsar_namespace)
        return {
            name
            for name in names | {name.rpartition("/")[2] for name in partitioned}
            if not name.startswith("__")
        }

    async def ask_admin(self, method: str, path: str, body: object = None) -> None:
        """What an administrator of Pulsar does, and the operator never does."""
        credentials = self.admin.credentials
        async with (
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {credentials.bearer()}"}) as session,
            session.request(
                method,
                f"{credentials.admin_url.rstrip('/')}/admin/v2/{path}",
                json=body,
                ssl=credentials.tls_context() or True,
            ) as answer,
        ):
            assert answer.status < 300, f"{method} {path}: {answer.status} {await answer.text()}"

    async def remove_topics(self, locals_: Iterable[str]) -> None:
        """Remove these from Pulsar, in use or not."""
        await support.remove(
            self.admin, *(f"persistent://{self.pulsar_namespace}/{name}" for name in locals_)
        )


def condition(status: Manifest, kind: str) -> Manifest:
    """One condition of a status."""
    return next((each for each in status.get("conditions", []) if each["type"] == kind), {})


def good_token() -> str:
    """The token of the sandbox's administrator."""
    token = support.credentials().bearer()
    assert token is not None, "the sandbox's Pulsar asks for a token"
    return token


def _says(found: Manifest, kind: ConditionType | None, reason: Reason) -> bool:
    said = condition(found.get("status", {}), str(kind))
    return (said.get("status"), said.get("reason"), said.get("observedGeneration")) == (
        "True",
        reason,
        found["metadata"]["generation"],
    )


def _send(connected: pulsar.Client, topic: str, count: int) -> list[EntryId]:
    producer = connected.create_producer(topic, batching_enabled=False)
    try:
        return [entry_of(producer.send(b"%d" % number)) for number in range(count)]
    finally:
        producer.close()


@asynccontextmanager
async def open_place(api: client.ApiClient, directory: Path) -> AsyncIterator[Place]:
    """Both namespaces are made, and removed with all that is in them; operators that still run are killed."""
    name = f"ctl-{secrets.token_hex(3)}"
    core, custom = client.CoreV1Api(api), client.CustomObjectsApi(api)
    async with Admin(support.credentials()) as admin:
        place = Place(api, admin, directory, name)
        await place.ask_admin("PUT", f"namespaces/{place.pulsar_namespace}", {})
        core.create_namespace({"metadata": {"name": name}})
        try:
            yield place
        finally:
            for operator in place.operators:
                await operator.kill()
            for kind in (TOPIC, CONNECTION):
                for found in custom.list_namespaced_custom_object(GROUP, VERSION, name, kind.plural)["items"]:
                    await _remove(custom, kind, name, found["metadata"]["name"])
            core.delete_namespace(name)
            await place.remove_topics(await place.topics())
            await place.ask_admin("DELETE", f"namespaces/{place.pulsar_namespace}")


async def _remove(custom: client.CustomObjectsApi, kind: Any, namespace: str, name: str) -> None:
    where = (GROUP, VERSION, namespace, kind.plural, name)
    await asyncio.to_thread(custom.patch_namespaced_custom_object, *where, {"metadata": {"finalizers": None}})
    try:
        await asyncio.to_thread(custom.delete_namespaced_custom_object, *where)
    except client.ApiException as error:
        if error.status != 404:
            raise
