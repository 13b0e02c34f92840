"""Durations and sizes as people write them ("7d", "10Gi"), as values that compute.

Durations and sizes know "-1", Pulsar's word for "without limit"; an `Interval` always ends. Zero is not a
quantity here: Pulsar refuses a retention of which only one half is zero, and leaving the field out says it
better.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from millrace.api.validations import Rule, validated_by

UNLIMITED = "-1"


@dataclass(frozen=True, slots=True)
class _Quantity:
    """A whole number of base units; None where there is no limit. Equal by amount, not by spelling."""

    amount: int | None

    units: ClassVar[dict[str, int]]
    noun: ClassVar[str]
    example: ClassVar[str]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what a person wrote; the error says what would have been right."""
        match = re.fullmatch(cls.grammar(), text)
        if match is None:
            raise ValueError(f"{text!r} is not {cls.expectation()}")
        if text == UNLIMITED:
            return cls(None)
        unit: str = match[1]
        return cls(int(text.removesuffix(unit)) * cls.units[unit])

    @classmethod
    def grammar(cls) -> str:
        """A regular expression. Six digits keep every value within what Pulsar's admin API takes."""
        return f"{UNLIMITED}|[1-9][0-9]{{0,5}}({'|'.join(cls.units)})"

    @classmethod
    def expectation(cls) -> str:
        """What to write, in words."""
        return (
            f"a {cls.noun}: write up to six digits and one of {', '.join(cls.units)} "
            f"(for example {cls.example}), or {UNLIMITED} for no limit"
        )

    @property
    def is_unlimited(self) -> bool:
        """Whether it was written as "-1"."""
        return self.amount is None

    def __str__(self) -> str:
        if self.amount is None:
            return UNLIMITED
        unit = max(
            (unit for unit, size in self.units.items() if self.amount % size == 0),
            key=lambda unit: self.units[unit],
        )
        return f"{self.amount // self.units[unit]}{unit}"

    def in_units(self, size: int) -> int:
        """The amount in units of `size`, rounded up so that nothing is kept shorter than asked."""
        return -1 if self.amount is None else -(-self.amount // size)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: Any) -> _Quantity:
            if isinstance(value, cls):
                return value
            if not isinstance(value, str):
                raise ValueError(f"{value!r} is not {cls.expectation()}")
            return cls.parse(value)

        return core_schema.no_info_plain_validator_function(
            read, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        rule = Rule(f"self.matches(r'^({cls.grammar()})$')", f"must be {cls.expectation()}")
        return {"type": "string", "maxLength": 16} | validated_by(rule)


@dataclass(frozen=True, slots=True)
class Duration(_Quantity):
    """A span of time: "45s", "30m", "12h", "7d", or "-1"."""

    units: ClassVar[dict[str, int]] = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    noun: ClassVar[str] = "duration"
    example: ClassVar[str] = "7d"

    @property
    def seconds(self) -> int | None:
        """None where there is no limit."""
        return self.amount

    @property
    def minutes(self) -> int:
        """As Pulsar's retention wants it: rounded up, -1 for no limit."""
        return self.in_units(60)


@dataclass(frozen=True, slots=True)
class Size(_Quantity):
    """An amount of data: "512Mi", "10Gi", "2Ti", or "-1"."""

    units: ClassVar[dict[str, int]] = {"Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
    noun: ClassVar[str] = "size"
    example: ClassVar[str] = "10Gi"

    @property
    def bytes(self) -> int | None:
        """None where there is no limit."""
        return self.amount

    @property
    def mebibytes(self) -> int:
        """As Pulsar's retention wants it (its "MB" are mebibytes): rounded up, -1 for no limit."""
        return self.in_units(1 << 20)


@dataclass(frozen=True, slots=True)
class Interval(_Quantity):
    """A pause or a time-out: "250ms", "30s", "5m", "1h". It always ends. CEL's duration() reads it, too."""

    units: ClassVar[dict[str, int]] = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
    noun: ClassVar[str] = "interval"
    example: ClassVar[str] = "30s"

    @classmethod
    def grammar(cls) -> str:
        """A regular expression."""
        return f"[1-9][0-9]{{0,5}}({'|'.join(cls.units)})"

    @classmethod
    def expectation(cls) -> str:
        """What to write, in words."""
        units = ", ".join(cls.units)
        return f"an {cls.noun}: write up to six digits and one of {units} (for example {cls.example})"

    @property
    def seconds(self) -> float:
        """In seconds."""
        assert self.amount is not None, "an interval always ends"
        return self.amount / 1000
