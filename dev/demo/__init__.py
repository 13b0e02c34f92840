"""The demonstration: a composite topic grows from 2 to 12 partitions under load; order is checked live.

`make demo` runs it on the sandbox; `python -m demo --help` says what can be changed. It exits with 1 when
the promise broke.
"""
