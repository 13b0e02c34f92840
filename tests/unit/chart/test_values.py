"""Values that make no sense are refused in words that say what to do; those that are taken are documented."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.unit.chart import conformance, rendering

CONNECTION = (
    "defaultConnection.enabled=true,defaultConnection.serviceUrl=pulsar://p:6650,"
    "defaultConnection.adminUrl=http://p:8080,defaultConnection.pulsarNamespaces={public/default}"
)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((rendering.CHART / "values.schema.json").read_text())
    return document


@pytest.mark.parametrize("case", rendering.CASES)
def test_helm_lint_finds_nothing(case: str) -> None:
    values = rendering.HERE / "values" / f"{case}.yaml"
    outcome = rendering.helm("lint", "--strict", str(rendering.CHART), "--values", str(values))
    assert outcome.code == 0, outcome.stdout + outcome.stderr


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("replicaCount=3", "additional properties 'replicaCount' not allowed"),
        ("image.tags=latest", "additional properties 'tags' not allowed"),
        ("replicas=two", "at '/replicas': got string, want integer"),
        ("image.pullPolicy=Sometimes", "'Always', 'IfNotPresent', 'Never'"),
        ("image.digest=sha256:beef", "at '/image/digest'"),
        ("clusterId=Production_EU", "at '/clusterId'"),
        ("watchNamespaces={Team_A},clusterId=c", "at '/watchNamespaces/0'"),
        ("watchNamespaces={a,a},clusterId=c", "at '/watchNamespaces': items at 0 and 1 are equal"),
        ("metrics.port=80", "at '/metrics/port': minimum: got 80, want 1,024"),
        ("log.format=xml", "at '/log/format': value must be one of 'json', 'text'"),
        (f"{CONNECTION},defaultConnection.serviceUrl=http://p:8080", "at '/defaultConnection/serviceUrl'"),
        (
            f"{CONNECTION},defaultConnection.pulsarNamespaces={{public}}",
            "'/defaultConnection/pulsarNamespaces/0'",
        ),
        (
            f"{CONNECTION},defaultConnection.adminSecretRef.secret=x",
            "additional properties 'secret' not allowed",
        ),
        ("watchNamespaces={a}", "clusterId is missing"),
        ("watchNamespaces={a},clusterId=c,secretNamespaces={b}", "add its namespaces to watchNamespaces"),
        ("defaultConnection.enabled=true", "defaultConnection.serviceUrl is missing"),
        (
            f"{CONNECTION},watchNamespaces={{a}},clusterId=c",
            f'namespace "{rendering.NAMESPACE}", which is not watched',
        ),
        (
            f"{CONNECTION},defaultConnection.auth.type=Token",
            "defaultConnection.adminSecretRef.name is missing",
        ),
        (f"{CONNECTION},defaultConnection.adminSecretRef.name=s", "defaultConnection.auth.type is missing"),
        ("serviceAccount.create=false", "say which ServiceAccount the operator runs as"),
    ],
)
def test_bad_values_are_refused_with_words_that_help(values: str, words: str) -> None:
    outcome = rendering.template("--set", values)
    assert outcome.code != 0
    assert words in outcome.stderr


def test_an_older_kubernetes_is_refused() -> None:
    outcome = rendering.helm("template", str(rendering.CHART), "--kube-version", "v1.29.0")
    assert "requires kubeVersion: >=1.30.0-0" in outcome.stderr


def test_the_schema_and_the_documented_values_have_the_same_keys(schema: dict[str, Any]) -> None:
    def compare(where: str, properties: dict[str, Any], values: dict[str, Any]) -> None:
        assert properties.keys() - {"global"} == values.keys(), where
        for key, value in values.items():
            if isinstance(value, dict) and value and "properties" in properties[key]:
                known = properties[key]["properties"]
                # Quantities are free to choose.
                if key != "resources":
                    compare(f"{where}.{key}", known, value)

    compare("values", schema["properties"], yaml.safe_load((rendering.CHART / "values.yaml").read_text()))


def test_the_default_connection_takes_the_fields_of_a_pulsarconnection(schema: dict[str, Any]) -> None:
    def resolve(node: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
        return found

    def compare(where: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
        assert ours.keys() == theirs.keys(), where
        for key, child in theirs.items():
            if "properties" in child:
                compare(f"{where}.{key}", resolve(ours[key])["properties"], child["properties"])

    (crd,) = [
        crd for crd in conformance.custom_resources() if crd["spec"]["names"]["kind"] == "PulsarConnection"
    ]
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    values = dict(schema["properties"]["defaultConnection"]["properties"])
    for own in ("enabled", "name", "namespaces"):
        del values[own]
    # The default connection is the default one.
    assert spec.pop("isDefault")
    compare("defaultConnection", values, spec)
