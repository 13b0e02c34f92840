"""The pod of a Subscription's shard: it reads, delivers over HTTP, parks and acknowledges.

What happens when is decided in `core`; here are the sockets, files and clocks around it.
"""
