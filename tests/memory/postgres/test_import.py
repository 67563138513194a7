"""Nothing of PostgreSQL is imported by a memory in a file."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, sys
from memory import Memory

async def main():
    async with Memory("sqlite://:memory:") as memory:
        await memory.save("key", 1)

asyncio.run(main())
print(sorted(name for name in sys.modules if name.startswith(("psycopg", "memory.postgres"))))
"""


def test_a_memory_in_a_file_imports_nothing_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
