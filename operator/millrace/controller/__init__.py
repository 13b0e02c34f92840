"""The edge to Kubernetes: `python -m millrace.controller`.

Thin kopf handlers feed one work queue; one reconciler a kind takes from it and does observe -> plan -> act,
where the plan is a pure function in `millrace.core`. Leader election, health, metrics and events live here
too. What must not: any decision about topics that could be a pure function, and any use of kopf's own
persistence (its annotations, its finalizer, its timers), which would keep a namespace from being deleted
after the chart is gone.
"""
