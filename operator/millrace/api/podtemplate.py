"""What a user may ask of the pods that Millrace runs for an object, beside what they need anyway."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema

from millrace.api.meta import ATOMIC_LIST, Wire, list_map
from millrace.api.validations import Matching, Rule, validated_by


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


ResourceQuantity = Annotated[
    str, BeforeValidator(_as_text), WithJsonSchema({"x-kubernetes-int-or-string": True})
]
"""100m, 2, 512Mi: the API server reads it when the pod is made."""

ResourceList = Annotated[Mapping[str, ResourceQuantity], Field(max_length=16)]
Texts = Annotated[Mapping[str, Annotated[str, Field(max_length=1024)]], Field(max_length=32)]


class Resources(Wire):
    """What one pod gets."""

    requests: ResourceList = Field(default_factory=dict)
    """What is set aside for it, for example cpu: 500m, memory: 256Mi."""

    limits: ResourceList = Field(default_factory=dict)
    """What it may not exceed."""


class TolerationOperator(StrEnum):
    """How a toleration compares."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    """What a taint does."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(Wire):
    """A taint of nodes that the pods put up with."""

    key: Annotated[str, Field(max_length=316)] | None = None
    """The taint's key; left out with Exists, all."""

    operator: TolerationOperator | None = None
    """Exists, or Equal to value."""

    value: Annotated[str, Field(max_length=63)] | None = None
    """The taint's value."""

    effect: TaintEffect | None = None
    """The effect; left out, all."""

    toleration_seconds: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] | None = None
    """With NoExecute, for how long."""


class EnvironmentVariable(Wire):
    """One environment variable."""

    name: Annotated[
        str,
        Field(min_length=1, max_length=256),
        Matching(
            "[A-Za-z_][A-Za-z0-9_]*",
            "must be the name of a variable: letters, digits and '_', no digit first",
        ),
    ]
    """Its name."""

    value: Annotated[str, Field(max_length=4096)] = ""
    """Its value."""


_OURS = "(k.startsWith('millrace.dev/') || k.startsWith('app.kubernetes.io/'))"


class PodTemplate(Wire):
    """What the pods are to have beside what they need."""

    model_config = ConfigDict(
        json_schema_extra=validated_by(
            Rule(
                f"!self.labels.exists(k, {_OURS})",
                "labels under millrace.dev/ and app.kubernetes.io/ are the operator's, which finds its pods "
                "by them: use other ones",
                field="labels",
            ),
            Rule(
                "!self.env.exists(e, e.name.startsWith('MILLRACE_'))",
                "variables that begin with MILLRACE_ are the operator's: use other ones",
                field="env",
            ),
        )
    )

    resources: Resources | None = None
    """Left out: 100m of CPU and 192Mi of memory are set aside, and 768Mi of memory is the limit."""

    node_selector: Texts = Field(default_factory=dict)
    """Labels of the nodes that the pods may run on."""

    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32, json_schema_extra=ATOMIC_LIST)] = ()
    """Taints of nodes that the pods put up with."""

    env: Annotated[
        tuple[EnvironmentVariable, ...], Field(max_length=64, json_schema_extra=list_map("name"))
    ] = ()
    """Further environment variables."""

    annotations: Texts = Field(default_factory=dict)
    """Further annotations."""

    labels: Texts = Field(default_factory=dict)
    """Further labels."""
