"""The API reference and the list of condition reasons as Markdown, generated so that they are up to date.

`python -m millrace.api.reference DIRECTORY` writes them, `--check` says whether they are up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from millrace.api import API_VERSION
from millrace.api.crds import KINDS, Kind, definition, write_or_check
from millrace.api.reasons import ConditionType, Reason
from millrace.api.schemas import INT_OR_STRING, JsonObject
from millrace.api.validations import VALIDATIONS

_HEADER = "<!-- Generated from operator/millrace/api by `make crds`. Do not edit. -->\n"

_REFERENCE = """# API reference

Every field of the kinds of `{version}`. `kubectl explain` shows the same. What the reasons in
`status.conditions` mean is in [conditions.md](conditions.md).
"""

_CONDITIONS = """# Conditions and their reasons

Every object carries these conditions as kstatus reads them, so that `kubectl wait`, Flux and Argo CD
understand them:

| condition | True means |
|---|---|
| `Ready` | everything is as declared, for the generation in `observedGeneration` |
| `Reconciling` | the operator is at work, or waits for something that passes by itself |
| `Stalled` | it cannot go on until a person does something |
| `DataAtRisk` | it works, but Pulsar's configuration can lose or repeat messages (not PulsarConnection) |
| `ShardCountAdjusted` | it works, with another shard count than was asked for (Subscription only) |

While `Reconciling` or `Stalled` is True, `Ready` is False with the same reason. The `message` names the
topic, the partition or the object that the reason is about.
"""

_TITLES = {
    None: "When a condition is False",
    ConditionType.READY: "Ready",
    ConditionType.RECONCILING: "Reconciling: wait",
    ConditionType.STALLED: "Stalled: do something",
    ConditionType.DATA_AT_RISK: "DataAtRisk: change Pulsar's configuration",
    ConditionType.SHARD_COUNT_ADJUSTED: "ShardCountAdjusted: for your information",
}


def render() -> dict[str, str]:
    """Both pages, by file name."""
    return {"reference.md": _reference(), "conditions.md": _conditions()}


def _reference() -> str:
    kinds = ("\n".join(_kind(kind)) + "\n" for kind in KINDS)
    return "\n".join([_HEADER, _REFERENCE.format(version=API_VERSION), *kinds])


def _kind(kind: Kind) -> Iterator[str]:
    root = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    yield f"## {kind.name}\n"
    yield f"{root['description']} Short: {', '.join(f'`{name}`' for name in kind.short_names)}.\n"
    for section in ("spec", "status"):
        schema = root["properties"][section]
        yield f"### {kind.name} {section}\n"
        yield f"{schema['description']}\n"
        yield "| field | type | default | what it is |"
        yield "|---|---|---|---|"
        yield from _rows(schema, "")
        yield ""
    yield f"### {kind.name} rules\n"
    yield "The API server refuses what breaks one of these, with this sentence (`N` stands for a number):\n"
    yield from sorted(
        {
            f"- `{where}`: {message}"
            for where, message in [
                *((kind.name, rule.text) for rule in kind.rules),
                *_rules(root["properties"]["spec"], "spec"),
            ]
        }
    )


def _rows(schema: JsonObject, prefix: str) -> Iterator[str]:
    required = schema.get("required", [])
    for name, child in schema["properties"].items():
        inner = child.get("items", child)
        path = f"{prefix}{name}" + ("[]" if "items" in child else "")
        default = "**required**" if name in required else _default(child)
        yield f"| `{path}` | {_type(child)} | {default} | {_escape(child['description'])} |"
        if "properties" in inner:
            yield from _rows(inner, f"{path}.")


def _type(schema: JsonObject) -> str:
    if INT_OR_STRING in schema:
        return "integer or string"
    if "additionalProperties" in schema:
        return f"map of string to {_type(schema['additionalProperties'])}"
    if "items" in schema:
        return f"list of {_type(schema['items'])}"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "maximum" in schema:
        return f"{schema['type']}, {schema['minimum']} to {schema['maximum']}"
    return str(schema["type"])


def _default(schema: JsonObject) -> str:
    default = schema.get("default")
    if default is None or isinstance(default, dict):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _rules(schema: JsonObject, path: str) -> Iterator[tuple[str, str]]:
    for rule in schema.get(VALIDATIONS, []):
        yield path + rule.get("fieldPath", ""), rule["message"]
    for name, child in schema.get("properties", {}).items():
        yield from _rules(child, f"{path}.{name}")
    if "items" in schema:
        yield from _rules(schema["items"], f"{path}[]")


def _conditions() -> str:
    parts = [_HEADER, _CONDITIONS]
    for condition in (
        ConditionType.READY,
        ConditionType.RECONCILING,
        ConditionType.STALLED,
        ConditionType.DATA_AT_RISK,
        ConditionType.SHARD_COUNT_ADJUSTED,
        None,
    ):
        rows = [
            f"| `{reason}` | {_escape(reason.__doc__ or '')} | {_escape(reason.remedy)} |"
            for reason in Reason
            if reason.condition is condition
        ]
        table = ["| reason | what it means | what to do |", "|---|---|---|", *rows]
        parts.append(f"## {_TITLES[condition]}\n\n" + "\n".join(table) + "\n")
    return "\n".join(parts)


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or with --check say which are out of date."""
    return write_or_check("millrace.api.reference", __doc__ or "", render(), arguments)


if __name__ == "__main__":
    sys.exit(main())
