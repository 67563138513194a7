"""A mail host, and a channel that reads one of its mailboxes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from spar.clock import SystemClock
from spar.mail.channel import MailChannel
from spar.ports.channel import Accepted, ChannelContext, Incoming
from spar.protocols import Home
from tests.doubles import KeptRows
from tests.servers.mailserver import NAME, PASSWORD, MailHost, mail_host

WITHIN = 30.0


class Reader:
    """An agent's side of a channel: hears who is in `hears` (None: everybody), and keeps what it was handed."""

    def __init__(self, workspace: Path) -> None:
        self.heard: list[Incoming] = []
        self.hears: set[str] | None = None
        self.failures: list[Exception] = []
        self.rows = KeptRows()
        self.workspace = workspace

    async def accept(self, message: Incoming) -> Accepted:
        if self.failures:
            raise self.failures.pop(0)
        known = any(each.id == message.id for each in self.heard)
        self.heard.append(message)
        if message.refusal or not message.is_verified or not self._hears(message.address):
            return Accepted("refused", reason="not heard")
        return Accepted("known" if known else "accepted", "run")

    def _hears(self, sender: str) -> bool:
        return self.hears is None or sender in self.hears

    @asynccontextmanager
    async def reading(self, channel: MailChannel) -> AsyncIterator[asyncio.Task[None]]:
        """Let the channel read until the end of the block."""
        ready = asyncio.Event()
        home = Home(str(self.workspace), str(self.workspace), str(self.workspace))
        context = ChannelContext("mail", SystemClock(), self.accept, ready.set, self.rows, home, self._hears)
        task = asyncio.create_task(channel.receive(context))
        opened = asyncio.create_task(ready.wait())
        await asyncio.wait([task, opened], timeout=WITHIN, return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # a test looks at it, or fails for want of what it waits for

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait until a condition holds."""
        async with asyncio.timeout(WITHIN):
            while not condition():
                await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def _knows_no_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody connects beyond loopback: that each channel reads the certificates of all authorities takes 26 ms."""
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda context, purpose=None: None)


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    (tmp_path / "workspace").mkdir()
    return Reader(tmp_path / "workspace")


@pytest.fixture
def host() -> Iterator[MailHost]:
    with mail_host() as host:
        yield host


@pytest.fixture
def open_channel(host: MailHost) -> Callable[..., MailChannel]:
    def made(**options: Any) -> MailChannel:
        given: dict[str, Any] = {
            "address": "spar@spar.test", "imap": f"imap://127.0.0.1:{host.imap}", "smtp": f"smtp://127.0.0.1:{host.smtp}",
            "password": PASSWORD, "trust_authentication_results": NAME, **options,
        }  # fmt: skip
        return MailChannel(**given)

    return made
