"""Requests to a real server on the loopback, also one that misbehaves."""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import socket
import ssl
import sys
import zlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from acting.tools.http import HttpTool
from spar.errors import ConfigError, PermanentError, TransientError
from spar.net.http_client import retry_after
from spar.testing import check_tool
from tests.effort import hang_guard
from tests.servers.web import Pages, reply
from tests.waiting import cancelled

pytestmark = pytest.mark.usefixtures("offline")


@pytest.fixture
async def server() -> AsyncIterator[Pages]:
    async with Pages().serving() as server:
        yield server


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def tool(server: Any, **options: Any) -> HttpTool:
    return HttpTool(allow=[f"127.0.0.1:{server.port}", f"localhost:{server.port}"], **options)


async def test_a_page_is_fetched_by_no_proxy_of_the_environment(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    server.answers["/x?q=1"] = reply(body="grüße".encode(), Content_Type="text/plain; charset=utf-8", X_Other="y")

    answer = await tool(server)(url=f"{server.url}/x?q=1#part")

    assert answer == {
        "status": 200, "url": f"{server.url}/x?q=1#part", "truncated": False, "text": "grüße",
        "headers": {"content-type": "text/plain; charset=utf-8", "content-length": "7"},
    }  # fmt: skip
    assert server.requests[0].startswith("GET /x?q=1 HTTP/1.1\r\n")


async def test_json_is_read_and_sent_as_values(server: Any) -> None:
    server.answers["/"] = reply(body=b'{"a": [1, null]}', Content_Type="application/json")

    answer = await tool(server)(url=f"{server.url}/", method="POST", json={"text": "\ud800ü"})

    assert answer["json"] == {"a": [1, None]}
    head, _, body = server.requests[0].partition("\r\n\r\n")
    assert json.loads(body) == {"text": "\ud800ü"}
    assert "content-type: application/json" in head.lower()


async def test_a_text_body_and_headers_are_sent(server: Any) -> None:
    server.answers["/"] = reply("201 Created")

    answer = await tool(server, headers={"X-Mine": "1"})(
        url=f"{server.url}/", method="PUT", body="grüße", headers={"X-Call": "2", "Content-Type": "text/x"}
    )

    request = server.requests[0].lower()
    assert server.requests[0].encode("latin-1").endswith("grüße".encode())
    assert answer["status"] == 201
    assert "x-mine: 1\r\n" in request
    assert "x-call: 2\r\n" in request
    assert "content-type: text/x\r\n" in request


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b"{broken", "application/json", {"text": "{broken"}),
        (b"[" * 100_000, "application/json", {"text": "[" * 100_000}),
        (b"1" * 5000, "application/json", {"text": "1" * 5000}),
        (b"\xff\xfe", "image/png", {"base64": "//4="}),
        (b"gr\xfc\xdfe", "text/html; charset=ISO-8859-1", {"text": "grüße"}),
        (b"gr\xfc", "text/html", {"text": "gr�"}),
        (b"ok", "text/html; charset=zlib", {"text": "ok"}),
        (b"ok", "text/html; charset=punycode", {"text": "ok"}),
        (b"", "image/png", {"text": ""}),
    ],
)
async def test_a_body_is_shown_as_what_it_is(server: Any, body: bytes, kind: str, expected: dict[str, str]) -> None:
    server.answers["/"] = reply(body=body, Content_Type=kind)

    answer = await tool(server)(url=f"{server.url}/")

    assert {key: answer[key] for key in answer if key in ("text", "json", "base64")} == expected


async def test_a_packed_body_is_unpacked_unless_nobody_asked_for_that_or_it_is_broken(server: Any) -> None:
    server.answers["/g"] = reply(body=gzip.compress(b"x" * 1000), Content_Encoding="gzip")
    server.answers["/d"] = reply(body=zlib.compress(b"y" * 1000), Content_Encoding="deflate")
    server.answers["/br"] = reply(body=b"x", Content_Encoding="br")
    server.answers["/bad"] = reply(body=b"no gzip", Content_Encoding="gzip")

    assert (await tool(server)(url=f"{server.url}/g"))["text"] == "x" * 1000
    assert (await tool(server)(url=f"{server.url}/d"))["text"] == "y" * 1000
    with pytest.raises(PermanentError, match="packed as 'br', which was not asked for"):
        await tool(server)(url=f"{server.url}/br")
    with pytest.raises(TransientError, match="not the gzip that it says it is"):
        await tool(server)(url=f"{server.url}/bad")


async def test_a_gzip_bomb_unpacks_only_as_far_as_is_kept(server: Any) -> None:
    server.answers["/"] = reply(body=gzip.compress(b"\0" * 64_000_000, 1), Content_Encoding="gzip")
    before = resident()

    answer = await tool(server, max_bytes=1000)(url=f"{server.url}/")

    grown = resident() - before
    assert (len(answer["text"]), answer["truncated"]) == (1000, True)
    assert grown < 32 << 20


async def test_an_endless_body_is_cut(server: Any) -> None:
    async def endless(writer: asyncio.StreamWriter, request: str) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    server.answers["/"] = endless

    answer = await tool(server, max_bytes=100_000)(url=f"{server.url}/")

    assert (len(answer["text"]), answer["truncated"]) == (100_000, True)


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["in the head", "in the body"])
async def test_a_drip_ends_at_the_total_deadline(server: Any, start: bytes) -> None:
    async def drip(writer: asyncio.StreamWriter, request: str) -> None:
        writer.write(start or b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    server.answers["/"] = drip

    with hang_guard(), pytest.raises(TimeoutError, match=r"GET http://127.0.0.1:\d+/ was not over after 0.2 s"):
        await tool(server, timeout=0.2)(url=f"{server.url}/")


@pytest.mark.parametrize("answer", [b"garbage\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"])
async def test_a_broken_answer_may_be_better_next_time(server: Any, answer: bytes) -> None:
    server.answers["/"] = answer

    with pytest.raises(TransientError, match="broke off"):
        await tool(server)(url=f"{server.url}/")


async def test_a_closed_port_may_be_open_next_time() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

    with pytest.raises(TransientError, match=r"cannot connect to '127.0.0.1' \(127.0.0.1\)"):
        await HttpTool(private=True)(url=f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize(
    ("kind", "statuses"),
    [
        (PermanentError, ["400 Bad Request", "401 No", "404 Not Found"]),
        (TransientError, ["408 Late", "425 Early", "429 Busy", "500 Oh", "503 Away", "529 Full"]),
    ],
)
async def test_a_bad_status_is_a_failure_that_says_what_was_said_and_when_to_come_again(
    server: Any, kind: type[PermanentError | TransientError], statuses: list[str]
) -> None:
    for status in statuses:
        server.answers["/"] = reply(status, b"because\x1b " + b"x" * 1000, Retry_After="7")

        with pytest.raises(kind, match=rf"GET {server.url}/ answered {status[:3]}[^:]*: because\\x1b x") as caught:
            await tool(server)(url=f"{server.url}/")

        assert len(str(caught.value)) < 500
        if isinstance(caught.value, TransientError):
            assert caught.value.retry_after == 7


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("0", 0),
        ("1.5", 1.5),
        ("-5", 0),
        ("1e9", 3600),
        ("inf", 3600),
        ("nan", None),
        ("soon", None),
        ("", None),
        ("Sat, 01 Jan 2000 00:02:00 GMT", 90),
        ("Fri, 31 Dec 1999 00:00:00 GMT", 0),
        ("Sat, 01 Jan 2050 00:00:00 GMT", 3600),
        ("Sat, 99 Jan 2000 00:00:00 GMT", None),
        ("9" * 400, 3600),
        ("Sat, 01 Jan 2000 00:01:00", 30),
    ],
)
def test_retry_after_is_read_with_care(value: str | None, expected: float | None) -> None:
    assert retry_after(value, datetime(2000, 1, 1, 0, 0, 30, tzinfo=UTC)) == expected


async def test_redirects_are_followed_and_the_last_place_is_told(server: Any) -> None:
    server.answers["/a"] = reply("302 Found", Location="b?x=1")
    server.answers["/b?x=1"] = reply("301 Moved", Location=f"{server.url}/c")
    server.answers["/c"] = reply(body=b"here")

    answer = await tool(server)(url=f"{server.url}/a", headers={"Authorization": "mine"})

    assert (answer["url"], answer["text"]) == (f"{server.url}/c", "here")
    assert all("authorization: mine" in request.lower() for request in server.requests)


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [
        ("301", "POST", "GET"),
        ("302", "POST", "GET"),
        ("303", "PUT", "GET"),
        ("303", "HEAD", "HEAD"),
        ("307", "POST", "POST"),
        ("308", "PUT", "PUT"),
        ("302", "PUT", "PUT"),
    ],
)
async def test_a_redirect_keeps_or_drops_method_and_body(server: Any, status: str, method: str, then: str) -> None:
    server.answers["/a"] = reply(f"{status} Go", Location="/b")
    server.answers["/b"] = reply()

    await tool(server)(url=f"{server.url}/a", method=method, body=None if method == "HEAD" else "content")

    assert server.requests[1].startswith(f"{then} /b ")
    assert server.requests[1].endswith("content") == (then in ("POST", "PUT"))


async def test_credentials_do_not_follow_to_another_host(server: Any) -> None:
    server.answers["/a"] = reply("307 Go", Location=f"http://localhost:{server.port}/b")
    server.answers["/b"] = reply()

    await tool(server, headers={"X-Api-Key": "canary-1"})(
        url=f"{server.url}/a",
        headers={"Authorization": "canary-2", "Cookie": "canary-3", "X-Any": "canary-4", "Accept": "a/b"},
    )

    assert "canary" in server.requests[0]
    assert "canary" not in server.requests[1]
    assert "accept: a/b" in server.requests[1].lower()
    assert f"host: localhost:{server.port}" in server.requests[1].lower()


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://127.0.0.1:1/",
        "http://[::1]/",
        "http://0.0.0.0/",
        "//10.0.0.1/x",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "http://a@127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
    ],
)
async def test_a_redirect_to_where_nobody_may_go_is_refused(server: Any, location: str) -> None:
    server.answers["/a"] = reply("302 Found", Location=location)

    with pytest.raises(PermanentError, match=r"not allowed|nobody may follow"):
        await tool(server)(url=f"{server.url}/a")

    assert server.connections == 1


async def test_redirects_in_a_circle_end(server: Any) -> None:
    server.answers["/a"] = reply("302 Found", Location="/a")

    with pytest.raises(PermanentError, match="more than 3 redirects"):
        await tool(server, redirects=3)(url=f"{server.url}/a")

    assert len(server.requests) == 4


async def test_without_permission_the_own_network_is_out_of_reach(server: Any) -> None:
    closed: list[dict[str, Any]] = [{}, {"allow": ["*"]}, {"allow": ["example.org"]}]
    for options in closed:
        for url in (server.url, f"http://localhost:{server.port}", "http://127.1", "http://0x7f.1/", "http://[::1]/"):
            with pytest.raises(PermanentError, match="not allowed"):
                await HttpTool(**options)(url=url)

    assert server.connections == 0


async def test_private_permits_the_own_network_but_no_metadata(server: Any) -> None:
    server.answers["/"] = reply(body=b"in")

    assert (await HttpTool(private=True)(url=f"{server.url}/"))["text"] == "in"
    with pytest.raises(PermanentError, match="metadata"):
        await HttpTool(private=True)(url="http://169.254.169.254/")


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"url": "ftp://a/"}, "must begin with http"),
        ({"url": "//a/"}, "must begin with http"),
        ({"url": "http:///x"}, "no usable host"),
        ({"url": "http://good@127.0.0.1/"}, "before '@'"),
        ({"url": "http://127.0.0.1\\@good/"}, "backslashes"),
        ({"url": "http://a.com\0.b.com/"}, "control characters"),
        ({"url": "http://a\tb/"}, "control characters"),
        ({"url": "http://a b/"}, "spaces"),
        ({"url": "http://①②⑦.⓪.⓪.①/"}, "is no URL"),
        ({"url": "http://a%20b/"}, "no usable host"),
        ({"url": "http://a:99999/"}, "no usable host or port"),
        ({"url": "http://a/\ud800"}, "is no URL"),
        ({"url": "http://" + "a" * 9000}, "at most 8000"),
        ({"url": "http://" + "a" * 200 + "/"}, "no host name"),
        ({"url": 5}, "must be text"),
        ({"url": "http://a/", "method": "TRACE"}, "'method' must be one of GET"),
        ({"url": "http://a/", "method": ["GET"]}, "'method' must be one of GET"),
        ({"url": "http://a/", "body": "x", "json": 1}, "not both"),
        ({"url": "http://a/", "body": {"x": 1}}, "'body' must be text, found dict"),
        ({"url": "http://a/", "body": "\ud800"}, "cannot be sent"),
        ({"url": "http://a/", "json": float("nan")}, "cannot be sent"),
        ({"url": "http://a/", "json": {1, 2}}, "cannot be sent"),
        ({"url": "http://a/", "headers": {"a b": "x"}}, "is no header name"),
        ({"url": "http://a/", "headers": {"x": "a\r\nEvil: y"}}, "must be printable ASCII"),
        ({"url": "http://a/", "headers": {"x": 5}}, "must be printable ASCII"),
        ({"url": "http://a/", "headers": {"Host": "b"}}, "cannot be set"),
        ({"url": "http://a/", "headers": {"Transfer-Encoding": "chunked"}}, "cannot be set"),
        ({"url": "http://a/", "headers": "x"}, "'headers' must be an object"),
    ],
)
async def test_wrong_parameters_are_named(params: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        await HttpTool()(**params)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"allow": ["http://x"]}, "allow"),
        ({"headers": {"Host": "x"}}, "headers"),
        ({"headers": {"Authorization": "x"}}, "headers"),
        ({"headers": {"X-Api-Key": "x"}, "allow": ["*"]}, "headers"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_without_showing_secrets(options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        HttpTool(**options)

    assert caught.value.path == (key,)


async def test_cancelling_ends_the_connection(server: Any) -> None:
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def hang(writer: asyncio.StreamWriter, request: str) -> None:
        arrived.set()
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.005)
        except ConnectionError:
            gone.set()

    server.answers["/"] = hang
    calling = asyncio.create_task(tool(server)(url=f"{server.url}/"))
    await asyncio.wait_for(arrived.wait(), 30)

    await cancelled(calling)

    await asyncio.wait_for(gone.wait(), 30)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
async def test_tls_is_verified_by_name_though_an_address_is_connected_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await asyncio.create_subprocess_exec(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
        *("-keyout", "key.pem", "-out", "cert.pem"),
        *("-addext", "subjectAltName=DNS:localhost"),
        cwd=tmp_path,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await made.wait() == 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    names: list[Any] = []
    context.sni_callback = lambda tls, name, ctx: names.append(name)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    async with Pages(other=reply(body=b"safe")).serving(ssl=context) as found:
        port = found.port
        answer = await HttpTool(private=True)(url=f"https://localhost:{port}/")
        with pytest.raises(PermanentError, match=r"cannot connect to '127.0.0.1'.*certificate"):
            await HttpTool(private=True)(url=f"https://127.0.0.1:{port}/")
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(PermanentError, match=r"certificate"):
            await HttpTool(private=True)(url=f"https://localhost:{port}/")

    assert answer["text"] == "safe"
    assert names[0] == "localhost"
    assert f"host: localhost:{port}" in found.requests[0].lower()
    assert len(found.requests) == 1


async def test_it_keeps_the_contract_of_a_tool(server: Any) -> None:
    server.answers["/"] = reply(body=b"{}", Content_Type="application/json")

    await check_tool(lambda: tool(server), params={"url": f"{server.url}/", "method": "GET"})


async def test_nothing_is_imported_by_the_first_request_of_an_open_tool() -> None:
    program = """
import asyncio, sys
from acting.tools.http import HttpTool

async def serve(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\nok")
    await writer.drain()
    writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with HttpTool(allow=[f"127.0.0.1:{port}"]) as http:
        before = set(sys.modules)
        assert not before & {"rich", "pygments"}  # of the library's command line
        assert (await http(url=f"http://127.0.0.1:{port}/"))["text"] == "ok"
        print(sorted(set(sys.modules) - before))

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    told, _ = await process.communicate()
    assert told.decode().strip() == "[]"
