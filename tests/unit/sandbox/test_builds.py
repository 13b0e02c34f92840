"""Where a build is kept: another place as soon as anything that goes into it is another."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.builds import BUILDS, Build, ensure
from sandbox.layout import SandboxError


@pytest.fixture
def build(tmp_path: Path) -> Build:
    (tmp_path / "go.mod").write_text(
        "module example.com/tool\n\nrequire (\n\texample.com/api v0.1.0\n\texample.com/kube v1.34.4\n)\n"
    )
    (tmp_path / "go.sum").write_text("example.com/kube v1.34.4 h1:abc=\n")
    (tmp_path / "main.go").write_text("package main\n")
    (tmp_path / "README").write_text("not a source\n")
    return Build("tool", tmp_path, ".", versioned_by="example.com/kube")


def test_the_directory_is_named_after_the_tool_and_its_pinned_version(build: Build) -> None:
    assert build.version == "v1.34.4"
    assert build.directory.name.startswith("tool-v1.34.4-")


@pytest.mark.parametrize("line", ["require example.com/kube v2.0.0", "\texample.com/kube v2.0.0 // indirect"])
def test_the_version_is_found_in_a_line_of_its_own_too(build: Build, line: str) -> None:
    (build.module / "go.mod").write_text(f"module example.com/tool\n{line}\n")
    assert build.version == "v2.0.0"


def test_a_module_that_is_not_required_is_said(build: Build) -> None:
    with pytest.raises(SandboxError, match=r"does not require example\.com/other"):
        _ = replace(build, versioned_by="example.com/other").version


def pin_another_sum(build: Build) -> Build:
    (build.module / "go.sum").write_text("example.com/kube v1.34.4 h1:def=\n")
    return build


def change_the_source(build: Build) -> Build:
    (build.module / "main.go").write_text("package main // changed\n")
    return build


def add_a_source(build: Build) -> Build:
    (build.module / "more.go").write_text("")
    return build


def rename_a_source(build: Build) -> Build:
    (build.module / "main.go").rename(build.module / "other.go")
    return build


def build_another_package(build: Build) -> Build:
    return replace(build, package="./other")


def link_another_command(build: Build) -> Build:
    return replace(build, links=("kubectl",))


def set_a_version_in_it(build: Build) -> Build:
    return replace(build, version_packages=("example.com/version",))


@pytest.mark.parametrize(
    "change",
    [
        pin_another_sum,
        change_the_source,
        add_a_source,
        rename_a_source,
        build_another_package,
        link_another_command,
        set_a_version_in_it,
    ],
)
def test_it_is_built_anew_after(build: Build, change: Callable[[Build], Build]) -> None:
    before = build.directory
    assert change(build).directory != before


def test_a_file_that_is_no_source_changes_nothing(build: Build) -> None:
    before = build.directory
    (build.module / "README").write_text("changed\n")
    assert build.directory == before


def test_kubernetes_is_told_its_version(build: Build) -> None:
    flags = replace(build, version_packages=("example.com/version",)).link_flags
    assert "-X example.com/version.gitVersion=v1.34.4" in flags
    assert "-X example.com/version.gitMajor=1" in flags
    assert "-X example.com/version.gitMinor=34" in flags


def test_every_build_of_the_sandbox_is_pinned_by_version_and_by_sum() -> None:
    assert BUILDS
    for build in BUILDS.values():
        assert build.version.startswith("v")
        assert f"{build.versioned_by} {build.version} h1:" in (build.module / "go.sum").read_text()


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """A program that needs nothing from anywhere."""
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path / "cache"))
    module = tmp_path / "module"
    (module / "api").mkdir(parents=True)
    (module / "api" / "go.mod").write_text("module example.com/api\n\ngo 1.21\n")
    (module / "go.mod").write_text(
        "module example.com/tool\n\ngo 1.21\n\n"
        "require example.com/api v1.0.0\n\nreplace example.com/api => ./api\n"
    )
    (module / "main.go").write_text("package main\n\nfunc main() {}\n")
    return Build("tool", module, ".", versioned_by="example.com/api", links=("called-so-too",))


def test_a_build_is_complete_or_not_there_and_what_a_killed_one_left_goes(small: Build) -> None:
    killed = small.directory.parent / f".{small.directory.name}-killed"
    killed.mkdir(parents=True)
    (killed / "tool").write_bytes(b"half")
    directory = ensure(small)
    assert {path.name for path in directory.iterdir()} == {"tool", "called-so-too"}
    subprocess.run([directory / "called-so-too"], check=True)
    assert [path for path in directory.parent.iterdir() if path.is_dir()] == [directory]


def test_a_build_that_fails_says_why_and_leaves_nothing(small: Build) -> None:
    (small.module / "main.go").write_text("package main\n\nfunc main() { missing() }\n")
    with pytest.raises(SandboxError, match="undefined: missing"):
        ensure(small)
    assert [path for path in small.directory.parent.iterdir() if path.is_dir()] == []
