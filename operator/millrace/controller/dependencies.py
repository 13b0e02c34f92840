"""Which Subscriptions an event is news to, though it is about another object. No I/O here."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.controller import compositetopics, subscriptions
from millrace.controller.inventory import Body, Inventory, Key
from millrace.core.subscriptionobjects import SUBSCRIPTION


class Dependencies:
    """What Subscriptions last heard of topics and Deployments, so that they are woken only by something new.

    The inventory cannot tell: to it the operator's own words in a topic's status are no news.
    """

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._topics: dict[Key, tuple[object, ...]] = {}
        self._deployments: dict[tuple[str, str], object] = {}

    def topic(self, key: Key, body: Body, *, gone: bool) -> Iterator[Key]:
        """A CompositeTopic is shown: which Subscriptions are to look again."""
        metadata, status = body["metadata"], body.get("status") or {}
        heard = (gone, metadata.get("uid"), metadata.get("generation"), status.get("descriptorGeneration"))
        if self._topics.get(key) == heard:
            return
        self._topics[key] = heard
        if gone:
            del self._topics[key]
        for candidate in self._inventory.keys(subscriptions.PLURAL):
            if _topic_of(candidate, self._inventory.get(candidate)) == key:
                yield candidate

    def deployment(self, body: Body, *, gone: bool) -> Iterator[tuple[Key, bool]]:
        """A Deployment of shards is shown: whose it is, and whether somebody changed it."""
        metadata = body["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        owner = (metadata.get("labels") or {}).get(SUBSCRIPTION)
        known = self._deployments.get((namespace, name))
        generation = None if gone else metadata.get("generation")
        self._deployments[namespace, name] = generation
        if gone:
            del self._deployments[namespace, name]
        if owner:
            # One that is seen for the first time was there before us, or is our own work.
            yield (subscriptions.PLURAL, namespace, owner), gone or known not in (None, generation)


def _topic_of(key: Key, body: Body | None) -> Key | None:
    reference = ((body or {}).get("spec") or {}).get("topicRef") or {}
    return compositetopics.PLURAL, reference.get("namespace") or key[1], reference.get("name", "")
