"""The console through a tunnel to another port, as `ssh -L 9000:127.0.0.1:8420 HOST` makes one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Watched, token_of
from tests.ports import free_port
from tests.process.conftest import Service


class Tunnel:
    """A port of this machine whose connections are passed on to another port, byte by byte."""

    def __init__(self, there: int, port: int = 0) -> None:
        self.there, self.port, self.is_open = there, port or free_port(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self.is_open.wait(60)

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", self.port)
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self.is_open.set()
        await self._over.wait()
        server.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.there)
        try:
            with suppress(OSError):
                await asyncio.gather(_copy(reader, back), _copy(there, writer))
        finally:
            writer.close()
            back.close()

    def close(self) -> None:
        """End it, with the connections that go through it. Idempotent."""
        if self.is_open.is_set():
            self.is_open.clear()
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(60)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65_536):
        writer.write(piece)
        await writer.drain()
    writer.close()


@pytest.fixture
def tunnel(world: Service) -> Iterator[Tunnel]:
    tunnel = Tunnel(int(world.address.rpartition(":")[2]))
    yield tunnel
    tunnel.close()


def test_through_a_tunnel_one_signs_in_sends_follows_and_approves(
    world: Service, watch: Callable[..., Watched], chromium: Any, tunnel: Tunnel
) -> None:
    direct = watch("read")
    watched = Watched(chromium, f"http://127.0.0.1:{tunnel.port}")
    watched.sign_in(token_of(world, "read", "operate", "approve"))
    page = watched.go("/chat/far")
    page.get_by_label("Message").fill("stream from afar")
    page.keyboard.press("Enter")
    page.get_by_role("log").get_by_text("They can be deleted without loss.").wait_for()
    page.get_by_label("Message").fill("pay 77 from afar")
    page.keyboard.press("Enter")
    page.get_by_role("log").get_by_text("approval").first.wait_for()
    watched.go("/approvals")
    page.get_by_role("link", name="pay 77").or_(page.locator(".pick a").filter(has_text="77 from afar")).first.click()
    page.get_by_role("button", name="Approve").click()
    page.get_by_text("pay: approved").wait_for()
    watched.go("/nodes").get_by_text("Its address is that on the machine of the services.").wait_for()
    assert direct.go("/nodes").get_by_text("Its address is that on the machine").count() == 0

    # A port has a cookie of its own; one that another page plants gives nothing; a name that leads here is refused.
    (cookie,) = watched.context.cookies()
    assert cookie["name"] == f"spar-session-{tunnel.port}"
    assert page.request.get(f"{world.address}/v1/status").status == 401
    own, foreign = f"http://127.0.0.1:{tunnel.port}", world.address
    statuses = [page.request.post(f"{own}/v1/runs", data={"message": "say x"}, headers={"origin": origin}).status
                for origin in (own, foreign, "http://evil.example")]  # fmt: skip
    assert statuses == [202, 403, 403]
    assert page.request.get(f"{own}/v1/status", headers={"host": f"evil.example:{tunnel.port}"}).status == 421

    # The tunnel ends and is made again: the page says so and goes on, signed in as before.
    tunnel.close()
    page.get_by_text("Trying again").wait_for()
    again = Tunnel(tunnel.there, tunnel.port)
    expect(page.get_by_text("Trying again")).to_have_count(0)
    page.get_by_role("table", name="Services").wait_for()
    watched.context.close()
    again.close()
    assert [text for text in watched.complaints if "ERR_" not in text] == []
