"""Millrace: durable, ordered, re-shardable subscriptions for Apache Pulsar, declared as Kubernetes resources.

Packages, from the bottom up (imports only point downwards; import-linter keeps it so):
`api` the custom resources, `core` the pure domain, `pulsar` the edge to Pulsar,
`controller`/`shard`/`leader`/`client`/`spark` the programs and libraries, `cli` the command line.
"""

__version__ = "0.1.0"
