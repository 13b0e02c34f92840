"""Rules that the API server checks (CEL), written next to the models that they protect.

Transition rules (`oldSelf`) belong on the parent object, never on a field or a list item: inside an atomic
list they do not fire at all, and on an optional field they do not fire when it is removed and set again.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

VALIDATIONS = "x-kubernetes-validations"


@dataclass(frozen=True, slots=True)
class Rule:
    """One `x-kubernetes-validations` entry.

    `message` says what to do instead of what was tried; `{a CEL expression of a number}` in it is evaluated,
    so that the sentence names what it is about. `forbidden` marks what can never be, whatever the value.
    """

    rule: str
    message: str
    field: str | None = None
    forbidden: bool = False

    @property
    def text(self) -> str:
        """The message before its numbers are known."""
        return "".join("N" if is_expression else part for part, is_expression in self._parts())

    def _parts(self) -> list[tuple[str, bool]]:
        pieces = re.split(r"[{](.*?)[}]", self.message)
        return [(piece, index % 2 == 1) for index, piece in enumerate(pieces)]

    def to_wire(self) -> dict[str, str]:
        """As apiextensions/v1 spells it."""
        wire = {"rule": self.rule, "message": self.text}
        expressions = [part for part, is_expression in self._parts() if is_expression]
        if expressions:
            # Not `+ string(...)`: the API server cannot bound its length, and refuses the rule as too costly.
            template = "".join("%d" if is_expression else part for part, is_expression in self._parts())
            wire["messageExpression"] = f"{json.dumps(template)}.format([{', '.join(expressions)}])"
        if self.field is not None:
            wire["fieldPath"] = f".{self.field}"
        if self.forbidden:
            wire["reason"] = "FieldValueForbidden"
        return wire


def validated_by(*rules: Rule) -> dict[str, Any]:
    """What a model's `json_schema_extra` says to carry these rules into its CRD."""
    return {VALIDATIONS: [rule.to_wire() for rule in rules]}


@dataclass(frozen=True, slots=True)
class Matching:
    """A string of one form, checked alike here and by the API server, with a message (a `pattern` has none).

    The expression is matched against the whole string; it uses what Python's `re` and RE2 have in common.
    """

    expression: str
    message: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def check(text: str) -> str:
            if re.fullmatch(self.expression, text) is None:
                raise ValueError(self.message)
            return text

        return core_schema.no_info_after_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(core) | validated_by(Rule(f"self.matches(r'^({self.expression})$')", self.message))
