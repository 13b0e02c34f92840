"""What docs/gitops.md tells people to paste: the Lua health check runs in the Lua that Argo CD runs, 5.1."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from lupa.lua51 import LuaRuntime  # type: ignore[import-untyped]

from sandbox.layout import REPOSITORY

GUIDE = (REPOSITORY / "docs" / "gitops.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
PREFIX = "resource.customizations.health.millrace.dev_"


def documents() -> list[dict[str, Any]]:
    return [document for block in BLOCKS for document in yaml.safe_load_all(block)]


def health_scripts() -> dict[str, str]:
    (config,) = [document for document in documents() if document["metadata"]["name"] == "argocd-cm"]
    return {key.removeprefix(PREFIX): script for key, script in config["data"].items()}


def to_lua(lua: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return lua.table_from({key: to_lua(lua, item) for key, item in value.items()})
    if isinstance(value, list):
        return lua.table_from([to_lua(lua, item) for item in value])
    return value


def health(obj: dict[str, Any], kind: str = "CompositeTopic") -> tuple[str, str]:
    """Status and message, by a runtime with nothing in it but the object."""
    lua = LuaRuntime(register_eval=False, unpack_returned_tuples=True)
    lua.globals().obj = to_lua(lua, obj)
    answer = lua.execute(health_scripts()[kind])
    return answer["status"], answer["message"]


def condition(kind: str, status: str, *, generation: int = 2, reason: str = "Why") -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": f"{kind} is {status}",
        "observedGeneration": generation,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def topic(*conditions: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "millrace.dev/v1alpha1",
        "kind": "CompositeTopic",
        "metadata": {"name": "orders", "generation": 2, **metadata},
        "status": {"observedGeneration": 2, "conditions": list(conditions)},
    }


@pytest.mark.parametrize("kind", ["CompositeTopic", "PulsarConnection"])
def test_every_kind_has_a_health_check(kind: str) -> None:
    assert health(topic(condition("Ready", "True")), kind) == ("Healthy", "Ready is True")


def test_an_object_that_the_operator_never_saw_is_progressing() -> None:
    unseen = topic()
    del unseen["status"]
    assert health(unseen)[0] == "Progressing"
    assert health({**unseen, "status": {}})[0] == "Progressing"


def test_an_object_that_is_being_worked_on_is_progressing_and_says_why() -> None:
    waiting = topic(condition("Reconciling", "True"), condition("Ready", "False"))
    assert health(waiting) == ("Progressing", "Ready is False")


def test_a_stalled_object_is_degraded_with_its_reason() -> None:
    stalled = topic(condition("Ready", "False"), condition("Stalled", "True", reason="ForeignOwner"))
    assert health(stalled) == ("Degraded", "ForeignOwner: Stalled is True")


@pytest.mark.parametrize("kind", ["Ready", "Stalled"])
def test_what_was_said_of_an_older_generation_does_not_count(kind: str) -> None:
    assert health(topic(condition(kind, "True", generation=1)))[0] == "Progressing"


def test_an_object_that_is_no_longer_stalled_is_judged_by_ready() -> None:
    assert health(topic(condition("Stalled", "False"), condition("Ready", "True")))[0] == "Healthy"


def test_data_at_risk_is_told_though_the_topic_works() -> None:
    risky = topic(condition("Ready", "True"), condition("DataAtRisk", "True"))
    assert health(risky) == ("Healthy", "data at risk: DataAtRisk is True")


def test_a_paused_object_is_suspended() -> None:
    paused = topic(condition("Ready", "True"), annotations={"millrace.dev/paused": "true"})
    assert health(paused)[0] == "Suspended"


def test_an_object_that_goes_away_is_progressing_whatever_it_was() -> None:
    leaving = topic(condition("Ready", "True"), deletionTimestamp="2026-01-01T00:00:00Z")
    assert health(leaving) == ("Progressing", "being deleted")


def test_every_other_block_is_a_named_object() -> None:
    for document in documents():
        assert document["apiVersion"]
        assert document["kind"]
        assert document["metadata"]["name"]
