"""The pure domain: functions and frozen values, with no I/O, no clock and no randomness.

Routing, shards, positions, the descriptor of a composite topic, and the plans that the
controllers carry out. What needs a socket, a thread or the time belongs in `pulsar` or above.
"""
