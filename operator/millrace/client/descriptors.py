"""Find a composite topic, and keep knowing it."""

from __future__ import annotations

import asyncio

from millrace.client.connection import Connection
from millrace.client.errors import TopicNotFound
from millrace.core.descriptor import Descriptor
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
