"""Nothing of PostgreSQL is imported by a memory in a file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def test_what_lacks_for_postgresql_is_said_by_a_store_a_move_and_the_options_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "psycopg.py").write_text("raise ImportError('gone')")
    (tmp_path / "config.toml").write_text("")
    url = "postgresql://spar@127.0.0.1/agent"

    def refused(*command: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        program = [sys.executable, "-m", "spar", *command]
        done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
        assert done.returncode == 78
        return done.stderr

    sentence = "memory.use: PostgreSQL needs psycopg (gone): install spar-agent[postgres]\n"
    assert refused("memory", "move", "--to", url) == f"Error: {sentence}"
    (tmp_path / "config.toml").write_text(f'[memory]\nuse = "postgres"\nurl = "{url}"\n')
    assert refused("config", "check") == f"Error: config.toml:2: {sentence}"
    (tmp_path / "config.toml").write_text("[memory]\nnodes = true\n")
    assert refused("config", "check").endswith('; memory.nodes needs memory.use = "postgres"\n')
