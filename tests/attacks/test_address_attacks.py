"""Attempts to make `http` connect to where it must not (S22), and their benign twins.

The server here listens on the loopback, on a port that the tool may use: only the judging of addresses stands in the
way. An attack must be refused before anything is connected to.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from acting.tools.http import HttpTool
from spar.errors import PermanentError, TransientError
from tests.effort import hang_guard
from tests.servers.web import Pages, reply

pytestmark = pytest.mark.usefixtures("offline")


@pytest.fixture
async def trap() -> AsyncIterator[Pages]:
    async with Pages(other=REACHED).serving() as trap:
        yield trap


REACHED = reply(body=b"reached")
#: Ways to write an address; `tests/net/test_addresses.py` has the networks that no address may be in.
FORMS = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f.1",
    "0x7f000001",
    "0177.0.0.1",
    "017700000001",
    "127.0.0.1.",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "0",
    "0.0.0.0",
    "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[2001:0:7f00:1::]",
    "[fe80::1%25lo]",
    "169.254.169.254",
    "2852039166",
    "192.0.0.192",
    "192.168.0.1",
    "①②⑦.⓪.⓪.①",
    "１２７.0.0.1",
    "127。0。0。1",
    "good@127.0.0.1",
    "good:x@127.0.0.1",
    "good%40127.0.0.1",
    "127.0.0.1%00.good",
    "127.0.0.1\0.good",
    "127.0.0.1\\@good",
    "good\\@127.0.0.1",
    "127.0.0.1\t",
    "\t127.0.0.1",
    "127.0.0.1\n",
    "127.0.0.1 ",
    "127.0.0.1\r\nHost: good",
    "127.0.0.1%2f",
    "[::1",
    "::1",
    "[127.0.0.1]",
]


def url(host: str, port: int, path: str = "/") -> str:
    return f"http://{host}:{port}{path}"


@contextmanager
def refused() -> Iterator[None]:
    """What happens here is refused; a name that is left to a resolver finds none where nobody can be reached."""
    with pytest.raises((PermanentError, ValueError, TransientError)) as caught:
        yield
    assert not isinstance(caught.value, TransientError) or "cannot be resolved" in str(caught.value)


async def test_no_form_of_an_address_leads_to_the_own_network(trap: Pages) -> None:
    tool = HttpTool(allow=[f"*:{trap.port}"], timeout=5)
    for host in FORMS:
        with refused():
            await tool(url=url(host, trap.port))
        assert trap.connections == 0, host


async def test_no_redirect_leads_to_the_own_network_either(trap: Pages) -> None:
    tool = HttpTool(allow=[f"127.0.0.1:{trap.port}", f"*:{trap.port + 1}"], timeout=5)
    refused: tuple[type[Exception], ...] = (PermanentError, ValueError, TransientError)  # a broken header is none
    for number, host in enumerate(FORMS, 1):
        trap.answers["/go"] = reply("302 Found", Location=url(host, trap.port + 1).encode().decode("latin-1"))
        with pytest.raises(refused):
            await tool(url=url("127.0.0.1", trap.port, "/go"))
        assert trap.connections == number, host


@pytest.mark.parametrize(
    "address",
    [
        "file:///etc/passwd",
        "file://127.0.0.1/etc/passwd",
        "gopher://127.0.0.1:{port}/_GET",
        "ftp://127.0.0.1:{port}/",
        "dict://127.0.0.1:{port}/",
        "unix:///run/docker.sock",
        "http+unix://%2Frun%2Fdocker.sock/",
        "data:,x",
        "about:blank",
        "javascript:1",
        "jar:http://127.0.0.1:{port}!/",
        "//127.0.0.1:{port}/",
        "127.0.0.1:{port}",
        "http:127.0.0.1:{port}",
        "http:/127.0.0.1:{port}",
        "http:///127.0.0.1:{port}/",
        "http:\\\\127.0.0.1:{port}",
        "http://",
        "",
        " ",
        "\0",
        "http://good#@127.0.0.1:{port}/",
        "http://127.0.0.1:{port}#.good/",
        "http://127.0.0.1:{port}?.good/",
        "ht\ntp://127.0.0.1:{port}/",
        "\x01http://127.0.0.1:{port}/",
    ],
)
async def test_no_trick_of_spelling_a_url_gets_through(trap: Pages, address: str) -> None:
    with refused():
        await HttpTool(allow=[f"*:{trap.port}", "good"], timeout=5)(url=address.format(port=trap.port))

    assert trap.connections == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST"])
async def test_a_host_that_is_listed_is_reached(trap: Pages, host: str) -> None:
    tool = HttpTool(allow=[f"127.0.0.1:{trap.port}", f"localhost:{trap.port}"])

    assert (await tool(url=url(host, trap.port)))["text"] == "reached"


Resolver = Callable[[str], list[str]]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What each look-up of a name gives, in turn; the last one stays. Addresses are looked up as ever."""
    turns: list[list[str]] = []
    real = socket.getaddrinfo

    def fake(host: Any, port: Any, *args: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else str(host)
        if not name.endswith(".test"):
            return real(host, port, *args, **more)
        found = turns.pop(0) if len(turns) > 1 else turns[0]
        return [
            (socket.AF_INET6 if ":" in each else socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port))
            for each in found
        ]

    monkeypatch.setattr(socket, "getaddrinfo", fake)
    return turns


async def test_a_name_that_turns_around_after_the_check_is_still_the_address_that_was_checked(
    trap: Pages, resolver: list[list[str]]
) -> None:
    resolver += [["127.0.0.1"], ["127.0.0.2"]]
    async with Pages("127.0.0.2", REACHED).serving(trap.port) as other:
        answer = await HttpTool(allow=[f"flip.test:{trap.port}"])(url=url("flip.test", trap.port))

    assert answer["text"] == "reached"
    assert (trap.connections, other.connections) == (1, 0)
    assert f"Host: flip.test:{trap.port}".lower() in trap.requests[0].lower()


async def test_a_name_that_turns_around_between_redirects_is_judged_again(
    trap: Pages, resolver: list[list[str]]
) -> None:
    resolver += [["127.0.0.1"], ["169.254.169.254"]]
    trap.answers["/"] = reply("302 Found", Location="/secret")

    with pytest.raises(PermanentError, match="metadata"):
        await HttpTool(allow=[f"flip.test:{trap.port}"])(url=url("flip.test", trap.port))

    assert trap.connections == 1


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["2606:4700::1111", "127.0.0.1"],
        ["fd12::1", "93.184.216.34"],
        ["93.184.216.34", "::1"],
        ["93.184.216.34", "169.254.169.254"],
        ["::ffff:10.0.0.1"],
        ["0.0.0.0"],
        [],
    ],
)
async def test_one_bad_address_of_a_name_refuses_it_whole(
    trap: Pages, resolver: list[list[str]], addresses: list[str]
) -> None:
    resolver.append(addresses)

    with pytest.raises(PermanentError):
        await HttpTool(allow=[f"*:{trap.port}"], timeout=5)(url=url("mixed.test", trap.port))

    assert trap.connections == 0


async def test_nothing_of_one_host_is_told_to_another_not_even_on_another_port(
    trap: Pages, resolver: list[list[str]]
) -> None:
    resolver.append(["127.0.0.1"])
    async with Pages(other=REACHED).serving() as other:
        trap.answers["/a"] = reply("307 Go", Location=url("one.test", other.port, "/b"))
        tool = HttpTool(allow=[f"one.test:{trap.port}", f"one.test:{other.port}"], headers={"X-Api-Key": "canary"})
        await tool(url=url("one.test", trap.port, "/a"), headers={"Authorization": "canary", "Cookie": "canary"})

    assert "canary" in trap.requests[0]
    assert other.requests
    assert "canary" not in other.requests[0]


async def test_five_redirects_are_followed_and_no_more(trap: Pages) -> None:
    for number in range(9):
        trap.answers[f"/{number}"] = reply("302 Found", Location=f"/{number + 1}")
    tool = HttpTool(allow=[f"127.0.0.1:{trap.port}"])

    assert (await tool(url=url("127.0.0.1", trap.port, "/4")))["text"] == "reached"
    with pytest.raises(PermanentError, match="more than 5 redirects"):
        await tool(url=url("127.0.0.1", trap.port, "/3"))


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\n", b""], ids=["head", "interim answers"])
async def test_an_endless_head_ends_within_the_deadline_and_is_not_kept(trap: Pages, start: bytes) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(start)
            while True:
                writer.write(b"X-Flood: " + b"y" * 60_000 + b"\r\n" if start else b"HTTP/1.1 102 Wait\r\n\r\n")
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(endless, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    before = resident()

    with hang_guard(), pytest.raises((TransientError, TimeoutError)):
        await HttpTool(allow=[f"127.0.0.1:{port}"], timeout=0.2)(url=url("127.0.0.1", port))

    listening.close()
    assert resident() - before < 64 << 20


async def test_a_redirect_with_a_giant_body_costs_no_more_than_an_answer(trap: Pages) -> None:
    trap.answers["/a"] = reply("302 Found", b"x" * 20_000_000, Location="/b")
    before = resident()

    answer = await HttpTool(allow=[f"127.0.0.1:{trap.port}"], max_bytes=1000)(url=url("127.0.0.1", trap.port, "/a"))

    assert answer["text"] == "reached"
    assert resident() - before < 64 << 20


@pytest.mark.parametrize(
    ("params", "effect"),
    [
        ({}, "read"),
        ({"method": "GET"}, "read"),
        ({"method": "HEAD"}, "read"),
        ({"method": "PUT"}, "idempotent"),
        ({"method": "DELETE"}, "idempotent"),
        ({"method": "POST"}, "once"),
        ({"method": "PATCH"}, "once"),
        ({"method": "get"}, "once"),
        ({"method": "TRACE"}, "once"),
        ({"method": None}, "once"),
        ({"method": ["GET"]}, "once"),
        ({"method": 5, "url": object()}, "once"),
    ],
)
def test_the_effect_follows_the_method_and_the_worst_is_assumed(params: dict[str, Any], effect: str) -> None:
    assert HttpTool().effect_of(params) == effect


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
