"""What a release brings: the CRDs as generated, one version everywhere, pods that restart for a reason."""

from __future__ import annotations

import hashlib
import tomllib
from typing import Any

import pytest
import yaml

from sandbox.layout import REPOSITORY
from tests.unit.chart import conformance, rendering

CONNECTION = "defaultConnection.serviceUrl=pulsar://elsewhere:6650"


def pod_template(*arguments: str) -> dict[str, Any]:
    outcome = rendering.template("--values", str(rendering.HERE / "values" / "namespaced.yaml"), *arguments)
    assert outcome.code == 0, outcome.stderr
    (deployment,) = [item for item in yaml.safe_load_all(outcome.stdout) if item["kind"] == "Deployment"]
    template: dict[str, Any] = deployment["spec"]["template"]
    return template


def test_the_charts_crds_are_copies_of_the_generated_ones() -> None:
    generated = {path.name: path.read_text() for path in (REPOSITORY / "crds").glob("*.yaml")}
    shipped = {path.name: path.read_text() for path in (rendering.CHART / "files" / "crds").glob("*.yaml")}
    assert generated
    assert shipped == generated, "run `make crds`"


def test_the_crds_are_rendered_unchanged_and_survive_an_uninstall() -> None:
    rendered = {
        crd["metadata"]["name"]: crd for crd in rendering.of_kind("defaults", "CustomResourceDefinition")
    }
    assert {name: crd["spec"] for name, crd in rendered.items()} == {
        crd["metadata"]["name"]: crd["spec"] for crd in conformance.custom_resources()
    }
    for crd in rendered.values():
        assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_the_crds_can_be_left_to_somebody_else() -> None:
    assert rendering.of_kind("bare", "CustomResourceDefinition") == []


def test_the_chart_the_package_and_the_image_have_one_version() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((rendering.CHART / "Chart.yaml").read_text())
    (_, spec) = next(rendering.pod_specs("defaults"))
    assert chart["version"] == chart["appVersion"] == project
    assert spec["containers"][0]["image"].endswith(f":{project}")


def test_a_changed_connection_restarts_the_pods_and_nothing_else_about_the_release_does() -> None:
    before = pod_template()
    assert pod_template("--set", CONNECTION) != before
    assert pod_template("--set", "podDisruptionBudget.enabled=false,rbac.create=false") == before


def test_a_new_chart_version_alone_restarts_nothing() -> None:
    labels = pod_template()["metadata"]["labels"]
    assert not {"helm.sh/chart", "app.kubernetes.io/version"} & labels.keys()


def test_the_checksum_is_that_of_the_document_the_operator_reads() -> None:
    (config,) = rendering.of_kind("namespaced", "ConfigMap")
    document = config["data"]["default-connection.yaml"].removesuffix("\n")
    checksum = pod_template()["metadata"]["annotations"]["checksum/default-connection"]
    assert checksum == hashlib.sha256(document.encode()).hexdigest()


@pytest.mark.parametrize("case", ["defaults", "everything", "namespaced"])
def test_a_rollout_never_has_fewer_replicas_than_asked_for(case: str) -> None:
    (deployment,) = rendering.of_kind(case, "Deployment")
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_every_selector_finds_the_operators_pods_and_not_the_tests() -> None:
    (deployment,) = rendering.of_kind("everything", "Deployment")
    (test,) = rendering.of_kind("everything", "Pod")
    pods = deployment["spec"]["template"]["metadata"]["labels"].items()
    selectors = [
        deployment["spec"]["selector"]["matchLabels"],
        *(item["spec"]["selector"] for item in rendering.of_kind("everything", "Service")),
        *(
            item["spec"]["selector"]["matchLabels"]
            for item in rendering.of_kind("everything", "PodDisruptionBudget")
        ),
        *(
            item["spec"]["podSelector"]["matchLabels"]
            for item in rendering.of_kind("everything", "NetworkPolicy")
        ),
    ]
    for selector in selectors:
        assert selector.items() <= pods
        assert not selector.items() <= test["metadata"]["labels"].items()
