"""The chart as Helm renders it, for every set of values that the tests look at.

The tests run the Helm and kubeconform that the sandbox pins. A Helm built from its module alone renders for
an ancient Kubernetes, so the version the sandbox runs is always named.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from sandbox import builds
from sandbox.layout import REPOSITORY

CHART = REPOSITORY / "charts" / "millrace"
HERE = Path(__file__).resolve().parent
CASES = sorted(path.stem for path in (HERE / "values").glob("*.yaml"))
RELEASE, NAMESPACE = "millrace", "millrace-system"

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What Helm said: the manifests, or why it refused."""

    code: int
    stdout: str
    stderr: str


def helm(*arguments: str) -> Outcome:
    """Run Helm without a cluster."""
    done = subprocess.run(
        [str(builds.program("helm")), *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def template(*arguments: str) -> Outcome:
    """Render the chart."""
    version = builds.BUILDS["kube"].version
    return helm(
        "template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--kube-version", version, *arguments
    )


@cache
def rendered(case: str) -> str:
    """The manifests of one of the files in `values/`."""
    outcome = template("--values", str(HERE / "values" / f"{case}.yaml"))
    assert outcome.code == 0, outcome.stderr
    return outcome.stdout


def documents(case: str) -> list[Document]:
    """The same, parsed."""
    return [document for document in yaml.safe_load_all(rendered(case)) if document]


def of_kind(case: str, *kinds: str) -> list[Document]:
    """Only the documents of some kinds."""
    return [document for document in documents(case) if document["kind"] in kinds]


def pod_specs(case: str) -> Iterator[tuple[str, Document]]:
    """Every pod that the chart starts, with a name to report."""
    for document in of_kind(case, "Deployment"):
        yield f"Deployment/{document['metadata']['name']}", document["spec"]["template"]["spec"]
    for document in of_kind(case, "Pod"):
        yield f"Pod/{document['metadata']['name']}", document["spec"]
