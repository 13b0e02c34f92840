"""The objects in Kubernetes that a Subscription has: pure builders of manifests, to be applied as they are.

All belong to the Subscription and are removed with it. A Lease is applied without a spec: who holds it is for
the pods to say. Only what is of one generation of shards has its number in the name, so that the next one can
be made ready beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from millrace.api import API_VERSION
from millrace.api.podtemplate import PodTemplate, Toleration
from millrace.api.subscription import Subscription
from millrace.core.shardconfig import CONFIG_FILE, ShardConfig
from millrace.core.shardleases import SHARD
from millrace.core.subscriptionconfigs import Mounted, lease_prefix

Manifest = dict[str, Any]

SUBSCRIPTION = "millrace.dev/subscription"
SHARD_GENERATION = "millrace.dev/shard-generation"
CONFIG_DIGEST = "millrace.dev/config"
MANAGED_BY = {"app.kubernetes.io/managed-by": "millrace", "app.kubernetes.io/component": "shard"}
PORT = 8080
USER = 65532
FILE_MODE = 0o440
TOLERATED_SECONDS = 20
"""How long pods stay on a node that does not answer; 300 s, the default, would be long without an owner."""
GRACE = 15.0
"""What a pod gets beyond draining, to write what it knows and to let its shard go."""

_DEFAULT_RESOURCES = {"requests": {"cpu": "100m", "memory": "192Mi"}, "limits": {"memory": "768Mi"}}


@dataclass(frozen=True, slots=True)
class Platform:
    """What the installation says of every pod."""

    image: str
    pull_policy: str = "IfNotPresent"
    log_format: str = "json"
    log_level: str = "INFO"


def selector(name: str, generation: int) -> dict[str, str]:
    """The labels that the pods of one generation have, and no other pods of the namespace."""
    return {SUBSCRIPTION: name, SHARD_GENERATION: str(generation)}


def selector_text(name: str, generation: int) -> str:
    """The same as an autoscaler reads it."""
    return ",".join(f"{key}={value}" for key, value in selector(name, generation).items())


def shared_name(name: str) -> str:
    """What all generations share: ServiceAccount, Role, RoleBinding and ConfigMap."""
    return f"{name}-shards"


def deployment_name(name: str, generation: int) -> str:
    """The Deployment of one generation."""
    return f"{name}-shards-{generation}"


def manifests(
    subscription: Subscription,
    config: ShardConfig,
    mounted: tuple[Mounted, ...],
    platform: Platform,
    *,
    suspended: bool,
) -> tuple[Manifest, ...]:
    """Every object, in the order in which to apply them: what pods need comes before the pods."""
    return (
        service_account(subscription),
        role(subscription, config),
        role_binding(subscription),
        config_map(subscription, config),
        *leases(subscription, config),
        deployment(subscription, config, mounted, platform, suspended=suspended),
    )


def service_account(subscription: Subscription) -> Manifest:
    """Who the pods are; the token is mounted by the pods that ask for it."""
    return _object(subscription, "v1", "ServiceAccount") | {"automountServiceAccountToken": False}


def role(subscription: Subscription, config: ShardConfig) -> Manifest:
    """What the pods may do: read and claim exactly their Leases."""
    rule = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [config.lease_name(shard) for shard in range(config.shard_count)],
        "verbs": ["get", "update"],
    }
    return _object(subscription, "rbac.authorization.k8s.io/v1", "Role") | {"rules": [rule]}


def role_binding(subscription: Subscription) -> Manifest:
    """The ServiceAccount has the Role."""
    name = shared_name(subscription.metadata.name)
    return _object(subscription, "rbac.authorization.k8s.io/v1", "RoleBinding") | {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": subscription.metadata.namespace}],
    }


def config_map(subscription: Subscription, config: ShardConfig) -> Manifest:
    """What the pods are told; it names files, and holds no secret."""
    return _object(subscription, "v1", "ConfigMap") | {
        "data": {PurePosixPath(CONFIG_FILE).name: config.to_json()}
    }


def leases(subscription: Subscription, config: ShardConfig) -> tuple[Manifest, ...]:
    """One a shard, without a spec: that is the pods'."""
    generation = {SHARD_GENERATION: str(config.generation)}
    return tuple(
        _object(
            subscription,
            "coordination.k8s.io/v1",
            "Lease",
            name=f"{lease_prefix(config.name, config.generation)}{shard}",
            labels=generation | {SHARD: str(shard)},
        )
        for shard in range(config.shard_count)
    )


def deployment(
    subscription: Subscription,
    config: ShardConfig,
    mounted: tuple[Mounted, ...],
    platform: Platform,
    *,
    suspended: bool,
) -> Manifest:
    """The pods: one a shard, and those that stand by. Any pod may claim any shard."""
    name, spec = subscription.metadata.name, subscription.spec
    chosen = selector(name, config.generation)
    template = spec.pod_template
    manifest = _object(
        subscription,
        "apps/v1",
        "Deployment",
        name=deployment_name(name, config.generation),
        labels={SHARD_GENERATION: str(config.generation)},
    )
    return manifest | {
        "spec": {
            "replicas": 0 if suspended else config.shard_count + spec.standby,
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": chosen},
            # A new pod is ready as a standby, and takes over what an old one lets go: none is missing.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0},
            },
            "template": {
                "metadata": {
                    "labels": {**template.labels, **_labels(name), **chosen},
                    "annotations": {**template.annotations, CONFIG_DIGEST: config.digest},
                },
                "spec": _pod(config, mounted, platform, template),
            },
        }
    }


def _pod(
    config: ShardConfig, mounted: tuple[Mounted, ...], platform: Platform, template: PodTemplate
) -> Manifest:
    directories = sorted({mount.directory for mount in mounted})
    pod: Manifest = {
        "serviceAccountName": shared_name(config.name),
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": math.ceil(config.timing.drain_seconds + GRACE),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(directories, platform, template)],
        "volumes": [
            {"name": "config", "configMap": {"name": shared_name(config.name)}},
            *(_volume(directory, mounted) for directory in directories),
            {"name": "tmp", "emptyDir": {}},
        ],
        "tolerations": [*(each.to_wire() for each in template.tolerations), *_failing_nodes(template)],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "matchLabelKeys": ["pod-template-hash"],
                "labelSelector": {"matchLabels": selector(config.name, config.generation)},
            }
        ],
    }
    return pod | ({"nodeSelector": dict(template.node_selector)} if template.node_selector else {})


def _container(directories: list[str], platform: Platform, template: PodTemplate) -> Manifest:
    resources = template.resources.to_wire() if template.resources is not None else _DEFAULT_RESOURCES
    own = {
        "MILLRACE_CONFIG": CONFIG_FILE,
        "MILLRACE_LOG_FORMAT": platform.log_format,
        "MILLRACE_LOG_LEVEL": platform.log_level,
    }
    fields = {
        "MILLRACE_POD_NAME": "metadata.name",
        "MILLRACE_POD_NAMESPACE": "metadata.namespace",
        "MILLRACE_POD_UID": "metadata.uid",
    }
    return {
        "name": "shard",
        "image": platform.image,
        "imagePullPolicy": platform.pull_policy,
        "command": ["python", "-m", "millrace.shard"],
        "env": [
            *({"name": name, "value": value} for name, value in own.items()),
            *(
                {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
                for name, path in fields.items()
            ),
            *(variable.to_wire() for variable in template.env),
        ],
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "startupProbe": _probe("/healthz", periodSeconds=2, failureThreshold=30),
        "livenessProbe": _probe("/healthz", periodSeconds=10, timeoutSeconds=5, failureThreshold=3),
        "readinessProbe": _probe("/readyz", periodSeconds=5, timeoutSeconds=5, failureThreshold=2),
        "resources": resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": str(PurePosixPath(CONFIG_FILE).parent), "readOnly": True},
            *(
                {"name": _volume_name(directory), "mountPath": directory, "readOnly": True}
                for directory in directories
            ),
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - in the container
        ],
    }


def _probe(path: str, **timing: int) -> Manifest:
    return {"httpGet": {"path": path, "port": "http"}, **timing}


def _volume_name(directory: str) -> str:
    return PurePosixPath(directory).name


def _volume(directory: str, mounted: tuple[Mounted, ...]) -> Manifest:
    """Whole volumes and no single files: only those are replaced when a Secret rotates."""
    sources = [
        {
            "configMap" if mount.config_map else "secret": {
                "name": mount.name,
                "items": [{"key": mount.key, "path": mount.file}],
            }
        }
        for mount in mounted
        if mount.directory == directory
    ]
    return {"name": _volume_name(directory), "projected": {"defaultMode": FILE_MODE, "sources": sources}}


def _failing_nodes(template: PodTemplate) -> list[Manifest]:
    taints = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    return [
        {
            "key": taint,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": TOLERATED_SECONDS,
        }
        for taint in taints
        if not any(_covers(each, taint) for each in template.tolerations)
    ]


def _covers(toleration: Toleration, taint: str) -> bool:
    return toleration.key == taint


def _labels(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "millrace-shard", "app.kubernetes.io/instance": name, **MANAGED_BY}


def _object(
    subscription: Subscription,
    api_version: str,
    kind: str,
    *,
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Manifest:
    meta = subscription.metadata
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name or shared_name(meta.name),
            "namespace": meta.namespace,
            "labels": {**_labels(meta.name), SUBSCRIPTION: meta.name, **(labels or {})},
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": "Subscription",
                    "name": meta.name,
                    "uid": meta.uid,
                    "controller": True,
                }
            ],
        },
    }
