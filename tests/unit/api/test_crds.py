from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from millrace.api import crds, reference
from millrace.api.crds import KINDS, definition
from millrace.api.schemas import SchemaError, structural
from millrace.api.validations import Rule

REPOSITORY = Path(__file__).parents[3]


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in a schema, with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{path}[]")


def root(kind: crds.Kind) -> dict[str, Any]:
    schema: dict[str, Any] = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def test_the_files_are_what_the_models_say() -> None:
    assert crds.main([str(REPOSITORY / "crds"), "--check"]) == 0, "run `make crds`"


def test_the_pages_are_what_the_models_say() -> None:
    assert reference.main([str(REPOSITORY / "docs"), "--check"]) == 0, "run `make crds`"


def test_the_check_notices_a_changed_a_missing_and_a_left_over_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert crds.main([str(tmp_path)]) == 0
    assert crds.main([str(tmp_path), "--check"]) == 0
    changed, missing, *_ = sorted(crds.render())
    (tmp_path / changed).write_text("changed: true\n")
    (tmp_path / missing).unlink()
    (tmp_path / "left-over.yaml").touch()

    assert crds.main([str(tmp_path), "--check"]) == 1
    said = capsys.readouterr().err
    assert all(name in said for name in (changed, missing, "left-over.yaml"))


def test_the_files_read_back_as_the_definitions() -> None:
    assert [yaml.safe_load(text) for text in crds.render().values()] == [definition(kind) for kind in KINDS]


def test_the_files_can_stand_in_a_helm_template() -> None:
    assert not any("{{" in text for text in crds.render().values())


@every_kind
def test_no_schema_preserves_unknown_fields(kind: crds.Kind) -> None:
    assert not [path for path, node in nodes(root(kind)) if "x-kubernetes-preserve-unknown-fields" in node]


@every_kind
def test_every_field_has_a_description(kind: crds.Kind) -> None:
    bare = [path for path, node in nodes(root(kind)) if "description" not in node and not path.endswith("[]")]

    assert bare == [".metadata"]


@every_kind
def test_every_string_and_list_of_the_spec_is_bounded_for_the_cost_of_rules(kind: crds.Kind) -> None:
    # A moment is bounded by its format, a map by the number of its entries.
    bounds = {
        "string": {"maxLength", "enum", "format"},
        "array": {"maxItems"},
        "object": {"maxProperties", "properties"},
    }
    unbounded = [
        path
        for path, node in nodes(root(kind)["properties"]["spec"])
        if node.get("type") in bounds and not bounds[node["type"]] & node.keys()
    ]

    assert unbounded == []


@every_kind
def test_every_list_says_how_it_is_merged(kind: crds.Kind) -> None:
    lists = [node for _, node in nodes(root(kind)) if node.get("type") == "array"]

    assert all("x-kubernetes-list-type" in node for node in lists)


@every_kind
def test_rules_about_a_change_stand_on_the_spec(kind: crds.Kind) -> None:
    places = {
        path
        for path, node in nodes(root(kind))
        for rule in node.get("x-kubernetes-validations", [])
        if "oldSelf" in rule["rule"]
    }

    assert places <= {".spec"}


@every_kind
def test_a_status_has_no_defaults(kind: crds.Kind) -> None:
    assert not [path for path, node in nodes(root(kind)["properties"]["status"]) if "default" in node]


def test_a_message_with_a_number_becomes_an_expression() -> None:
    wire = Rule("self.a < self.b", "a is {self.a}, so b must be more than {self.a}, not {self.b}").to_wire()

    assert wire["message"] == "a is N, so b must be more than N, not N"
    assert wire["messageExpression"] == (
        '"a is %d, so b must be more than %d, not %d".format([self.a, self.a, self.b])'
    )


def test_a_union_is_refused_since_a_structural_schema_has_none() -> None:
    class Either(BaseModel):
        value: int | str

    with pytest.raises(SchemaError, match=r"Either\.value.*no unions"):
        structural(Either)


def test_a_constraint_that_would_be_lost_is_refused() -> None:
    class Free(BaseModel):
        values: dict[str, dict[int, object]]

    with pytest.raises(SchemaError, match=r"Free\.values"):
        structural(Free)
