"""Writes `kubernetes.json`: the published OpenAPI schemas of just the kinds that the chart renders.

kubeconform usually downloads schemas; the tests must not depend on that. Run this when the sandbox's
Kubernetes version changes (a test says so): `PYTHONPATH=dev python tests/unit/chart/derive_schemas.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sandbox import builds

TARGET = Path(__file__).resolve().parent / "kubernetes.json"
KINDS = {
    "apiextensions.k8s.io/v1": ["CustomResourceDefinition"],
    "apps/v1": ["Deployment"],
    "networking.k8s.io/v1": ["NetworkPolicy"],
    "policy/v1": ["PodDisruptionBudget"],
    "rbac.authorization.k8s.io/v1": ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
    "v1": ["ConfigMap", "Pod", "Service", "ServiceAccount"],
}
_PREFIX = "#/definitions/"


def strict(node: Any) -> Any:
    """A schema without prose, in which a misspelled field is an error."""
    if isinstance(node, list):
        return [strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("format") == "int-or-string":
        return {"type": ["integer", "string"]}
    kept: dict[str, Any] = {}
    for key, value in node.items():
        if key == "properties":
            kept[key] = {name: strict(schema) for name, schema in value.items()}
        elif key in {"$ref", "type", "items", "required", "enum", "additionalProperties"}:
            kept[key] = strict(value)
    if "properties" in kept:
        kept.setdefault("additionalProperties", False)
    return kept


def references(node: Any) -> set[str]:
    """The definitions that a schema names."""
    if isinstance(node, list):
        return set().union(*map(references, node))
    if not isinstance(node, dict):
        return set()
    found = {value.removeprefix(_PREFIX)} if isinstance(value := node.get("$ref"), str) else set()
    return found.union(*map(references, node.values()))


def derive(definitions: dict[str, Any]) -> dict[str, Any]:
    """Every kind's definition, and all that these refer to."""
    roots = {
        f"{api_version}/{kind}": name
        for name, schema in definitions.items()
        for gvk in schema.get("x-kubernetes-group-version-kind", [])
        if (kind := gvk["kind"])
        in KINDS.get(api_version := f"{gvk['group']}/{gvk['version']}".removeprefix("/"), [])
    }
    needed: dict[str, Any] = {}
    waiting = set(roots.values())
    while waiting:
        name = waiting.pop()
        needed[name] = _definition(name, definitions[name])
        waiting |= references(needed[name]) - needed.keys()
    return {"kinds": roots, "definitions": needed}


def _definition(name: str, schema: dict[str, Any]) -> Any:
    # It says "string" in the document, and takes numbers too.
    if name.endswith(".Quantity"):
        return {"type": ["string", "number"]}
    return strict(schema)


if __name__ == "__main__":
    build = builds.BUILDS["kube"]
    swagger = builds.module_directory(build, "k8s.io/kubernetes") / "api" / "openapi-spec" / "swagger.json"
    document = {"version": build.version, **derive(json.loads(swagger.read_text())["definitions"])}
    TARGET.write_text(json.dumps(document, separators=(",", ":"), sort_keys=True) + "\n")
