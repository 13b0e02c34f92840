"""The custom resources as pydantic models: the one source of `crds/`, of the reference and of what is read.

What lives here: models (`compositetopic`, `pulsarconnection`, `subscription` with its `delivery` and
`podtemplate`, `meta`), the value types they are made of (`quantities`, `validations`), the closed set of
condition reasons (`reasons`), and the generators (`schemas`, `crds`, `reference`). What must not: anything
that talks to Kubernetes or Pulsar, or decides what to do.
"""

GROUP = "millrace.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

FINALIZER = f"{GROUP}/cleanup"
"""Set only where `deletionPolicy` is Delete: a namespace must delete cleanly after the operator is gone."""

PAUSED_ANNOTATION = f"{GROUP}/paused"
"""While it is present with any value but "false", the operator leaves the object and its topics alone."""
