"""Play many drawn histories of sessions: `python -m tests.decisions 100000` (`make histories`).

One of a thousand is also told through the journals of a file and, where one is installed, of a server.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

from memory import Memory
from memory.postgres.store import PostgresMemory
from tests.decisions.journalled import drawn, tell
from tests.decisions.test_histories import HISTORIES, play
from tests.servers.postgresql import postgres_server, programs

_TOLD = 1_000


def main() -> None:
    """Play as many histories as the command line says, those of the gate first, and say how many passed."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 20 * HISTORIES
    for seed in range(number):
        try:
            play(seed)
        except BaseException:
            sys.stderr.write(f"history {seed} failed:\n")
            raise
    sys.stdout.write(f"{number:,} histories: all work was in one place until done, each message finished once\n")
    if programs() is not None:
        with postgres_server() as server:
            for seed in range(number // _TOLD):
                compare(seed, server.database())
        sys.stdout.write(f"{number // _TOLD:,} of them told to journals: the same rows in a file and on a server\n")


def compare(seed: int, url: str) -> None:
    """Tell a history to the journals of a file and of a server. Raises: AssertionError if their views differ."""
    groups = drawn(seed)
    with tempfile.TemporaryDirectory() as folder:
        in_file = asyncio.run(tell(lambda: Memory.open(f"sqlite:///{folder}/memory.db", ballast=0), groups))
    assert in_file == asyncio.run(tell(lambda: PostgresMemory(url), groups)), f"history {seed} differs"


if __name__ == "__main__":
    main()
