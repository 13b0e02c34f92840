"""The CustomResourceDefinitions, generated from the models.

`python -m millrace.api.crds DIRECTORY` writes them, `--check` says whether they are up to date.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from millrace.api import GROUP, VERSION
from millrace.api.compositetopic import CompositeTopic, CompositeTopicSpec, CompositeTopicStatus
from millrace.api.meta import Wire
from millrace.api.pulsarconnection import PulsarConnection, PulsarConnectionSpec, PulsarConnectionStatus
from millrace.api.schemas import JsonObject, structural
from millrace.api.subscription import NAME_RULE, Subscription, SubscriptionSpec, SubscriptionStatus
from millrace.api.validations import Rule, validated_by

HEADER = "# Generated from the models in operator/millrace/api by `make crds`. Do not edit.\n"


@dataclass(frozen=True, slots=True)
class Column:
    """What `kubectl get` shows; `wide` only with `-o wide`."""

    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False

    def to_wire(self) -> JsonObject:
        """As apiextensions/v1 spells it."""
        return {
            "name": self.name,
            "type": self.type,
            "description": self.description,
            "jsonPath": self.path,
            **({"priority": 1} if self.wide else {}),
        }


def _condition(kind: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


_READY = Column("Ready", _condition("Ready", "status"), "Whether it is as declared.")
_REASON = Column("Reason", _condition("Ready", "reason"), "Why it is ready, or is not.")
_MESSAGE = Column("Message", _condition("Ready", "message"), "The same in words.", wide=True)
_AGE = Column("Age", ".metadata.creationTimestamp", "Since when it exists.", type="date")


@dataclass(frozen=True, slots=True)
class Scale:
    """What `kubectl scale` and autoscalers read and write."""

    wanted: str
    found: str
    selector: str

    def to_wire(self) -> JsonObject:
        """As apiextensions/v1 spells it."""
        return {
            "specReplicasPath": self.wanted,
            "statusReplicasPath": self.found,
            "labelSelectorPath": self.selector,
        }


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind, and how people name and list it."""

    model: type[Wire]
    spec: type[Wire]
    status: type[Wire]
    plural: str
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]
    scale: Scale | None = None
    rules: tuple[Rule, ...] = ()
    """On the object as a whole; all others are on the models."""

    @property
    def name(self) -> str:
        """As manifests spell it."""
        return self.model.__name__

    @property
    def crd_name(self) -> str:
        """The name of its CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"


KINDS = (
    Kind(
        PulsarConnection,
        PulsarConnectionSpec,
        PulsarConnectionStatus,
        plural="pulsarconnections",
        # To kubectl `pc` is first of all a PriorityClass; `pcon` is nobody else's.
        short_names=("pc", "pcon"),
        columns=(
            Column("URL", ".spec.serviceUrl", "Where Pulsar is."),
            Column("Default", ".spec.isDefault", "Whether it is its namespace's default.", type="boolean"),
            _READY,
            _REASON,
            Column("Admin", ".spec.adminUrl", "Where Pulsar's admin API is.", wide=True),
            _MESSAGE,
            _AGE,
        ),
    ),
    Kind(
        CompositeTopic,
        CompositeTopicSpec,
        CompositeTopicStatus,
        plural="compositetopics",
        short_names=("ct",),
        columns=(
            Column(
                "Partitions", ".status.partitions", "Of the topic that producers write to.", type="integer"
            ),
            Column("Topics", ".status.topics", "How many storage topics there are.", type="integer"),
            Column("Pointer", ".status.producePointer", "The one that producers write to.", type="integer"),
            _READY,
            _REASON,
            Column("Routing", ".spec.routing", "How groups become partitions.", wide=True),
            Column("Descriptor", ".status.descriptorTopic", "The topic that clients follow.", wide=True),
            _MESSAGE,
            _AGE,
        ),
    ),
    Kind(
        Subscription,
        SubscriptionSpec,
        SubscriptionStatus,
        plural="subscriptions",
        # `sub` and `subscription` may be somebody else's (operator hubs and message buses have such kinds).
        short_names=("msub",),
        columns=(
            Column("Topic", ".spec.topicRef.name", "The CompositeTopic that is delivered."),
            Column("Shards", ".status.effectiveShardCount", "How many shards there are.", type="integer"),
            Column("Owned", ".status.ownedShards", "How many of them a pod holds.", type="integer"),
            Column("Lag", ".status.lag.main", "Messages that wait in the topic.", type="integer"),
            Column("Retry", ".status.lag.retry", "Messages in the retry queue.", type="integer"),
            Column("Dead", ".status.lag.deadLetter", "Messages in the dead-letter queue.", type="integer"),
            _READY,
            _REASON,
            Column("URL", ".spec.delivery.url", "The endpoint.", wide=True),
            Column("Blocked", ".status.blockedGroups", "Groups that wait.", type="integer", wide=True),
            _MESSAGE,
            _AGE,
        ),
        scale=Scale(".spec.shardCount", ".status.replicas", ".status.selector"),
        rules=(NAME_RULE,),
    ),
)


def definition(kind: Kind) -> JsonObject:
    """One CustomResourceDefinition."""
    described = " ".join((kind.model.__doc__ or "").split())
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.crd_name},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": list(kind.short_names),
                "categories": ["millrace"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}, **({"scale": kind.scale.to_wire()} if kind.scale else {})},
                    "additionalPrinterColumns": [column.to_wire() for column in kind.columns],
                    "schema": {
                        "openAPIV3Schema": {
                            "description": described,
                            "type": "object",
                            "required": ["spec"],
                            "properties": {
                                "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}."},
                                "kind": {"type": "string", "description": f"{kind.name}."},
                                "metadata": {"type": "object"},
                                "spec": structural(kind.spec),
                                "status": structural(kind.status, defaults=False),
                            },
                            **(validated_by(*kind.rules) if kind.rules else {}),
                        }
                    },
                }
            ],
        },
    }


class _Dumper(yaml.SafeDumper):
    """Block style without anchors: equal values are written out, as people would."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 (it is the base class that calls)
        return True


def render() -> dict[str, str]:
    """Every CRD as YAML, by file name."""
    return {
        f"{kind.crd_name}.yaml": HEADER
        + yaml.dump(definition(kind), Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
        for kind in KINDS
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or with --check say which are out of date."""
    return write_or_check("millrace.api.crds", __doc__ or "", render(), arguments, alone=True)


def write_or_check(
    module: str,
    description: str,
    rendered: Mapping[str, str],
    arguments: Sequence[str] | None,
    *,
    alone: bool = False,
) -> int:
    """The command line of a generator. `alone` means that no other YAML file may be in the directory."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description.partition("\n")[0])
    parser.add_argument("directory", type=Path, help="where the files are")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a file is not up to date"
    )
    options = parser.parse_args(arguments)
    directory: Path = options.directory
    if not options.check:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in rendered.items():
            (directory / name).write_text(text)
        return 0
    stale = {name for name, text in rendered.items() if _read(directory / name) != text}
    if alone:
        stale |= {path.name for path in directory.glob("*.yaml")} - rendered.keys()
    for name in sorted(stale):
        print(f"{directory / name} is not what the models say; run `make crds`", file=sys.stderr)
    return 1 if stale else 0


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
