"""Attacks on the port: strangers without a token, with parts of one, with other people's browsers, with odd requests.

Each asks a real service over a real socket; the benign twin of each is let in.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.process.conftest import Service, Spar

pytestmark = pytest.mark.process


class Target:
    """A service, and raw requests to its port."""

    def __init__(self, service: Service, token: str) -> None:
        self.service, self.token, self.began = service, token, time.monotonic()
        host, _, number = service.address.removeprefix("http://").rpartition(":")
        self.address = (host, int(number))

    def raw(self, request: bytes) -> bytes:
        """Send bytes and return what comes until the other side ends."""
        with socket.create_connection(self.address, timeout=20) as made:
            made.sendall(request)
            found = b""
            try:
                while more := made.recv(65_536):
                    found += more
            except ConnectionResetError:
                pass
            return found

    def status(self, request: bytes) -> int:
        """Return the status of the first answer."""
        return int(self.raw(request).split(b" ", 2)[1])

    def get(self, path: str, *heads: str, method: str = "GET", token: str = "") -> int:
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *heads]
        lines += [f"Authorization: Bearer {token}"] if token else []
        return self.status("\r\n".join([*lines, "", ""]).encode("latin-1"))


@pytest.fixture(scope="module")
def aimed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One service for all attacks: none may change what the next one meets."""
    spar = Spar(tmp_path_factory.mktemp("attacked"))
    service = Service(spar).ready()
    made = spar("tokens", "create", "reader", "--scopes", "read")
    assert made.code == 0, made
    yield Target(service, made.out.strip())
    service.kill()


def test_no_way_of_writing_the_path_leads_past_the_token(aimed: Target) -> None:
    ways = (
        "/v1/status", "//v1/status", "/./v1/status", "/livez/../v1/status", "/v1/../v1/status", "/%76%31/status",
        "/v1%2Fstatus", "/v1//status", "/V1/status", "/v1/status/", "/v1/status;x", "/v1/status%00", "/v1\\status",
        "http://127.0.0.1/v1/status", "/livez?/v1/status", "/metrics/../v1/tokens", "/hooks/../v1/status",
        "/v1/status#x", "/;/v1/status", "/v1/%2e%2e/v1/status", "/%2f/v1/status",
    )  # fmt: skip
    for path in ways:
        answer = aimed.raw(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        assert b'"agent"' not in answer, path
        assert int(answer.split(b" ", 2)[1]) in (400, 401, 404) or path.startswith("/livez?"), (path, answer)

    assert aimed.get("/v1/status", token=aimed.token) == 200


def test_no_header_makes_a_stranger_somebody(aimed: Target) -> None:
    for head in (
        "X-Forwarded-For: 127.0.0.1", "X-Forwarded-User: root", "X-Real-IP: 127.0.0.1", "Forwarded: for=127.0.0.1",
        "Cookie: token=" + aimed.token, "X-Original-URL: /livez", "X-Rewrite-URL: /livez",
        "X-HTTP-Method-Override: GET", "Proxy-Authorization: Bearer " + aimed.token,
        "Authorization: Bearer", "Authorization: bearer  ",
        "Authorization: Basic " + aimed.token, "Authorization: Bearer " + aimed.token + "," + aimed.token,
        "Authorization: Bearer " + aimed.token[:-1], "Authorization: Bearer " + "x" * 8_000,
        "Authorization: Bearer spar_" + "\xff" * 43, "Authorization:Bearer\t" + aimed.token,
    ):  # fmt: skip
        assert aimed.get("/v1/status", head) in (400, 401), head

    assert aimed.get("/v1/status", f"Authorization: BEARER {aimed.token}") == 200


def test_a_right_is_not_widened_by_the_request(aimed: Target) -> None:
    for head in ("X-HTTP-Method-Override: POST", "X-Scope: admin", "X-Original-URL: /v1/agent:pause"):
        assert aimed.get("/v1/agent:pause", head, method="POST", token=aimed.token) == 403, head
    for path in (
        "/v1/agent:pause?scope=admin",
        "/v1/agent%3Apause",
        "/v1/agent:resume",
        "/v1/tokens",
    ):
        assert aimed.get(path, method="POST", token=aimed.token) == 403, path
    assert aimed.get("/v1/status", method="DELETE", token=aimed.token) == 405
    assert aimed.service.agent["state"] == "running"


def test_a_page_whose_name_leads_here_is_told_nothing(aimed: Target) -> None:
    bearer = f"Authorization: Bearer {aimed.token}"
    for host in (
        "evil.example",
        "evil.example:8420",
        "127.0.0.1.evil.example",
        "localhost.",
        "127.0.0.1@evil.example",
        "0x7f.1",
        "[::1].evil",
        "192.0.2.1:8420",
    ):
        request = f"GET /v1/status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{bearer}\r\n\r\n"
        assert aimed.status(request.encode()) in (400, 421), host
    twice = f"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\nConnection: close\r\n{bearer}\r\n\r\n"
    assert aimed.status(twice.encode()) == 400
    for host in ("localhost:1", "[::1]:8420"):
        request = f"GET /v1/status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{bearer}\r\n\r\n"
        assert aimed.status(request.encode()) == 200, host
    none = f"GET /v1/status HTTP/1.0\r\n{bearer}\r\n\r\n"
    assert aimed.status(none.encode()) == 400


def test_a_page_of_another_origin_changes_nothing_even_where_it_knows_a_token(aimed: Target) -> None:
    for heads in (
        ("Origin: https://evil.example",), ("Origin: null",), ("Origin: http://127.0.0.1:1",),
        ("Origin: http://127.0.0.1", "Origin: http://evil"),
        ("Origin: file://",), ("Sec-Fetch-Site: cross-site",), ("Sec-Fetch-Site: same-site",),
        ("Sec-Fetch-Site: ",), ("Origin: http://localhost:8420",),
        ("Origin: http://127.0.0.1", "Sec-Fetch-Site: cross-site"),
    ):  # fmt: skip
        assert aimed.get("/v1/status", *heads, token=aimed.token) == 403, heads
        preflight = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization")
        assert aimed.get("/v1/runs", *heads, *preflight, method="OPTIONS") == 403, heads

    own = ("Host: 127.0.0.1", "Connection: close", "Origin: http://127.0.0.1", "Sec-Fetch-Site: same-origin")
    lines = ["GET /v1/status HTTP/1.1", *own, f"Authorization: Bearer {aimed.token}", "", ""]
    answer = aimed.raw("\r\n".join(lines).encode())
    assert (answer[9:12], b"access-control-allow-origin" in answer.lower()) == (b"200", False)


def test_strangers_who_send_slowly_and_much_keep_nobody_waiting_and_cost_no_memory(aimed: Target) -> None:
    before = memory_of(aimed.service)
    endless = b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"

    def flood(_: int) -> int:
        sent = 0
        with socket.create_connection(aimed.address, timeout=20) as made:
            made.sendall(endless)
            try:
                for _ in range(200):
                    made.sendall(chunk)
                    sent += len(chunk)
            except OSError:
                pass
        return sent

    with ThreadPoolExecutor(8) as threads:
        floods = [threads.submit(flood, number) for number in range(8)]
        statuses = [aimed.get("/v1/status?lanes=0", token=aimed.token) for _ in range(20)]
        assert aimed.service.get("/livez").status_code == 200
        assert sum(each.result() for each in floods) > 0

    assert statuses == [200] * 20
    assert memory_of(aimed.service) - before < 64 * 1024 * 1024


def memory_of(service: Service) -> int:
    """Return the bytes of memory that a service takes now."""
    pages = Path(f"/proc/{service.process.pid}/statm").read_text().split()[1]
    return int(pages) * 4096
