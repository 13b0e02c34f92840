"""A producer in a process of its own, to be stopped, continued and killed.

It sends each group's next message, round after round, and prints `GROUP NUMBER` of everything that is
acknowledged. A line on its standard input ends it, with everything sent.

    python writer.py TOPIC GROUP...
"""

from __future__ import annotations

import asyncio
import itertools
import sys

from millrace.client import Connection, Position, Producer

PAUSE = 0.01


def say(text: str, outcome: asyncio.Future[Position]) -> None:
    if not outcome.cancelled():
        outcome.result()
        print(text, flush=True)


async def main(topic: str, groups: list[str]) -> None:
    told = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    async with (
        Connection.from_environment() as connection,
        await Producer.open(connection, topic) as producer,
    ):
        for number in itertools.count():
            if told.done():
                break
            for group in groups:
                text = f"{group} {number}"
                future = await producer.submit(group, text.encode())
                future.add_done_callback(lambda outcome, text=text: say(text, outcome))
            await asyncio.sleep(PAUSE)
        await producer.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
