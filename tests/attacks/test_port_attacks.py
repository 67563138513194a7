"""Attacks on the port: strangers without a token, with parts of one, with other people's browsers, with odd requests.

Each asks a real service over a real socket; the benign twin of each is let in.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from spar.console.pages import page_files
from spar.operations.agent import WATCHERS
from spar.operations.operation import Operation
from spar.server.api.openapi import PATH_PARAMETERS, has_body, plain_path
from spar.server.event_streams import share_of
from spar.server.routes.applications import served
from spar.service import tokens
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


def test_no_way_of_writing_the_path_leads_past_the_token(target: Target) -> None:
    ways = (
        "/v1/status", "//v1/status", "/./v1/status", "/livez/../v1/status", "/v1/../v1/status", "/%76%31/status",
        "/v1%2Fstatus", "/v1//status", "/V1/status", "/v1/status/", "/v1/status;x", "/v1/status%00", "/v1\\status",
        "http://127.0.0.1/v1/status", "/livez?/v1/status", "/metrics/../v1/tokens", "/hooks/../v1/status",
        "/v1/status#x", "/;/v1/status", "/v1/%2e%2e/v1/status", "/%2f/v1/status",
    )  # fmt: skip
    for path in ways:
        answer = target.raw(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        assert b'"agent"' not in answer, path
        assert int(answer.split(b" ", 2)[1]) in (400, 401, 404) or path.startswith("/livez?"), (path, answer)

    assert target.get("/v1/status", token=target.token) == 200


def test_no_header_makes_a_stranger_somebody(target: Target) -> None:
    for head in (
        "X-Forwarded-For: 127.0.0.1", "X-Forwarded-User: root", "X-Real-IP: 127.0.0.1", "Forwarded: for=127.0.0.1",
        "Cookie: token=" + target.token, "X-Original-URL: /livez", "X-Rewrite-URL: /livez",
        "X-HTTP-Method-Override: GET", "Proxy-Authorization: Bearer " + target.token,
        "Authorization: Bearer", "Authorization: bearer  ",
        "Authorization: Basic " + target.token, "Authorization: Bearer " + target.token + "," + target.token,
        "Authorization: Bearer " + target.token[:-1], "Authorization: Bearer " + "x" * 8_000,
        "Authorization: Bearer spar_" + "\xff" * 43, "Authorization:Bearer\t" + target.token,
    ):  # fmt: skip
        assert target.get("/v1/status", head) in (400, 401), head

    assert target.get("/v1/status", f"Authorization: BEARER {target.token}") == 200


def test_a_right_is_not_widened_by_the_request(target: Target) -> None:
    for head in ("X-HTTP-Method-Override: POST", "X-Scope: admin", "X-Original-URL: /v1/agent:pause"):
        assert target.get("/v1/agent:pause", head, method="POST", token=target.token) == 403, head
    for path in (
        "/v1/agent:pause?scope=admin",
        "/v1/agent%3Apause",
        "/v1/agent:resume",
        "/v1/tokens",
    ):
        assert target.get(path, method="POST", token=target.token) == 403, path
    assert target.get("/v1/status", method="DELETE", token=target.token) == 405
    assert target.service.agent["state"] == "running"


def test_a_page_whose_name_leads_here_is_told_nothing(target: Target) -> None:
    bearer = f"Authorization: Bearer {target.token}"
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
        assert target.status(request.encode()) in (400, 421), host
    twice = f"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\nConnection: close\r\n{bearer}\r\n\r\n"
    assert target.status(twice.encode()) == 400
    for host in ("localhost:1", "[::1]:8420"):
        request = f"GET /v1/status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{bearer}\r\n\r\n"
        assert target.status(request.encode()) == 200, host
    none = f"GET /v1/status HTTP/1.0\r\n{bearer}\r\n\r\n"
    assert target.status(none.encode()) == 400


def test_a_page_of_another_origin_changes_nothing_even_where_it_knows_a_token(target: Target) -> None:
    for heads in (
        ("Origin: https://evil.example",), ("Origin: null",), ("Origin: http://127.0.0.1:1",),
        ("Origin: http://127.0.0.1", "Origin: http://evil"),
        ("Origin: file://",), ("Sec-Fetch-Site: cross-site",), ("Sec-Fetch-Site: same-site",),
        ("Sec-Fetch-Site: ",), ("Origin: http://localhost:8420",),
        ("Origin: http://127.0.0.1", "Sec-Fetch-Site: cross-site"),
    ):  # fmt: skip
        assert target.get("/v1/status", *heads, token=target.token) == 403, heads
        preflight = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization")
        assert target.get("/v1/runs", *heads, *preflight, method="OPTIONS") == 403, heads

    own = ("Host: 127.0.0.1", "Connection: close", "Origin: http://127.0.0.1", "Sec-Fetch-Site: same-origin")
    lines = ["GET /v1/status HTTP/1.1", *own, f"Authorization: Bearer {target.token}", "", ""]
    answer = target.raw("\r\n".join(lines).encode())
    assert (answer[9:12], b"access-control-allow-origin" in answer.lower()) == (b"200", False)


def test_strangers_who_send_slowly_and_much_keep_nobody_waiting_and_cost_no_memory(target: Target) -> None:
    before = memory_of(target.service)
    endless = b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"

    def flood(_: int) -> int:
        sent = 0
        with socket.create_connection(target.address, timeout=20) as made:
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
        statuses = [target.get("/v1/status?lanes=0", token=target.token) for _ in range(20)]
        assert target.service.get("/livez").status_code == 200
        assert sum(each.result() for each in floods) > 0

    assert statuses == [200] * 20
    assert memory_of(target.service) - before < 64 * 1024 * 1024


def memory_of(service: Service) -> int:
    """Return the bytes of memory that a service takes now."""
    pages = Path(f"/proc/{service.process.pid}/statm").read_text().split()[1]
    return int(pages) * 4096


# -- attacks on all that the port serves, by tables


#: Text that is a command elsewhere: of SQL, of the full text index, of a shell, of a path, of a template.
INJECTIONS = (
    "x') OR 1=1--", "'; DROP TABLE cycle; --", 'NEAR("a" "b", 2)', "col:x", "$(id)",
    "../../etc/passwd", "{{7*7}}", "%00", "\\", "‮", "x" * 5_000,
)  # fmt: skip
JSON = "application/json"
#: Ways to hide a second request in the first one: heads, and the body that has it. See RFC 9112, 6 and 11.2.
SECOND = b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "
HIDDEN = {
    "both lengths": (b"Content-Length: 4\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"),
    "a folded head": (b"Transfer-Encoding:\r\n chunked\r\nContent-Length: 4", b"0\r\n\r\n"),
    "a space before the colon": (b"Content-Length : 50", b""),
    "a coding twice": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", b"0\r\n\r\n"),
    "a coding of a list": (b"Transfer-Encoding: identity, chunked", b"0\r\n\r\n"),
    "a coding in tabs": (b"Transfer-Encoding:\tchunked\x0b", b"0\r\n\r\n"),
    "a length with a sign": (b"Content-Length: +0", b""),
    "two lengths in one": (b"Content-Length: 0, 60", b""),
    "two lengths": (b"Content-Length: 1\r\nContent-Length: 2", b""),
    "a coding that is none": (b"Transfer-Encoding: x", b""),
    "a length in hexadecimal": (b"Content-Length: 0x0", b""),
    "no length at all": (b"Content-Length:", b""),
    "a chunk with a sign": (b"Transfer-Encoding: chunked", b"-1\r\n"),
    "a chunk that is too long": (b"Transfer-Encoding: chunked", b"f" * 40 + b"\r\n"),
    "a chunk that lies": (b"Transfer-Encoding: chunked", b"1\r\nabc\r\n0\r\n\r\n"),
    "a null in a head": (b"X: a\x00b", b""),
    "a line end in a head": (b"X: a\rb", b""),
}  # fmt: skip


@pytest.fixture(scope="module")
def spar(tmp_path_factory: pytest.TempPathFactory) -> Spar:
    return Spar(tmp_path_factory.mktemp("attacked"))


@pytest.fixture(scope="module")
def target(spar: Spar) -> Iterator[Target]:
    """One service for all attacks: none may change what the next one meets."""
    service = Service(spar).ready()
    yield Target(service, token_of(spar, "reader", "read"))
    service.kill()


@pytest.fixture(scope="module")
def admin(spar: Spar, target: Target) -> dict[str, str]:
    return bearer(token_of(spar, "all", "admin"))


def token_of(spar: Spar, name: str, scopes: str) -> str:
    answer = spar("tokens", "create", f"{name}-{uuid4().hex[:6]}", "--scopes", scopes)
    assert answer.code == 0, answer
    return answer.out.strip()


def asked(target: Target, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str, Any]:
    """Ask the port; return the status, the text and the headers of the answer."""
    connection = http.client.HTTPConnection(*target.address, timeout=60)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace"), answer.headers
    finally:
        connection.close()


def path_of(operation: Operation[Any, Any], word: str = "x") -> str:
    return plain_path(operation).format_map(dict.fromkeys(PATH_PARAMETERS, quote(word, safe="")))


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def signed_in(target: Target, token: str) -> dict[str, str]:
    """Return the cookie of a browser that has signed in."""
    host = f"127.0.0.1:{target.address[1]}"
    body = json.dumps({"token": token}).encode()
    status, _, headers = asked(target, "POST", "/console/session", body, host=host, origin=f"http://{host}",
                               content_type=JSON)  # fmt: skip
    assert status == 200
    assert headers["cache-control"] == "no-store"
    return {"host": host, "cookie": headers["set-cookie"].partition(";")[0]}


def test_only_probes_and_files_without_data_are_answered_without_a_token(target: Target, admin: dict[str, str]) -> None:
    for operation in served():
        path = f"{path_of(operation)}?oddity=1"
        assert asked(target, operation.method, path)[0] == 401, path
        assert asked(target, operation.method, path, cookie="spar-session=x; token=" + target.token)[0] == 401, path
        assert asked(target, operation.method, path, b"{}" if has_body(operation) else None, **admin)[0] == 422, path
    for path in page_files():
        status, text, headers = asked(target, "GET", path)
        assert (status, "spar_" in text.replace("spar_…", "")) == (200, False), path
        assert "frame-ancestors 'none'" in headers["content-security-policy"], path
    assert asked(target, "GET", "/console/session")[:2] == (200, "null")
    assert asked(target, "GET", "/livez")[0] == 200


def test_no_word_in_an_address_is_a_token_and_none_is_written_down(target: Target) -> None:
    for path in ("/v1/status", "/v1/events", "/v1/runs/x/events", "/console/session", "/"):
        for name in ("token", "access_token", "api", "gatewayUrl", "session"):
            status, text, _ = asked(target, "GET", f"{path}?{name}={target.token}")
            assert (status in (200, 401), target.token in text) == (True, False), path
            assert status == 401 or not path.startswith("/v1"), path
    assert asked(target, "GET", "/v1/status", **bearer(target.token))[0] == 200
    assert target.token not in target.service.err
    log = target.service.spar.state / "memory.db"
    assert target.token.encode() not in log.read_bytes()


def test_a_cookie_gives_no_more_than_its_token_and_only_to_its_own_page(target: Target, spar: Spar) -> None:
    cookie = signed_in(target, token_of(spar, "clerk", "read,operate"))
    own = {"origin": f"http://{cookie['host']}"}
    message = b'{"message": "hello"}'

    assert asked(target, "GET", "/v1/status", **cookie)[0] == 200
    assert asked(target, "GET", "/v1/tokens", **cookie)[0] == 403
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json",
    ):
        for heads in ({}, {"origin": "null"}, {"origin": "https://evil.example"}, {"sec_fetch_site": "cross-site"},
                      {"origin": "http://127.0.0.1:9999"}, {"sec_fetch_site": "none"},
                      {"origin": f"http://{cookie['host']}", "sec_fetch_site": "same-site"}):  # fmt: skip
            status = asked(target, "POST", "/v1/runs", message, content_type=kind, **cookie, **heads)[0]
            assert status == 403, (kind, heads)
            assert asked(target, "DELETE", "/console/session", **cookie, **heads)[0] == 403, heads
    for heads in (own, {"sec_fetch_site": "same-origin"}):
        assert asked(target, "POST", "/v1/runs", message, **cookie, **heads)[0] == 202, heads
    for wrong in (b'{"message": "hello", "scope": "admin"}', b'{"message": "x", "files": {"path": "/etc/passwd"}}',
                  b"--x\r\nContent-Disposition: form-data; name=message\r\n\r\nhello\r\n--x--"):  # fmt: skip
        assert asked(target, "POST", "/v1/runs", wrong, **cookie, **own)[0] == 422, wrong
    # a head with a token counts alone: a good cookie makes up for no bad token
    assert asked(target, "GET", "/v1/status", **cookie, **bearer("spar_" + "x" * 43))[0] == 401


def test_an_answer_with_data_is_stored_by_no_browser(target: Target, spar: Spar) -> None:
    cookie = signed_in(target, target.token)
    for path in ("/v1/status", "/v1/config", "/v1/nothing", "/console/session", "/metrics", "/livez"):
        assert asked(target, "GET", path, **cookie)[2]["cache-control"] == "no-store", path
    assert asked(target, "GET", "/", **cookie)[2]["cache-control"] == "no-cache"
    status, _, headers = asked(target, "DELETE", "/console/session", origin=f"http://{cookie['host']}", **cookie)
    assert (status, "Max-Age=0" in str(headers["set-cookie"])) == (204, True)
    assert asked(target, "GET", "/v1/status", **cookie)[0] == 401


def test_no_address_leads_to_another_host(target: Target) -> None:
    ways = ("//evil.example", "//evil.example/..", "/\\evil.example", "/v1/status/", "/livez/", "/console/",
            "/console//", "/%2f%2fevil.example/", "/v1/sessions/https:%2f%2fevil.example/", "/?next=//evil.example",
            "/console/session?next=//evil.example")  # fmt: skip
    for path in ways:
        for headers in ({}, bearer(target.token)):
            status, _, answer = asked(target, "GET", path, **headers)
            place = answer.get("location", "")
            assert not place or re.match(rf"http://127\.0\.0\.1:{target.address[1]}/[^/\\]", place), (path, place)
            assert status in (200, 307, 401, 404, 421), (path, status)


@pytest.mark.parametrize("way", HIDDEN)
def test_no_second_request_is_hidden_in_a_first_one(target: Target, way: str) -> None:
    heads, body = HIDDEN[way]
    allowed = f"Authorization: Bearer {target.token}".encode()
    first = b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer none\r\n" + heads + b"\r\n\r\n" + body
    answers = target.raw(first + SECOND + b"\r\n" + allowed + b"\r\nConnection: close\r\n\r\n")

    assert re.findall(rb"HTTP/1\.1 (\d+)", answers) == [b"400"], (way, answers)
    assert target.get("/v1/status", token=target.token) == 200


@pytest.mark.parametrize("text", INJECTIONS, ids=lambda text: text[:12].encode("ascii", "replace").decode())
def test_text_in_a_query_or_a_path_is_only_text(target: Target, admin: dict[str, str], text: str) -> None:
    counts = {path: len(json.loads(asked(target, "GET", path, **admin)[1])) for path in ("/v1/tokens", "/v1/audit")}
    for operation in served():
        if operation.method != "GET" or operation.streams is not None:
            continue
        texts = [field.encode_name for field in operation.other_fields if field.type in (str, str | None)
                 or "str" in str(field.type)]  # fmt: skip
        path = path_of(operation, text)
        for query in ("", *(f"{name}={quote(text)}" for name in texts)):
            if operation.path_fields or query:
                status, answer, _ = asked(target, "GET", f"{path}?{query}", **admin)
                assert status in (200, 404, 409, 414, 422, 431), (path, query, status, answer)
                assert not re.search(r"sqlite|apsw|fts5|Traceback|/site-packages/", answer), (path, answer)
    after = {path: len(json.loads(asked(target, "GET", path, **admin)[1])) for path in counts}
    assert after == counts
    assert target.service.agent["state"] == "running"


def test_a_thousand_idle_readers_of_events_take_no_place_of_the_others(target: Target, spar: Spar) -> None:
    before, statuses = memory_of(target.service), list[bytes]()
    request = f"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {target.token}\r\n\r\n".encode()
    with ExitStack() as open_connections:
        for number in range(1_000):
            reader = socket.create_connection(target.address, timeout=60)
            if number % 20:
                with reader:
                    reader.sendall(request)
                    statuses.append(reader.recv(64))
            else:
                open_connections.enter_context(reader)
                reader.sendall(request)
                statuses.append(reader.recv(64))
        other = token_of(spar, "other", "read")
        assert target.get("/v1/status?lanes=0", token=other) == 200
        assert target.service.get("/livez").status_code == 200
        assert memory_of(target.service) - before < 64 * 1024 * 1024
    streams = sum(status.startswith(b"HTTP/1.1 200") for status in statuses[::20])
    assert streams <= share_of(WATCHERS)
    assert any(status.startswith(b"HTTP/1.1 429") for status in statuses)


def test_a_token_is_found_by_its_digest_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = list[tuple[str, str]]()

    def compare(one: str, other: str) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(tokens, "compare_digest", compare)
    known = "spar_" + "k" * 43
    table = tokens.Tokens(lambda: None, lambda: tokens.datetime.min)
    row = tokens.TokenRow("known", ("read",), tokens.datetime.min, digest=tokens.sha256(known.encode()).hexdigest())
    table._by_digest = {row.digest: row}

    assert table.find(known) is row
    assert table.find(known[:-1] + "x") is None
    assert all(len(one) == len(other) == 64 and known not in (one, other) for one, other in compared)
