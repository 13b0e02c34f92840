"""What all kinds share: how models read and write the wire, object metadata, conditions, references.

Models are frozen and read tolerantly: a field that they do not know is of a newer version, and is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)
from pydantic.alias_generators import to_camel

from millrace.api import PAUSED_ANNOTATION
from millrace.api.validations import Matching


class InvalidResourceError(ValueError):
    """An object that this version cannot read; the message names each field and what is wrong with it."""


class Wire(BaseModel):
    """A frozen value that is camelCase in Kubernetes and snake_case here."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )

    def to_wire(self) -> dict[str, Any]:
        """The JSON form, without the fields that are not set."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Timestamp = Annotated[
    AwareDatetime,
    PlainSerializer(_rfc3339, return_type=str),
    Field(json_schema_extra={"format": "date-time"}),
]
"""A moment, to the second, as Kubernetes writes it."""

Generation = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]


def list_map(*keys: str) -> dict[str, JsonValue]:
    """A list that server-side apply merges item by item, by these keys."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


ATOMIC_LIST: dict[str, JsonValue] = {"x-kubernetes-list-type": "atomic"}
SET: dict[str, JsonValue] = {"x-kubernetes-list-type": "set"}

ObjectName = Annotated[
    str,
    Field(min_length=1, max_length=253),
    Matching(
        "[a-z0-9]([-a-z0-9.]*[a-z0-9])?",
        "must be the name of an object: lower-case letters, digits, '-' and '.'",
    ),
]

_PULSAR_WORD = "[-=:.A-Za-z0-9_]+"

PulsarNamespace = Annotated[
    str,
    Field(min_length=3, max_length=200),
    Matching(
        f"{_PULSAR_WORD}/{_PULSAR_WORD}",
        "must be a Pulsar namespace written TENANT/NAMESPACE, for example public/default",
    ),
]

PulsarNamespacePattern = Annotated[
    str,
    Field(min_length=3, max_length=200),
    Matching(
        f"{_PULSAR_WORD}/({_PULSAR_WORD}|[*])",
        "must be TENANT/NAMESPACE, or TENANT/* for every namespace of a tenant; a tenant is always named",
    ),
]


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Wire):
    """One observation about the object, as `kubectl wait`, Flux and Argo CD read it."""

    type: Annotated[str, Field(max_length=316)]
    """Ready, Reconciling, Stalled, DataAtRisk or ShardCountAdjusted."""

    status: ConditionStatus
    """True, False or Unknown."""

    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    """One word of the closed set in docs/conditions.md."""

    message: Annotated[str, Field(max_length=32768)]
    """The same for people: what is so, and what to do."""

    observed_generation: Generation = 0
    """The generation that this was said about."""

    last_transition_time: Timestamp
    """When status last changed."""


Conditions = Annotated[
    tuple[Condition, ...],
    Field(max_length=16, json_schema_extra=list_map("type")),
]


class LocalRef(Wire):
    """An object in the same namespace."""

    name: ObjectName
    """Its name."""


class ObjectMeta(Wire):
    """The part of `metadata` that is acted on."""

    name: str
    namespace: str
    uid: str = ""
    generation: int = 0
    resource_version: str | None = None
    annotations: Mapping[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    deletion_timestamp: AwareDatetime | None = None

    @property
    def paused(self) -> bool:
        """Whether a person asked the operator to leave the object alone."""
        return self.annotations.get(PAUSED_ANNOTATION, "false").lower() != "false"


SpecT = TypeVar("SpecT", bound=Wire)
StatusT = TypeVar("StatusT", bound=Wire)


class Resource(Wire, Generic[SpecT, StatusT]):
    """One object. A status that cannot be read counts as empty: it is a projection, and is rebuilt."""

    metadata: ObjectMeta
    spec: SpecT
    status: StatusT

    @field_validator("status", mode="wrap")
    @classmethod
    def _empty_if_unreadable(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler({} if value is None else value)
        except ValidationError:
            return handler({})

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        """Read an object as Kubernetes gives it; fails with words that fit into a condition."""
        try:
            return cls.model_validate({"status": {}, **body})
        except ValidationError as error:
            raise InvalidResourceError("; ".join(_sentences(error))) from error


def _sentences(error: ValidationError) -> list[str]:
    sentences = []
    for problem in error.errors(include_url=False, include_context=False):
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"])
        sentences.append(f"{path.removeprefix('.')}: {problem['msg'].removeprefix('Value error, ')}")
    return sentences
