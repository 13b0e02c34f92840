"""The operator may do what it must and nothing else: read from the rendered roles themselves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.chart import rendering

ROLES = ("ClusterRole", "Role")
READING = {"get", "list", "watch"}
CLUSTER_SCOPED = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}


def rules(case: str, *kinds: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        (document["metadata"].get("namespace", "*"), rule)
        for document in rendering.of_kind(case, *kinds)
        for rule in document["rules"]
    ]


def namespaces_where(case: str, resource: str, verb: str) -> set[str]:
    return {
        namespace
        for namespace, rule in rules(case, *ROLES)
        if resource in rule["resources"] and verb in rule["verbs"]
    }


@pytest.mark.parametrize("case", rendering.CASES)
def test_no_secret_is_readable_cluster_wide(case: str) -> None:
    for _, rule in rules(case, "ClusterRole"):
        assert "secrets" not in rule["resources"]
        assert "configmaps" not in rule["resources"] or not READING & set(rule["verbs"])


@pytest.mark.parametrize("case", rendering.CASES)
def test_no_cluster_role_is_bound_by_a_role_binding_or_beyond_the_operators_account(case: str) -> None:
    for binding in rendering.of_kind(case, "RoleBinding"):
        assert binding["roleRef"]["kind"] == "Role"
    for binding in rendering.of_kind(case, "RoleBinding", "ClusterRoleBinding"):
        accounts = [(item["kind"], item["namespace"], item["name"]) for item in binding["subjects"]]
        assert accounts == [("ServiceAccount", rendering.NAMESPACE, rendering.RELEASE)]


@pytest.mark.parametrize("case", rendering.CASES)
def test_no_rule_has_a_wildcard(case: str) -> None:
    for _, rule in rules(case, *ROLES):
        assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}


@pytest.mark.parametrize("case", rendering.CASES)
def test_secrets_can_be_read_one_by_one_but_never_listed_or_written(case: str) -> None:
    for _, rule in rules(case, *ROLES):
        if "secrets" in rule["resources"]:
            assert rule["verbs"] == ["get"]
        if "configmaps" in rule["resources"]:
            assert rule["verbs"] in (["get"], ["create", "patch"])


@pytest.mark.parametrize("case", ["defaults", "everything", "namespaced"])
def test_the_operator_holds_what_it_grants_to_the_pods_of_subscriptions(case: str) -> None:
    """Or the API server would refuse the Role: nobody can grant what he has not."""
    for verb in ("get", "update"):
        assert namespaces_where(case, "subscriptions", "watch") <= namespaces_where(case, "leases", verb)


@pytest.mark.parametrize("case", ["defaults", "everything", "namespaced"])
@pytest.mark.parametrize(
    "resource", ["deployments", "configmaps", "serviceaccounts", "roles", "rolebindings", "leases"]
)
def test_what_subscriptions_need_is_applied_exactly_where_they_are_watched(case: str, resource: str) -> None:
    watched = namespaces_where(case, "subscriptions", "watch")
    assert namespaces_where(case, resource, "patch") == watched
    assert watched <= namespaces_where(case, resource, "create")


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("defaults", set()),
        ("everything", {"team-a", "team-b", "team-c"}),
        ("namespaced", {"team-a", "team-b"}),
        ("bare", set()),
    ],
)
def test_secrets_are_readable_exactly_where_the_values_say(case: str, expected: set[str]) -> None:
    assert namespaces_where(case, "secrets", "get") == expected


def test_the_namespaced_mode_asks_for_nothing_cluster_wide_but_the_crds() -> None:
    cluster_scoped = {document["kind"] for document in rendering.of_kind("namespaced", *CLUSTER_SCOPED)}
    assert cluster_scoped == {"CustomResourceDefinition"}
    assert namespaces_where("namespaced", "compositetopics", "watch") == {"team-a", "team-b"}


@pytest.mark.parametrize("case", ["defaults", "everything", "namespaced"])
def test_the_lease_is_bound_to_its_name_and_to_the_release_namespace(case: str) -> None:
    name = "the-lease" if case == "everything" else rendering.RELEASE
    # Those of shards are everywhere that Subscriptions are, and are told by their verbs.
    lease_rules = [
        (where, rule)
        for where, rule in rules(case, *ROLES)
        if "leases" in rule["resources"] and "patch" not in rule["verbs"]
    ]
    assert {where for where, _ in lease_rules} == {rendering.NAMESPACE}
    for _, rule in lease_rules:
        assert rule["verbs"] == ["create"] or rule["resourceNames"] == [name]


def test_the_cluster_is_asked_for_its_identity_only_if_none_is_given() -> None:
    asked = [rule for _, rule in rules("defaults", *ROLES) if "namespaces" in rule["resources"]]
    assert asked == [
        {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"]}
    ]
    assert namespaces_where("everything", "namespaces", "get") == set()


@pytest.mark.parametrize(
    ("case", "expected"),
    [("defaults", set()), ("everything", {"team-a", "team-c"}), ("namespaced", {"team-a", "team-b"})],
)
def test_connections_are_created_only_where_the_default_one_belongs(case: str, expected: set[str]) -> None:
    operators = {
        namespace
        for namespace, rule in rules(case, "Role")
        if "pulsarconnections" in rule["resources"] and "create" in rule["verbs"]
    }
    assert operators == expected


@pytest.mark.parametrize("case", rendering.CASES)
def test_every_pod_satisfies_the_restricted_profile(case: str) -> None:
    for name, spec in rendering.pod_specs(case):
        pod = spec["securityContext"]
        assert pod["runAsNonRoot"] is True, name
        assert pod["runAsUser"] == 65532, name
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys(), name
        assert all({"emptyDir", "configMap"} & volume.keys() for volume in spec.get("volumes", [])), name
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert container["resources"]["limits"]["memory"], name


@pytest.mark.parametrize("case", rendering.CASES)
def test_only_pods_that_ask_for_it_get_the_accounts_token(case: str) -> None:
    for account in rendering.of_kind(case, "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False
    for name, spec in rendering.pod_specs(case):
        assert spec["automountServiceAccountToken"] is True, name
