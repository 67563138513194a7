"""A process that writes rows and says of each, in a file, when it was acknowledged: `python -m tests.storage.worker`.

Its arguments are the store, the file of what it says, and options as JSON. The file is written with one system call
a line, so that a tracer sees an acknowledgement as it sees the writes and flushes of the store:

    open                the store could be opened
    ack ID VERSION      acknowledged
    told TEXT           the store said that it cannot write, or that it can again (`told ok`)
    failed ID TEXT      it was refused
    stored JSON         what the store held at the end, read by this process
    closed              everything is done; without it the process did not live
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from random import Random
from typing import Any

from memory import Memory
from memory.sqlite.database import sizes
from spar.types import Fault
from tests.storage.rows import Truth, found_in


def limit_files(size: int) -> None:
    """From now on no file of this process may become larger than so many bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


async def work(
    path: str, say: Any, *, rows: int, size: int, seed: int, durability: str, patience: float, room: int,
    together: list[int],
) -> None:  # fmt: skip
    """Write `rows` rows, at a time as many as one of the numbers of `together`, drawn. `room` lets files grow only so
    far, in bytes, until the store has said so once: 0 for any."""

    def told(fault: Fault | None) -> None:
        say(f"told {fault.message if fault else 'ok'}")
        limit_files(resource.RLIM_INFINITY)

    truth, random = Truth(), Random(seed)
    memory = Memory.open(f"sqlite:///{path}", durability=durability)
    memory.on_fault = told
    async with memory:
        say("open")
        if room:
            limit_files(sizes(path)[1] + room)

        async def keep(id: str) -> None:
            try:
                await truth.keep(memory, id, size, lambda ack: say(f"ack {ack[1]} {ack[2]}"))
            except Exception as error:
                say(f"failed {id} {type(error).__name__}: {error}")

        async with asyncio.timeout(patience):
            number = 0
            while number < rows:
                group = random.choice(together)
                await asyncio.gather(*(keep(f"n{number + each}") for each in range(group)))
                number += group
        found = await found_in(memory)
        say("stored " + json.dumps({id: version for id, (version, _) in found.records.items()}))
    say("closed")


def main() -> None:
    path, said, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    asyncio.run(work(path, lambda line: os.write(file, f"{line.splitlines()[0]}\n".encode()), **options))


if __name__ == "__main__":
    main()
