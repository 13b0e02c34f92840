"""What the chart renders, and what the examples say, is what Kubernetes' schemas and our CRDs take."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox import builds
from sandbox.layout import REPOSITORY
from tests.unit.chart import conformance, rendering

EXAMPLES = sorted((REPOSITORY / "examples").glob("*.yaml"))
# Their schemas belong to the Prometheus Operator and to the spark-operator; the snapshot of "everything"
# shows the first, and tests/e2e/test_spark.py applies the second.
FOREIGN = "ServiceMonitor,SparkApplication"


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("schemas")
    conformance.write_schemas(directory)
    return directory


def test_the_committed_schemas_are_those_of_the_kubernetes_that_the_sandbox_runs() -> None:
    assert conformance.kubernetes()["version"] == builds.BUILDS["kube"].version, "run derive_schemas.py again"


@pytest.mark.parametrize("case", rendering.CASES)
def test_every_manifest_conforms(schemas: Path, case: str) -> None:
    assert conformance.complaints(schemas, rendering.rendered(case), skip=FOREIGN) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_conforms(schemas: Path, example: Path) -> None:
    assert conformance.complaints(schemas, example.read_text(), skip=FOREIGN) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("readOnlyRootFilesystem", "readOnlyRootFileSystem"),
        ("replicas: 2", "replicas: two"),
        ("kind: Deployment", "kind: Deploymint"),
        ("policyTypes: [Ingress, Egress]", "policyTypes: Ingress"),
    ],
)
def test_a_mistake_in_a_manifest_is_noticed(schemas: Path, right: str, wrong: str) -> None:
    case = "everything" if "policyTypes" in right else "defaults"
    broken = rendering.rendered(case).replace(right, wrong)
    assert broken != rendering.rendered(case)
    assert conformance.complaints(schemas, broken, skip=FOREIGN) != []


def test_a_mistake_in_an_example_is_noticed(schemas: Path) -> None:
    broken = (
        (REPOSITORY / "examples" / "composite-topic.yaml").read_text().replace("partitions:", "partition:")
    )
    assert conformance.complaints(schemas, broken) != []
