"""What the documents point to is there, and what they show to copy is what the examples say."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from sandbox.layout import REPOSITORY

DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "examples/*.md", "charts/*/*.md")
    for path in REPOSITORY.glob(pattern)
)


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_link_within_the_repository_leads_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text())
    assert [target for target in targets if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_python_block_is_python(document: Path) -> None:
    for block in blocks(document, "python"):
        compile(block, document.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_readme_shows_the_example_as_it_is() -> None:
    first, grown, subscription = map(yaml.safe_load, blocks(REPOSITORY / "README.md", "yaml"))
    assert first == yaml.safe_load((REPOSITORY / "examples" / "composite-topic.yaml").read_text())
    example = yaml.safe_load((REPOSITORY / "examples" / "composite-topic-grown.yaml").read_text())
    assert grown.items() <= example["spec"].items()
    delivered = yaml.safe_load((REPOSITORY / "examples" / "subscription.yaml").read_text())
    assert subscription["metadata"] == delivered["metadata"]
    assert {**delivered["spec"], **subscription["spec"]}.keys() == delivered["spec"].keys()
    assert subscription["spec"]["delivery"].items() <= delivered["spec"]["delivery"].items()


def test_every_dependency_has_a_reason() -> None:
    project = (REPOSITORY / "pyproject.toml").read_text()
    reasons = (REPOSITORY / "docs" / "dependencies.md").read_text()
    names = re.findall(r'"([a-z0-9-]+)>=', project)
    assert len(names) > 20
    assert [name for name in names if not re.search(rf"\b{re.escape(name)}\b", reasons)] == []
