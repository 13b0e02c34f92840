"""`helm test`: the operator is ready, and the API server lists Millrace's kinds with its rights."""

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEADLINE = time.monotonic() + 60


def fetch(request: urllib.request.Request | str, context: ssl.SSLContext | None = None) -> bytes:
    """The body of an answer 200, tried until the deadline: a rollout may be under way."""
    while True:
        try:
            with urllib.request.urlopen(request, timeout=5, context=context) as answer:  # noqa: S310
                return bytes(answer.read())
        except OSError as error:
            if time.monotonic() > DEADLINE:
                detail = error.read().decode() if isinstance(error, urllib.error.HTTPError) else ""
                url = request if isinstance(request, str) else request.full_url
                sys.exit(f"FAILED {url}: {error} {detail}")
            time.sleep(1)


fetch(os.environ["READY_URL"])
print("ok  the operator is ready")

host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"}
trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
for namespace in os.environ["WATCH_NAMESPACES"].split(","):
    scope = f"namespaces/{namespace}/" if namespace else ""
    for plural in ("pulsarconnections", "compositetopics"):
        url = f"https://{authority}/apis/millrace.dev/v1alpha1/{scope}{plural}?limit=1"
        answer = json.loads(fetch(urllib.request.Request(url, headers=headers), trust))
        print(f"ok  {scope}{plural}: {answer['kind']}")
