"""A real API server, and the generated CRDs in it for as long as the tests run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import yaml
from kubernetes import client, config, watch

from millrace.api.crds import KINDS, render


@pytest.fixture(scope="session")
def api_client() -> Iterator[client.ApiClient]:
    if "KUBECONFIG" not in os.environ:
        pytest.fail("KUBECONFIG is not set: run this with `python -m sandbox --name test exec -- pytest ...`")
    config.load_kube_config()
    with client.ApiClient() as connected:
        yield connected


@pytest.fixture(scope="session")
def definitions(api_client: client.ApiClient) -> Iterator[client.ApiextensionsV1Api]:
    """The CRDs as they are in the working tree, applied and established; removed if they were not there."""
    api = client.ApiextensionsV1Api(api_client)
    there = {crd.metadata.name for crd in api.list_custom_resource_definition().items}
    ours = {kind.crd_name for kind in KINDS}
    if there & ours:
        pytest.fail(
            "the CRDs are installed already, perhaps with an operator that would interfere: use a sandbox "
            "without the release (`python -m sandbox up --without-release`), as `make test` does"
        )
    _apply_definitions(api)
    yield api
    for name in ours:
        api.delete_custom_resource_definition(name)


def _apply_definitions(api: client.ApiextensionsV1Api) -> None:
    for text in render().values():
        crd = yaml.safe_load(text)
        api.patch_custom_resource_definition(
            crd["metadata"]["name"],
            crd,
            field_manager="millrace-tests",
            force=True,
            _content_type="application/apply-patch+yaml",
        )
    waiting = {kind.crd_name for kind in KINDS}
    for event in watch.Watch().stream(api.list_custom_resource_definition, timeout_seconds=30):
        conditions = {each.type: each.status for each in event["object"].status.conditions or []}
        if conditions.get("Established") == "True":
            waiting.discard(event["object"].metadata.name)
        if not waiting:
            return
    pytest.fail(f"not established after 30 s: {waiting}")
