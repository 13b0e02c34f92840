"""The sandbox's own certificate authority, and everything it signs.

Each component has its own client certificate, so that it has exactly the rights that Kubernetes' RBAC
gives to its user, as on a real cluster. Keys are PKCS#8, which Java reads too.
"""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.layout import CLUSTER_DOMAIN, NODE_IP, Layout, SandboxError

AUTHORITY = "ca"
_DAYS = "3650"
_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key."""

    certificate: Path
    key: Path

    @property
    def complete(self) -> bool:
        """Whether both files are there."""
        return self.certificate.exists() and self.key.exists()


def authority(layout: Layout) -> Pair:
    """The certificate authority, made at the first call."""
    pair = places(layout, AUTHORITY)
    if not pair.complete:
        _certificate(
            pair,
            ["-x509", "-subj", f"/CN=millrace-{layout.name}"],
            ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"],
        )
    return pair


def issue(
    layout: Layout,
    name: str,
    *,
    common_name: str,
    organization: str | None = None,
    names: Sequence[str] = (),
) -> Pair:
    """A certificate for a server (`names`: DNS names or addresses) or a client, made at the first call."""
    signer = authority(layout)
    pair = places(layout, name)
    if not pair.complete:
        subject = (f"/O={organization}" if organization else "") + f"/CN={common_name}"
        extensions = [
            "basicConstraints=critical,CA:FALSE",
            "keyUsage=critical,digitalSignature",
            f"extendedKeyUsage={'serverAuth,' if names else ''}clientAuth",
        ]
        if names:
            extensions.append("subjectAltName=" + ",".join(_alternative(each) for each in names))
        ca = ["-CA", str(signer.certificate), "-CAkey", str(signer.key)]
        _certificate(pair, ["-x509", *ca, "-subj", subject], extensions)
    return pair


def service_account_key(layout: Layout) -> Path:
    """The key that signs the tokens of service accounts; the API server derives the public half."""
    key = layout.pki / "service-accounts.key"
    if not key.exists():
        layout.pki.mkdir(parents=True, exist_ok=True)
        partial = key.with_suffix(".partial")
        _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(partial))
        partial.rename(key)
    return key


def admin_token(layout: Layout) -> str:
    """The administrator's bearer token."""
    path = layout.pki / "admin.token"
    if not path.exists():
        layout.pki.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.touch(mode=0o600)
        partial.write_text(secrets.token_urlsafe(24))
        partial.rename(path)
    return path.read_text()


def kubeconfig(layout: Layout, path: Path, *, client: Pair | None = None) -> Path:
    """Write the configuration of a client: with its certificate, or with the administrator's token."""
    if client is None:
        user: dict[str, str] = {"token": admin_token(layout)}
    else:
        user = {"client-certificate": str(client.certificate), "client-key": str(client.key)}
    ca = base64.b64encode(authority(layout).certificate.read_bytes()).decode()
    name = f"millrace-{layout.name}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": f"https://{NODE_IP}:6443", "certificate-authority-data": ca}}
        ],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=2) + "\n")
    return path


def component_kubeconfig(layout: Layout, name: str, *, user: str, group: str | None = None) -> Path:
    """The configuration of a component that logs in with a certificate of its own."""
    client = issue(layout, name, common_name=user, organization=group)
    return kubeconfig(layout, layout.state / "kubeconfigs" / f"{name}.kubeconfig", client=client)


def api_server_names(service_ip: str) -> list[str]:
    """Every name that a client may use for the API server."""
    service = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    return [
        *service,
        f"kubernetes.default.svc.{CLUSTER_DOMAIN}",
        "localhost",
        "127.0.0.1",
        NODE_IP,
        service_ip,
    ]


def _alternative(name: str) -> str:
    is_address = name.replace(".", "").isdigit() or ":" in name
    return f"{'IP' if is_address else 'DNS'}:{name}"


def places(layout: Layout, name: str) -> Pair:
    """Where a certificate and its key are, or will be; asking makes nothing."""
    return Pair(layout.pki / f"{name}.crt", layout.pki / f"{name}.key")


def _certificate(pair: Pair, arguments: Sequence[str], extensions: Sequence[str]) -> None:
    pair.certificate.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=pair.certificate.parent) as scratch:
        made = Pair(Path(scratch) / "crt", Path(scratch) / "key")
        added = [word for extension in extensions for word in ("-addext", extension)]
        files = ["-keyout", str(made.key), "-out", str(made.certificate)]
        # An empty configuration: the system's would add extensions of its own.
        _openssl("req", "-config", "/dev/null", *arguments, *_EC, *files, "-days", _DAYS, *added)
        made.key.rename(pair.key)
        made.certificate.rename(pair.certificate)


def _openssl(*arguments: str) -> None:
    result = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise SandboxError(
            f"`openssl {' '.join(arguments)}` failed (OpenSSL 3 is needed):\n{result.stderr.strip()}"
        )
