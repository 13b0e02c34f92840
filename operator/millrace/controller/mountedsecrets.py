"""Whether what pods are to mount is there: a pod without its Secret would wait for ever, and say little."""

from __future__ import annotations

from millrace.api.pulsarconnection import AuthType, PulsarConnection
from millrace.api.reasons import Reason
from millrace.controller.connections import NoConnection
from millrace.controller.kube import Document, Kube, KubeError
from millrace.core.subscriptionconfigs import Mounted


async def check_mounts(
    kube: Kube, namespace: str, connection: PulsarConnection, mounted: tuple[Mounted, ...]
) -> None:
    """Raise NoConnection, naming the Secret and the key, if one is not there.

    Where the operator may not read Secrets there is nothing to be said: the kubelet mounts them all the same.
    """
    if connection.spec.auth.type is not AuthType.NONE and connection.spec.client_secret_ref is None:
        raise NoConnection(
            Reason.SECRET_NOT_FOUND,
            f"the PulsarConnection {connection.metadata.name} has no clientSecretRef: name the Secret "
            "with the credentials of the pods",
        )
    read: dict[tuple[bool, str], Document | None] = {}
    for mount in mounted:
        which = mount.config_map, mount.name
        if which not in read:
            read[which] = await _read(kube, namespace, mount)
        document = read[which]
        if document is not None and mount.key not in (document.get("data") or {}):
            raise NoConnection(
                Reason.SECRET_NOT_FOUND, f"the {_kind(mount)} {namespace}/{mount.name} has no key {mount.key}"
            )


async def _read(kube: Kube, namespace: str, mount: Mounted) -> Document | None:
    read = kube.read_config_map if mount.config_map else kube.read_secret
    try:
        return await read(namespace, mount.name)
    except KubeError as error:
        if error.not_found:
            raise NoConnection(
                Reason.SECRET_NOT_FOUND,
                f"there is no {_kind(mount)} {namespace}/{mount.name}, which the pods need; create it "
                f"with the key {mount.key}",
            ) from error
        if error.status == 403:
            return None
        raise


def _kind(mount: Mounted) -> str:
    return "ConfigMap" if mount.config_map else "Secret"
