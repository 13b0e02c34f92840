"""Helm as a platform team uses it, and what a release must never do: create anything anew."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.e2e import cluster
from tests.e2e.cluster import Manifest

CHART = Path(__file__).resolve().parents[2] / "charts" / "millrace"
CRDS = ("compositetopics.millrace.dev", "pulsarconnections.millrace.dev")
TIMEOUT = "180s"


async def helm(*arguments: str, stdin: str | None = None) -> str:
    """Run Helm; what it printed, or a failure with what it said."""
    with tempfile.TemporaryDirectory(prefix="helm-") as scratch:
        places = {f"HELM_{kind}_HOME": f"{scratch}/{kind}" for kind in ("CACHE", "CONFIG", "DATA")}
        process = await asyncio.create_subprocess_exec(
            "helm",
            *arguments,
            env={**os.environ, **places},
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate(stdin.encode() if stdin is not None else None)
    assert process.returncode == 0, f"helm {' '.join(arguments[:2])}: {err.decode()} {out.decode()}"
    return out.decode()


@dataclass(frozen=True, slots=True)
class Release:
    """One release, by name and namespace."""

    name: str
    namespace: str

    async def install(self, values: Manifest, chart: Path = CHART) -> None:
        """Install it, or upgrade it to these values, and wait until its pods are available."""
        await helm(
            *("upgrade", "--install", self.name, str(chart), "--namespace", self.namespace),
            *("--values", "-", "--wait", "--timeout", TIMEOUT),
            stdin=json.dumps(values),
        )

    async def roll_back(self, revision: int = 0) -> None:
        """Back to a revision, or to the one before."""
        target = [str(revision)] if revision else []
        await helm(
            "rollback", self.name, *target, "--namespace", self.namespace, "--wait", "--timeout", TIMEOUT
        )

    async def uninstall(self) -> None:
        await helm("uninstall", self.name, "--namespace", self.namespace, "--wait", "--timeout", TIMEOUT)

    async def test(self) -> str:
        return await helm("test", self.name, "--namespace", self.namespace, "--timeout", TIMEOUT)

    async def values(self) -> Manifest:
        """What was given at its installation."""
        told = await helm("get", "values", self.name, "--namespace", self.namespace, "--output", "json")
        values: Manifest = json.loads(told) or {}
        return values

    async def history(self) -> list[Manifest]:
        """Its revisions, the current one last."""
        told = await helm("history", self.name, "--namespace", self.namespace, "--output", "json")
        revisions: list[Manifest] = json.loads(told)
        return revisions

    async def pods(self) -> set[str]:
        """The UIDs of the operator's pods, without those on their way out."""
        selector = f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component=operator"
        told = await cluster.kubectl("get", "pods", "-n", self.namespace, "-l", selector, "-o", "json")
        pods = (item["metadata"] for item in json.loads(told)["items"])
        return {pod["uid"] for pod in pods if "deletionTimestamp" not in pod}


def under_test() -> Release:
    """The release that the other tests use, too."""
    return Release(cluster.RELEASE, cluster.RELEASE_NAMESPACE)


def newer_chart(directory: Path) -> Path:
    """A copy of the chart as its next version would be: a higher number, and definitions that say so."""
    copy = directory / "millrace"
    shutil.copytree(CHART, copy)
    description = yaml.safe_load((copy / "Chart.yaml").read_text())
    major, minor, _ = description["version"].split(".")
    description["version"] = f"{major}.{int(minor) + 1}.0"
    (copy / "Chart.yaml").write_text(yaml.safe_dump(description))
    for path in (copy / "files" / "crds").glob("*.yaml"):
        definition = yaml.safe_load(path.read_text())
        definition["metadata"].setdefault("annotations", {})["example.com/chart"] = description["version"]
        path.write_text(yaml.safe_dump(definition))
    return copy


async def definitions() -> dict[str, Manifest]:
    """The metadata of the custom resource definitions."""
    told = json.loads(await cluster.kubectl("get", "crd", *CRDS, "-o", "json"))
    return {item["metadata"]["name"]: item["metadata"] for item in told["items"]}


async def identity(name: str, namespace: str) -> dict[str, Any]:
    """All that would change if a topic, its connection or anything of theirs in Pulsar were made anew."""
    topic = await cluster.get("ct", name, namespace)
    connection = await cluster.get("pulsarconnection", "pulsar", namespace)
    status = topic["status"]
    kept = ("uid", "creationTimestamp", "resourceVersion", "generation")
    found: dict[str, Any] = {
        "object": {key: topic["metadata"][key] for key in kept},
        "connection": {key: connection["metadata"][key] for key in ("uid", "creationTimestamp")},
        "descriptor": (status["descriptorTopic"], status["descriptorGeneration"]),
        "storage topics": [
            {key: each[key] for key in ("topic", "partitions", "k")} for each in status["storageTopics"]
        ],
    }
    async with cluster.admin() as admin:
        for stored in status["storageTopics"]:
            found[stored["topic"]] = (await admin.partitioned_topic(stored["topic"])).properties
            for partition in range(stored["partitions"]):
                part = f"{stored['topic']}-partition-{partition}"
                # A topic that is made anew begins with another ledger; one that was sealed empty has none.
                found[part] = next((each.ledger for each in (await admin.internal_stats(part)).ledgers), None)
        found[status["descriptorTopic"]] = await admin.properties(status["descriptorTopic"])
    return found
