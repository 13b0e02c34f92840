"""From what pydantic says of a model (JSON Schema 2020-12) to what Kubernetes accepts (a structural schema).

Structural means: no references, no unions, a type everywhere. What cannot be said that way is an error here
and not a silently weaker schema there.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

JsonObject = dict[str, Any]

INT_OR_STRING = "x-kubernetes-int-or-string"
"""What Kubernetes has in place of a type where people write 1 as well as 500m."""

_KEPT = {
    "type", "format", "enum", "default", "required",
    "minimum", "exclusiveMinimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
    "maxProperties",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-validations",
    INT_OR_STRING,
}  # fmt: skip
_DROPPED = {"title", "readOnly", "description", "properties", "items", "additionalProperties"}


class SchemaError(Exception):
    """A model uses something that a structural schema cannot express."""


def structural(model: type[BaseModel], *, defaults: bool = True) -> JsonObject:
    """The structural schema of a model; for a status without `defaults`, for only its writer fills it in."""
    document = model.model_json_schema(mode="serialization")
    return _structural(document, document.get("$defs", {}), defaults, model.__name__)


def _structural(node: JsonObject, definitions: JsonObject, defaults: bool, path: str) -> JsonObject:
    node = _resolved(node, definitions, path)
    unknown = node.keys() - _KEPT - _DROPPED
    if unknown or not {"type", INT_OR_STRING} & node.keys():
        raise SchemaError(f"{path}: cannot be put into a structural schema: {sorted(unknown) or 'no type'}")

    schema: JsonObject = {}
    if "description" in node:
        schema["description"] = " ".join(node["description"].split())
    schema |= {key: value for key, value in node.items() if key in _KEPT}
    if not defaults or schema.get("default", ...) is None:
        schema.pop("default", None)
    elif isinstance(schema.get("default"), dict):
        schema["default"] = {key: value for key, value in schema["default"].items() if value is not None}
    if "exclusiveMinimum" in schema:
        # JSON Schema has a number here, OpenAPI 3.0 a mark beside `minimum`.
        schema |= {"minimum": schema["exclusiveMinimum"], "exclusiveMinimum": True}
    if node.get("type") == "integer":
        schema.setdefault("format", "int32")
    if "items" in node:
        schema["items"] = _structural(node["items"], definitions, defaults, f"{path}[]")
    if "additionalProperties" in node:
        values = node["additionalProperties"]
        if not isinstance(values, dict):
            raise SchemaError(f"{path}: a structural schema needs the type of the values of a map")
        schema["additionalProperties"] = _structural(values, definitions, defaults, f"{path}{{}}")
    if "properties" in node:
        schema["properties"] = {
            name: _structural(child, definitions, defaults, f"{path}.{name}")
            for name, child in node["properties"].items()
        }
        # A computed field is always written, but need not have been written by an older version.
        required = [name for name in node.get("required", []) if not node["properties"][name].get("readOnly")]
        schema.pop("required", None)
        schema |= {"required": required} if required else {}
    return schema


def _resolved(node: JsonObject, definitions: JsonObject, path: str) -> JsonObject:
    """References put in place and "or null" removed; what stands beside them wins."""
    node = {key: value for key, value in node.items() if key != "$defs"}
    while "$ref" in node or "anyOf" in node:
        if "$ref" in node:
            inner = definitions[node.pop("$ref").removeprefix("#/$defs/")]
        else:
            choices = [choice for choice in node.pop("anyOf") if choice.get("type") != "null"]
            if len(choices) != 1:
                raise SchemaError(f"{path}: a structural schema has no unions; choose one type")
            inner = choices[0]
        node = {**inner, **node}
    return node
