"""The control API as schemathesis sees it: the document says what is taken, what is refused, and what is answered."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from memory import Memory
from spar import Agent
from spar.config.load import load
from spar.server import access
from spar.server.front import Front
from spar.service.app import Service

CONFIG = Path(__file__).with_name("schemathesis.toml")
#: It finds the table of all characters where the other tests of properties keep it: to make it takes two seconds.
ENVIRONMENT = {"HYPOTHESIS_STORAGE_DIRECTORY": str(Path(".hypothesis").absolute())}


async def test_two_thousand_requests_are_answered_as_the_document_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "MOST_GUESSES", 10_000)  # it tries wrong tokens
    memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}", durability="off")
    async with Agent(memory=memory, loop_interval="off") as agent:
        settings = load(None, environ={"SPAR_SERVICE__TOKEN_RATE": "0"})
        service = Service(settings, agent, reload=lambda: settings)
        token = (await service.tokens.create("tester", ["admin"])).token
        front = Front(service, tmp_path, "127.0.0.1", 0, with_probes=True)
        front.open()
        try:
            run = await asyncio.create_subprocess_exec(
                str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(CONFIG), "run",
                f"{front.address}/v1/openapi.json", "--header", f"Authorization: Bearer {token}",
                env=ENVIRONMENT, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            report, _ = await run.communicate()
        finally:
            await asyncio.to_thread(front.close)

    assert run.returncode == 0, report.decode()
    assert "No issues found" in report.decode()
