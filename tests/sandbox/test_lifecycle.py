"""`up` and `down`, repeated, interrupted and side by side, with the control plane alone: that is quick."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sandbox import commands, traces

CONTROL_PLANE = ("up", "--only", "control-plane")
COMPONENTS = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

Point = Callable[[str], bool]


def test_up_can_be_repeated_down_leaves_nothing_and_a_neighbour_notices_neither(name: str) -> None:
    commands.succeed(name, *CONTROL_PLANE)
    before = commands.running(name)
    assert before.keys() == COMPONENTS
    commands.succeed(name, *CONTROL_PLANE)
    assert commands.running(name) == before

    neighbour = commands.fresh_name()
    try:
        commands.succeed(neighbour, *CONTROL_PLANE)
        assert commands.answers(neighbour)
        assert_kubectl_remembers_apart(name, neighbour)
        assert not set(commands.running(neighbour).values()) & set(before.values())
        seen = traces.processes(neighbour)
        assert {each.pid for each in seen} >= set(commands.running(neighbour).values())
    finally:
        commands.succeed(neighbour, "down")
    assert traces.of(neighbour, seen) == []
    assert commands.running(name) == before
    assert commands.answers(name)
    commands.succeed(neighbour, "down")


def assert_kubectl_remembers_apart(*names: str) -> None:
    """By default it remembers kinds by the server's address, and that is the same in every sandbox."""
    for name in names:
        own = Path("/var/lib/millrace", name, "kubectl-cache", "discovery")
        commands.succeed(name, "exec", "--", "kubectl", "api-resources")
        assert any(own.rglob("servergroups.json")), f"{own} is empty"


def test_down_of_a_sandbox_that_never_was_is_fine() -> None:
    name = commands.fresh_name()
    commands.succeed(name, "down")
    assert traces.of(name) == []


# Killed half way


def the_network_is_there(name: str) -> bool:
    return Path("/run/netns", f"millrace-{name}").exists()


def etcd_runs(name: str) -> bool:
    return Path("/run/millrace", name, "pids", "etcd.json").exists()


def the_api_server_runs(name: str) -> bool:
    return Path("/run/millrace", name, "pids", "kube-apiserver.json").exists()


def the_scheduler_runs(name: str) -> bool:
    return Path("/run/millrace", name, "pids", "kube-scheduler.json").exists()


POINTS = [the_network_is_there, etcd_runs, the_api_server_runs, the_scheduler_runs]


@pytest.mark.full
@pytest.mark.parametrize("point", POINTS)
def test_down_removes_what_an_up_that_was_killed_has_left_when(point: Point, name: str) -> None:
    commands.killed_half_way(name, *CONTROL_PLANE, when=lambda: point(name))
    seen = traces.processes(name)
    assert traces.of(name), "there was something to remove"
    commands.succeed(name, "down")
    assert traces.of(name, seen) == []


@pytest.mark.full
@pytest.mark.parametrize("point", POINTS)
def test_up_goes_on_where_one_that_was_killed_stopped_when(point: Point, name: str) -> None:
    commands.killed_half_way(name, *CONTROL_PLANE, when=lambda: point(name))
    commands.succeed(name, *CONTROL_PLANE)
    assert commands.running(name).keys() == COMPONENTS
    assert commands.answers(name)


@pytest.mark.full
def test_up_finds_daemons_whose_pids_were_never_written_down(name: str) -> None:
    commands.succeed(name, *CONTROL_PLANE)
    before = commands.running(name)
    # What is left when `up` is killed right after it has started something.
    pids = Path("/run/millrace", name, "pids")
    (pids / "etcd.json").unlink()
    (pids / "kube-apiserver.json").write_text("")
    assert commands.running(name).keys() == COMPONENTS - {"etcd", "kube-apiserver"}
    commands.succeed(name, *CONTROL_PLANE)
    assert commands.running(name) == before


@pytest.mark.full
@pytest.mark.parametrize("component", sorted(COMPONENTS))
def test_up_starts_a_component_again_that_was_killed(component: str, name: str) -> None:
    commands.succeed(name, *CONTROL_PLANE)
    before = commands.running(name)
    commands.succeed(name, "kill", component)
    assert component not in commands.running(name)
    commands.succeed(name, *CONTROL_PLANE)
    after = commands.running(name)
    assert after.keys() == COMPONENTS
    assert commands.answers(name)
    assert after[component] != before[component]
