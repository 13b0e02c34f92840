"""The edge to Pulsar: admin REST, client connections, sealed ends, compacted topics as tables, descriptors.

Everything here talks to a broker and decides nothing: decisions live in `millrace.core`. Blocking calls of
the native client run in threads of their own (`clients.blocking`), so that no caller's event loop ever
waits. What goes wrong is raised as one of `errors.PulsarError`. No Kubernetes here.
"""
