"""Find a composite topic, and keep knowing it."""

from __future__ import annotations

import asyncio

from millrace.client.connection import Connection
from millrace.client.errors import TopicNotFound, TopicNotWritable
from millrace.core.descriptor import Descriptor
from millrace.core.routing import Routing
from millrace.pulsar import descriptors
from millrace.pulsar.descriptors import DescriptorFollower


async def follow(connection: Connection, topic: str) -> tuple[DescriptorFollower, Descriptor]:
    """A started follower and the descriptor it has found.

    Following waits for ever for a first descriptor; reading to the end takes longer to find one but knows
    when there is none. So both are asked, and the first answer counts.
    """
    client = connection.client
    follower = DescriptorFollower(client, topic)
    follower.start()
    found = asyncio.ensure_future(follower.wait_for(lambda _: True))
    read = asyncio.ensure_future(descriptors.read(client, topic))
    try:
        await asyncio.wait((found, read), return_when=asyncio.FIRST_COMPLETED)
        if found.done():
            return follower, found.result()
        descriptor = read.result()
        if descriptor is None:
            raise TopicNotFound(
                f"there is no composite topic behind {topic}: check the name and the Pulsar namespace, "
                "and that its CompositeTopic is Ready"
            )
        return follower, descriptor
    except BaseException:
        await follower.close()
        raise
    finally:
        found.cancel()
        read.cancel()
        await asyncio.wait((found, read))
        for task in (found, read):
            if not task.cancelled():
                task.exception()  # the loser's failure does not matter


async def follow_to_write(connection: Connection, topic: str) -> tuple[DescriptorFollower, Descriptor]:
    """The same for a producer: raises TopicNotWritable if there is nowhere to write to."""
    follower, descriptor = await follow(connection, topic)
    try:
        if descriptor.produce_topic.layout.routing is Routing.UNKNOWN:
            # What is found first may be an old one: nothing is refused because of that.
            newest = await descriptors.read(connection.client, topic)
            if newest is not None and newest.generation > descriptor.generation:
                descriptor = newest
        if is_passed_by(descriptor):
            descriptor = await follower.wait_for(
                lambda known: known.generation >= descriptor.generation and not is_passed_by(known)
            )
        check_writable(descriptor)
    except BaseException:
        await follower.close()
        raise
    return follower, descriptor


def is_passed_by(descriptor: Descriptor) -> bool:
    """Whether a switch stands at a topic that cannot be written to, on its way to one that can."""
    return descriptor.switching_to is not None and descriptor.produce_topic.layout.routing is Routing.UNKNOWN


def check_writable(descriptor: Descriptor) -> None:
    """Raise TopicNotWritable if producers cannot keep any order where the produce pointer stands."""
    produce_topic = descriptor.produce_topic
    if produce_topic.layout.routing is Routing.UNKNOWN:
        raise TopicNotWritable(
            f"{produce_topic.topic} was adopted with messages in it, routed by somebody else; "
            "append a storage topic and move the produce pointer to it before producing"
        )
