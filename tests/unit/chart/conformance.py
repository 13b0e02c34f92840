"""kubeconform over schemas that are in the repository: Kubernetes' own, and those of our CRDs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from sandbox import builds
from sandbox.layout import REPOSITORY

_KUBERNETES = Path(__file__).resolve().parent / "kubernetes.json"
_OBJECT = {"type": "object", "required": ["apiVersion", "kind", "metadata"]}


def kubernetes() -> dict[str, Any]:
    """The committed schemas; `derive_schemas.py` writes them."""
    document: dict[str, Any] = json.loads(_KUBERNETES.read_text())
    return document


def custom_resources() -> list[dict[str, Any]]:
    """The CRDs as generated."""
    return [yaml.safe_load(path.read_text()) for path in sorted((REPOSITORY / "crds").glob("*.yaml"))]


def write_schemas(directory: Path) -> None:
    """One file a kind, under the name by which kubeconform is told to look for it."""
    document = kubernetes()
    for name, definition in document["kinds"].items():
        api_version, _, kind = name.rpartition("/")
        schema = {"$ref": f"#/definitions/{definition}", "definitions": document["definitions"]}
        _write(directory, kind, api_version, schema)
    for crd in custom_resources():
        for version in crd["spec"]["versions"]:
            schema = {**_closed(version["schema"]["openAPIV3Schema"]), **_OBJECT}
            schema["properties"] |= {"metadata": {"type": "object"}}
            _write(
                directory, crd["spec"]["names"]["kind"], f"{crd['spec']['group']}/{version['name']}", schema
            )


def _closed(node: Any) -> Any:
    """The API server prunes unknown fields; here they are errors."""
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    closed = {key: _closed(value) for key, value in node.items()}
    if isinstance(closed.get("properties"), dict) and closed.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed


def _write(directory: Path, kind: str, api_version: str, schema: dict[str, Any]) -> None:
    # kubeconform calls the core group by its version.
    group, version = api_version.partition("/")[0], api_version.rpartition("/")[2]
    (directory / f"{kind}_{group}_{version}.json".lower()).write_text(json.dumps(schema))


def complaints(schemas: Path, manifests: str, *, skip: str = "") -> list[str]:
    """What kubeconform has against some manifests, one line a finding."""
    location = f"{schemas}/{{{{.ResourceKind}}}}_{{{{.Group}}}}_{{{{.ResourceAPIVersion}}}}.json"
    done = subprocess.run(
        [
            str(builds.program("kubeconform")),
            "-strict",
            "-output=json",
            f"-skip={skip}",
            f"-schema-location={location}",
            "-",
        ],
        input=manifests,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)["resources"] or []
    return [f"{item['kind']}/{item['name']}: {item['status']} {item['msg']}" for item in found]
