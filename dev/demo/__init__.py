"""The demonstration: a composite topic grows from 2 to 12 partitions under load, and an endpoint gets it all.

Order is checked live, of what a consumer reads and of what the endpoint is sent, also while the endpoint does
not take everything. `make demo` runs it on the sandbox; `python -m demo --help` says what can be changed. It
exits with 1 when the promise broke.
"""
