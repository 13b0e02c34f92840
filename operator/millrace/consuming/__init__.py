"""Consuming a composite topic as a shard of a subscription: the shell around `millrace.core.shards`.

The pod and the library run the same code: who delivers (an HTTP endpoint, a coroutine) and how a shard is
claimed (a Lease, Pulsar itself) is passed in. Nothing here knows Kubernetes or HTTP.
"""
