"""Frozen dataclasses as JSON documents and back: camelCase there, snake_case here.

A field of its default value is written too, so that a document says all there is. Reading is strict about
types (true is no number, 1.5 no count), ignores fields that are not known, and fails with the path of the
field that is wrong.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from millrace.core.errors import DomainError

T = TypeVar("T")


class DocumentError(DomainError):
    """A field is missing, or is not what it should be."""


def to_document(value: Any) -> Any:
    """The JSON form of a dataclass, and of everything that one may hold here."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            _camel(field.name): to_document(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, tuple):
        return [to_document(item) for item in value]
    return value.value if isinstance(value, StrEnum) else value


def from_document(kind: type[T], document: Any, path: str = "") -> T:
    """Read a dataclass."""
    if not isinstance(document, Mapping):
        raise DocumentError(f"{path or 'the document'} is {_named(document)}, not an object")
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        name = _camel(field.name)
        where = f"{path}.{name}" if path else name
        if name in document:
            given[field.name] = _value(hints[field.name], document[name], where)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise DocumentError(f"{where} is missing")
    return kind(**given)


def _value(hint: Any, value: Any, path: str) -> Any:
    origin = get_origin(hint)
    if origin in (types.UnionType, Union):
        present = next(choice for choice in get_args(hint) if choice is not type(None))
        return None if value is None else _value(present, value, path)
    if origin is tuple:
        if not isinstance(value, list):
            raise DocumentError(f"{path} is {_named(value)}, not a list")
        return tuple(_value(get_args(hint)[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if dataclasses.is_dataclass(hint):
        return from_document(hint, value, path)  # type: ignore[arg-type]
    if issubclass(hint, StrEnum):
        try:
            return hint(value)
        except ValueError:
            raise DocumentError(f"{path} is {value!r}, not one of {', '.join(hint)}") from None
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise DocumentError(f"{path} is {_named(value)}, not {_NAMES[hint]}")
    return value


_NAMES: dict[type, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def _named(value: Any) -> str:
    return _NAMES.get(type(value), "null")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
