"""What `millrace produce` refuses before it connects."""

from __future__ import annotations

import pytest

from millrace.cli.failures import BadInput
from millrace.cli.producing import Order, parse_properties
from millrace.client.errors import InvalidMessage, PayloadTooLarge
from millrace.client.messages import MAX_MESSAGE_SIZE
from millrace.core.errors import InvalidGroupId


def test_properties_are_names_and_values() -> None:
    assert parse_properties(["a=1", "b=", "c=x=y"]) == {"a": "1", "b": "", "c": "x=y"}


@pytest.mark.parametrize("texts", [["a"], ["=1"], [""], ["a=1", "a=1"]])
def test_what_is_no_property_or_comes_twice_is_refused(texts: list[str]) -> None:
    with pytest.raises(BadInput, match="property"):
        parse_properties(texts)


@pytest.mark.parametrize(
    ("order", "error"),
    [
        (Order("a/b", ""), InvalidGroupId),
        (Order("a/b", "g", b"x" * MAX_MESSAGE_SIZE), PayloadTooLarge),
        (Order("a/b", "g", None, {"mr": "x"}), InvalidMessage),
        (Order("a/b", "g", None, {"a": "\udcff"}), InvalidMessage),
    ],
)
def test_what_could_not_be_sent_is_refused(order: Order, error: type[Exception]) -> None:
    with pytest.raises(error):
        order.check()
