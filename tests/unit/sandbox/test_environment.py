"""The variables that a shell evaluates: exactly the values that a program gets, whatever is in them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sandbox import builds, environment
from sandbox.layout import Layout, SandboxError

LAYOUT = Layout("dev")
AWKWARD = "a place; with $HOME, `id`, \"quotes\" and 'more'"


@pytest.fixture
def awkward_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Programs in a directory that no shell would take as it is."""
    cache = tmp_path / AWKWARD
    monkeypatch.setenv("MILLRACE_CACHE", str(cache))
    for name in ("kube", "helm"):
        builds.BUILDS[name].directory.mkdir(parents=True)
    return cache


def evaluated(*names: str) -> list[str]:
    shown = "; ".join(f'printf "%s\\0" "${name}"' for name in names)
    script = f"{environment.assignments(LAYOUT)}\n{shown}"
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split("\0")[:-1]


def test_a_shell_gets_what_a_program_gets(awkward_cache: Path) -> None:
    wanted = environment.variables(LAYOUT)
    assert evaluated(*wanted) == list(wanted.values())


def test_the_programs_come_first_on_the_path_and_only_those_that_are_built(awkward_cache: Path) -> None:
    (path,) = evaluated("PATH")
    kube, helm, *rest = path.split(os.pathsep)
    assert Path(kube).parent == Path(helm).parent == awkward_cache / "bin"
    assert (Path(kube).name[:4], Path(helm).name[:4]) == ("kube", "helm")
    assert os.pathsep.join(rest) == os.environ["PATH"]


def test_nothing_but_assignments_is_printed() -> None:
    assert all(line.startswith("export ") for line in environment.assignments(LAYOUT).splitlines())


@pytest.mark.parametrize(("value", "own"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_a_cluster_of_ones_own_is_asked_for_by(
    value: str, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_USE_CLUSTER", value)
    assert environment.uses_own_cluster() is own


def test_one_of_several_kubeconfigs_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").touch()
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}{os.pathsep}{tmp_path / 'config'}")
    environment.check_own_cluster()


@pytest.mark.parametrize("value", ["", "missing", os.pathsep])
def test_a_kubeconfig_that_is_no_file_is_said(
    value: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", value)
    with pytest.raises(SandboxError, match="KUBECONFIG names no file"):
        environment.check_own_cluster()
