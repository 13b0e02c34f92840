"""A namespace of this run's own on a real API server with the generated CRDs."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from kubernetes import client

from millrace.api import GROUP, VERSION
from millrace.api.crds import KINDS
from tests.integration.api.apiserver import ApiServer


@pytest.fixture(scope="session")
def api_server(api_client: client.ApiClient, definitions: client.ApiextensionsV1Api) -> Iterator[ApiServer]:
    core = client.CoreV1Api(api_client)
    namespace = f"api-{secrets.token_hex(4)}"
    core.create_namespace({"metadata": {"name": namespace}})
    custom = client.CustomObjectsApi(api_client)
    yield ApiServer(custom, namespace)
    # Without a controller manager nobody would empty the namespace.
    for kind in KINDS:
        custom.delete_collection_namespaced_custom_object(GROUP, VERSION, namespace, kind.plural)
    core.delete_namespace(namespace)
