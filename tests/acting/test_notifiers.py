"""Ways to tell people: the real log, a real program, a real server."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import socket
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from acting.notifiers import DesktopNotifier, LogNotifier, WebhookNotifier
from spar.errors import ConfigError, PermanentError, TransientError
from spar.testing import check_notifier
from tests.servers.web import Pages, reply


@pytest.fixture
async def hook() -> AsyncIterator[Pages]:
    async with Pages(other=reply("204 No Content")).serving() as hook:
        yield hook


def read_by(hook: Pages) -> tuple[str, bytes]:
    """Return the head, in lower case, and the body of the first request."""
    head, _, body = hook.requests[0].partition("\r\n\r\n")
    return head.lower(), body.encode("latin-1")


@pytest.fixture
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `notify-send` that writes down its arguments; the folder it writes to."""
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\0" "$@" > {tmp_path}/seen\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def unused_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


@pytest.mark.parametrize(
    ("urgency", "level"), [("low", logging.INFO), ("normal", logging.WARNING), ("critical", logging.ERROR)]
)
async def test_the_log_gets_a_line_whose_level_is_the_urgency(
    caplog: pytest.LogCaptureFixture, urgency: Any, level: int
) -> None:
    with caplog.at_level(logging.INFO, logger="spar.notify"):
        await LogNotifier().notify("disk {full} %s", "at 99 %\x1b[2J\r\ud800", urgency=urgency)

    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (level, "disk {full} %s: at 99 %\\x1b[2J\\r\\ud800")
    ]


async def test_log_and_desktop_keep_the_contract(desktop: Path) -> None:
    await check_notifier(LogNotifier)
    await check_notifier(DesktopNotifier)


async def test_the_desktop_is_given_plain_text(desktop: Path) -> None:
    await DesktopNotifier().notify("--urgency=low", "<b>a</b> & $(id)\n\x1b[2J", urgency="critical")

    assert (desktop / "seen").read_text().split("\0")[:-1] == [
        "--app-name=spar", "--urgency=critical", "--", "--urgency=low", "&lt;b&gt;a&lt;/b&gt; &amp; $(id)\n\\x1b[2J",
    ]  # fmt: skip


async def test_a_desktop_that_is_not_there_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(PermanentError, match="need the program 'notify-send'"):
        await DesktopNotifier().notify("a", "b")


async def test_a_desktop_that_fails_says_why_and_one_that_hangs_is_given_up(desktop: Path) -> None:
    for program, kind, reason in (
        ("echo no bus >&2\nexit 1", PermanentError, "'notify-send' failed: no bus; is there a desktop session"),
        ("sleep 300", TimeoutError, r"not over after 0.2 s"),
    ):
        (desktop / "notify-send").write_text(f"#!/bin/sh\n{program}\n")
        with pytest.raises(kind, match=reason):
            await DesktopNotifier(timeout=0.2).notify("a", "b")


async def test_a_hook_is_posted_the_message_as_json(hook: Pages) -> None:
    ours = {"Authorization": "Bearer t"}
    await WebhookNotifier(url=f"{hook.url}/hook", headers=ours).notify("t\ud800", "x", urgency="low")

    head, body = read_by(hook)
    message = json.loads(body)
    assert datetime.fromisoformat(message.pop("at")).tzinfo is not None
    assert message == {"title": "t\ud800", "text": "x", "urgency": "low"}
    assert head.startswith("post /hook ")
    assert "authorization: bearer t\r\n" in head
    assert "content-type: application/json\r\n" in head
    assert "signature" not in head


async def test_with_a_secret_the_very_bytes_are_signed(hook: Pages) -> None:
    await WebhookNotifier(url=hook.url, secret="hush").notify("t", "x")

    head, body = read_by(hook)
    expected = hmac.new(b"hush", body, hashlib.sha256).hexdigest()
    assert f"x-spar-signature-256: sha256={expected}" in head
    assert "hush" not in head + body.decode()


@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        ("404 Not Found", PermanentError, "answered 404 Not Found"),
        ("302 Found\r\nLocation: /elsewhere", PermanentError, "more than 0 redirects"),
        ("304 Not Modified", PermanentError, "answered 304"),
        ("500 Oh", TransientError, "answered 500"),
        ("429 Busy\r\nRetry-After: 9", TransientError, "answered 429"),
    ],
)
async def test_any_answer_but_success_is_a_failure(
    hook: Pages, status: str, kind: type[Exception], reason: str
) -> None:
    hook.other = reply(status)

    with pytest.raises(kind, match=reason) as failed:
        await WebhookNotifier(url=f"{hook.url}/hook").notify("t", "x")
    assert "/hook" not in str(failed.value)  # of many hooks the path is the secret


async def test_the_own_network_can_be_closed_to_hooks_and_metadata_always_is(hook: Pages) -> None:
    with pytest.raises(PermanentError, match="not allowed"):
        await WebhookNotifier(url=hook.url, private=False).notify("t", "x")
    with pytest.raises(PermanentError, match="metadata"):
        await WebhookNotifier(url="http://169.254.169.254/").notify("t", "x")

    assert hook.requests == []


@pytest.mark.parametrize("options", [{"url": "ftp://x"}, {"url": "x"}, {"url": "http://x", "headers": {"Host": "y"}}])
def test_options_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        WebhookNotifier(**options)


async def test_a_hook_keeps_the_contract(hook: Pages) -> None:
    await check_notifier(
        lambda: WebhookNotifier(url=hook.url, secret="s"),
        make_unreachable=lambda: WebhookNotifier(url=f"http://127.0.0.1:{unused_port()}/"),
    )
