"""Names of sandboxes, and that each sandbox's places are its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.layout import Layout, SandboxError, cache_root


@pytest.mark.parametrize("name", ["dev", "a", "a1", "ci-2", "a" * 20, "a--b"])
def test_a_good_name_is_taken_as_it_is(name: str) -> None:
    assert Layout.named(name).name == name


@pytest.mark.parametrize(
    "name", ["Dev", "1st", "-a", "a-", "a_b", "a.b", "a b", "a/b", "..", "../a", "a\n", "a" * 21, "ä"]
)
def test_a_name_that_could_not_be_a_path_a_cgroup_or_a_nodes_name_is_refused(name: str) -> None:
    with pytest.raises(SandboxError, match="is no name for a sandbox"):
        Layout.named(name)


def test_the_argument_wins_over_the_variable_and_that_over_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SANDBOX", raising=False)
    assert Layout.named().name == "dev"
    monkeypatch.setenv("SANDBOX", "mine")
    assert Layout.named().name == "mine"
    assert Layout.named("other").name == "other"
    monkeypatch.setenv("SANDBOX", "")
    assert Layout.named().name == "dev"


def test_a_bad_name_in_the_variable_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX", "../elsewhere")
    with pytest.raises(SandboxError):
        Layout.named()


def places(layout: Layout) -> list[Path]:
    return [layout.state, layout.run, layout.netns_path, Path(layout.cgroup)]


def test_no_place_of_a_sandbox_is_or_contains_one_of_another() -> None:
    # The name of one begins with the name of the other: a prefix must not be enough.
    for one in places(Layout("a")):
        for other in places(Layout("a-b")):
            assert one != other
            assert one not in other.parents
            assert other not in one.parents


def test_everything_that_is_written_is_below_the_two_directories_that_down_removes() -> None:
    layout = Layout("dev")
    for written in (layout.logs, layout.pki, layout.kubeconfig, layout.kubectl_cache):
        assert layout.state in written.parents
    assert layout.run in layout.containerd_socket.parents


def test_socket_paths_stay_below_the_limit_of_the_kernel_with_the_longest_name() -> None:
    assert len(str(Layout("a" * 20).containerd_socket)) < 108


def test_the_cache_is_where_the_variable_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    monkeypatch.delenv("MILLRACE_CACHE")
    assert cache_root() == Path.home() / ".cache" / "millrace"
