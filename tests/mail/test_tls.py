"""Connections to the servers of a mailbox: encrypted, and only with a certificate that is trusted."""

from __future__ import annotations

import asyncio
import gc
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spar.errors import TransientError
from spar.mail.channel import MailChannel
from spar.ports.channel import Outgoing
from tests.mail.conftest import Reader
from tests.mail.letters import letter
from tests.servers.mailserver import NAME, PASSWORD, MailHost, mail_host


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("certificate")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


@pytest.fixture
def secured(certificate: tuple[Path, Path]) -> Iterator[MailHost]:
    with mail_host(certificate) as host:
        yield host


def channel_of(host: MailHost, imap: str, smtp: str, **options: Any) -> MailChannel:
    return MailChannel(address="spar@spar.test", imap=imap, smtp=smtp, password=PASSWORD,
                       trust_authentication_results=NAME, **options)  # fmt: skip


def open_connections(port: int) -> list[socket.socket]:
    """Return the open sockets of this process that are connected to a port."""
    sockets = [item for item in gc.get_objects() if type(item) is socket.socket]
    return [item for item in sockets if f"raddr=('127.0.0.1', {port})" in repr(item)]


async def test_mails_are_read_and_sent_encrypted(
    secured: MailHost, certificate: tuple[Path, Path], reader: Reader
) -> None:
    for imap in (f"imaps://127.0.0.1:{secured.imaps}", f"imap+starttls://127.0.0.1:{secured.imap}"):
        reader.heard, reader.rows.rows = [], {}
        channel = channel_of(secured, imap, f"smtp+starttls://127.0.0.1:{secured.smtp}", ca_file=str(certificate[0]))
        async with reader.reading(channel):
            secured.write(letter("hello", id=f"{imap}@x"))
            await reader.until(lambda: reader.heard)
        await channel.send(Outgoing(imap, "alice@example.org", "well"))
        await asyncio.sleep(0)  # the loop closes what was aborted
        assert not open_connections(secured.smtp)
    assert len(secured.sent_to("alice@example.org")) == 2


async def test_a_server_whose_certificate_is_not_trusted_is_not_spoken_to(secured: MailHost, reader: Reader) -> None:
    channel = channel_of(secured, f"imaps://127.0.0.1:{secured.imaps}", f"smtp+starttls://127.0.0.1:{secured.smtp}")
    async with reader.reading(channel) as task:
        with pytest.raises(TransientError, match=r"(?i)certificate"):
            await task
    with pytest.raises(TransientError, match=r"(?i)certificate"):
        await channel.send(Outgoing("1", "alice@example.org", "well"))
    assert not secured.taken
