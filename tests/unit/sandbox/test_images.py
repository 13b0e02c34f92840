"""Images are named after what goes into them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.images import _digest


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    (tmp_path / "package" / "deep").mkdir(parents=True)
    (tmp_path / "package" / "deep" / "module.py").write_text("a = 1\n")
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    return tmp_path


def tag(root: Path, base: str = "base") -> str:
    return _digest(root, ["Dockerfile", "package"], base)


def test_the_tag_follows_content_names_and_the_base(sources: Path) -> None:
    seen = {tag(sources), tag(sources, "another base")}
    (sources / "Dockerfile").write_text("FROM other\n")
    seen.add(tag(sources))
    (sources / "package" / "deep" / "module.py").rename(sources / "package" / "deep" / "other.py")
    seen.add(tag(sources))
    (sources / "package" / "added.py").touch()
    seen.add(tag(sources))
    assert len(seen) == 5


def test_what_python_leaves_behind_does_not_count(sources: Path) -> None:
    before = tag(sources)
    (sources / "package" / "__pycache__").mkdir()
    (sources / "package" / "__pycache__" / "module.pyc").touch()
    assert tag(sources) == before


def test_files_cannot_trade_content_unnoticed(sources: Path) -> None:
    (sources / "package" / "x").write_text("ab")
    (sources / "package" / "y").write_text("c")
    before = tag(sources)
    (sources / "package" / "x").write_text("a")
    (sources / "package" / "y").write_text("bc")
    assert tag(sources) != before
