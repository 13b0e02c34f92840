"""How a composite topic is shown."""

from __future__ import annotations

from millrace.cli.topics import heading, state
from millrace.core.descriptor import begin_switch, complete_step, initial
from millrace.core.positions import EntryId
from millrace.core.routing import Routing

ORDERS = initial("shop/orders", Routing.RANGE, [("t-0", 1, False), ("t-1", 2, False), ("t-2", 3, False)])


def test_a_topic_at_rest() -> None:
    assert heading(ORDERS) == "shop/orders: Range routing, generation 1, produce pointer 0"
    assert [state(ORDERS, index) for index in range(3)] == ["producing", "appended", "appended"]


def test_a_topic_that_switches() -> None:
    switching = complete_step(begin_switch(ORDERS, 2), [EntryId(7, 9)])
    assert heading(switching).endswith("generation 3, produce pointer 1, switching to 2")
    assert [state(switching, index) for index in range(3)] == ["sealed", "sealing", "appended"]
