"""A real Kubernetes and a real Pulsar on one machine, without Docker, in a network namespace of their own.

`python -m sandbox --help` says what it can do. Everything that belongs to one sandbox has its name in its
path: state under `/var/lib/millrace/NAME`, sockets and pids under `/run/millrace/NAME`, the network namespace
and the cgroup `millrace-NAME`. So several can run side by side, and `down` knows what to remove even after a
kill -9.
"""
