"""The rendered chart is compared with what was reviewed. `MILLRACE_UPDATE_SNAPSHOTS=1` writes it anew."""

from __future__ import annotations

import os
import re

import pytest

from tests.unit.chart import rendering


def without_crds(manifests: str) -> str:
    """The CRDs have a test of their own, and would make up most of every snapshot."""
    parts = re.split(r"^---\n", manifests, flags=re.MULTILINE)
    return "---\n".join(part for part in parts if "\nkind: CustomResourceDefinition\n" not in part)


@pytest.mark.parametrize("case", rendering.CASES)
def test_the_rendered_chart_is_as_it_was_reviewed(case: str) -> None:
    snapshot = rendering.HERE / "snapshots" / f"{case}.yaml"
    actual = without_crds(rendering.rendered(case))
    if os.environ.get("MILLRACE_UPDATE_SNAPSHOTS") == "1":
        snapshot.write_text(actual)
    assert actual == snapshot.read_text(), (
        "if this is meant, set MILLRACE_UPDATE_SNAPSHOTS=1 and review the change"
    )


def test_every_snapshot_belongs_to_a_file_of_values() -> None:
    assert sorted(path.stem for path in (rendering.HERE / "snapshots").glob("*.yaml")) == rendering.CASES


@pytest.mark.parametrize("case", rendering.CASES)
def test_rendering_twice_gives_the_same(case: str) -> None:
    again = rendering.template("--values", str(rendering.HERE / "values" / f"{case}.yaml"))
    assert again.stdout == rendering.rendered(case)


def test_no_template_is_random_asks_the_cluster_or_reads_the_clock() -> None:
    forbidden = re.compile(
        r"\b(lookup|rand\w+|uuidv4|now|genCA|gen\w+Cert|genPrivateKey|htpasswd|\.Release\.(Revision|IsUpgrade|IsInstall))\b"
    )
    for path in (rendering.CHART / "templates").rglob("*"):
        if path.is_file():
            actions = re.findall(r"{{.*?}}", path.read_text(), flags=re.DOTALL)
            assert [action for action in actions if forbidden.search(action)] == [], path
