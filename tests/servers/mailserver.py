"""A mail host of a test's own on 127.0.0.1: Dovecot for IMAP, and aiosmtpd for SMTP, which delivers into its mailboxes.

As the mail server of a domain does, it writes on each mail that it takes from where it came (`Received`), who is told
of failures (`Return-Path`), and whether the sender is proven (`Authentication-Results`): here, whether the From is one
of the addresses that `honest` names. Nothing leaves the machine.
"""

from __future__ import annotations

import asyncio
import email
import email.policy
import email.utils
import getpass
import grp
import itertools
import os
import pwd
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.ports import free_port

NAME = "mx.spar.test"
PASSWORD = "secret-of-tests"
#: Where Debian puts it, which is in no user's path.
DOVECOT = shutil.which("dovecot", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

_CONFIG = """
base_dir = {home}/run
state_dir = {home}/state
log_path = {home}/log
protocols = imap
listen = 127.0.0.1
ssl = {ssl}
{certificate}
disable_plaintext_auth = no
auth_mechanisms = plain
first_valid_uid = 1
mail_location = maildir:{home}/mail/%u
mail_max_userip_connections = 50
mailbox_idle_check_interval = 1 s
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={home}/mail/%u
}}
{users}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = {imaps}
  }}
}}
service anvil {{
  chroot =
}}
service stats {{
  chroot =
}}
"""


class SmtpServer(Controller):
    """SMTP server in a thread of its own, whose connections end with it."""

    def stop(self, no_assert: bool = False) -> None:
        asyncio.run_coroutine_threadsafe(self._end_connections(), self.loop).result(20)
        super().stop(no_assert)

    async def _end_connections(self) -> None:
        assert self.server is not None
        self.server.close()
        for transport in list(self.loop._transports.values()):  # type: ignore[attr-defined]
            transport.abort()
        await asyncio.sleep(0)


class MailHost:
    """The mail host.

    Attributes: honest: addresses whose mails are proven to be theirs; taken: what SMTP has taken, in order;
    refusing: answers of SMTP to the next mails instead of taking them; on_taken: told of each that was taken.
    """

    def __init__(self, home: Path, certificate: tuple[Path, Path] | None = None) -> None:
        self.home, self.certificate = home, certificate
        self.imap, self.imaps, self.smtp = free_port(), free_port(), free_port()
        self.honest: set[str] = set()
        self.taken: list[Any] = []
        self.refusing: list[str] = []
        self.on_taken: Callable[[str, Any], object] = lambda to, message: None
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        context = None
        if certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*certificate)
        self._controller = SmtpServer(
            self, hostname="127.0.0.1", port=self.smtp, ready_timeout=20, tls_context=context, auth_required=False,
            auth_require_tls=False, authenticator=_authenticate, data_size_limit=100 << 20,
        )  # fmt: skip

    def __enter__(self) -> MailHost:
        assert DOVECOT is not None
        is_root = os.geteuid() == 0
        user = pwd.getpwnam("nobody") if is_root else pwd.getpwuid(os.geteuid())
        (self.home / "mail").mkdir(parents=True)
        if is_root:
            os.chown(self.home / "mail", user.pw_uid, user.pw_gid)
            for folder in (self.home, *self.home.parents[:3]):
                folder.chmod(folder.stat().st_mode | 0o055) if folder.owner() == "root" else None
        me, group = getpass.getuser(), grp.getgrgid(user.pw_gid).gr_name
        names = f"default_internal_user = {me}\ndefault_login_user = {me}\ndefault_internal_group = {group}"
        users = "" if is_root else names
        certificate = ""
        if self.certificate is not None:
            certificate = f"ssl_cert = <{self.certificate[0]}\nssl_key = <{self.certificate[1]}"
        config = self.home / "dovecot.conf"
        config.write_text(_CONFIG.format(
            home=self.home, ssl="yes" if certificate else "no", certificate=certificate, password=PASSWORD,
            uid=user.pw_uid, gid=user.pw_gid, users=users, imap=self.imap, imaps=self.imaps if certificate else 0,
        ))  # fmt: skip
        self._process = subprocess.Popen([DOVECOT, "-F", "-c", str(config)], start_new_session=True)
        self._controller.start()
        self._wait_for_imap()
        return self

    def __exit__(self, *exc: object) -> None:
        self._controller.stop()
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(20)

    def deliver(self, to: str, raw: bytes, *, sender: str = "", is_proven: bool | None = None) -> None:
        """Put a mail into a mailbox, as this host writes on it. Args: sender: of the envelope."""
        message = email.message_from_bytes(raw)
        author = email.utils.parseaddr(message.get("from", ""))[1].lower()
        proven = author in self.honest if is_proven is None else is_proven
        result = "pass" if proven else "fail"
        domain = author.rpartition("@")[2]
        head = (
            f"Return-Path: <{sender}>\r\nAuthentication-Results: {NAME}; dmarc={result} header.from={domain}\r\n"
            f"Received: from localhost by {NAME}; {email.utils.formatdate()}\r\n"
        )
        box = self.home / "mail" / to / "new"
        self._make(box.parent)
        name = f"{time.time():.6f}.M{next(self._numbers)}.{NAME}"
        part = box.parent / "tmp" / name
        part.write_bytes(head.encode() + raw)
        _own(part, self.home / "mail")
        part.rename(box / name)

    def write(self, raw: bytes, *, to: str = "spar@spar.test", sender: str = "alice@example.org", **more: Any) -> None:
        """Put a person's mail into a mailbox."""
        self.deliver(to, raw, sender=sender, **more)

    def flags(self, of: str) -> dict[str, int]:
        """Return how many mails of a mailbox are new, and how many have been seen."""
        box = self.home / "mail" / of
        files = [*(box / "new").glob("*"), *(box / "cur").glob("*")]
        seen = sum("S" in file.name.rpartition(":2,")[2] for file in files if ":2," in file.name)
        return {"all": len(files), "seen": seen}

    def sent_to(self, address: str) -> list[Any]:
        """Return the mails that SMTP has taken for somebody, in order."""
        return [message for to, message in self.taken if to == address]

    def kick(self, address: str) -> None:
        """Break the connections of a mailbox."""
        subprocess.run(["doveadm", "-c", str(self.home / "dovecot.conf"), "kick", address], check=True)

    # -- what aiosmtpd asks

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if not session.authenticated:
            return "530 say who you are first"
        if self.refusing:
            return self.refusing.pop(0)
        content = envelope.content
        assert isinstance(content, bytes)
        for to in envelope.rcpt_tos:
            self.taken.append((to, email.message_from_bytes(content, policy=email.policy.default)))
            self.on_taken(*self.taken[-1])
            if to.endswith("@spar.test"):
                self.deliver(to, content, sender=envelope.mail_from or "")
        return "250 taken"

    def _make(self, box: Path) -> None:
        for folder in (box, *(box / name for name in ("cur", "new", "tmp"))):
            folder.mkdir(exist_ok=True, mode=0o700)
            _own(folder, self.home / "mail")

    def _wait_for_imap(self) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", self.imap), timeout=5) as connection:
                    if connection.recv(100).startswith(b"* OK"):
                        return
            except OSError:
                pass
            time.sleep(0.05)
        log = self.home / "log"
        raise AssertionError(f"Dovecot does not answer: {log.read_text() if log.exists() else 'no log'}")


def _own(path: Path, like: Path) -> None:
    if os.geteuid() == 0:
        owner = like.stat()
        os.chown(path, owner.st_uid, owner.st_gid)


def _authenticate(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
    is_right = isinstance(data, LoginPassword) and data.password == PASSWORD.encode()
    return AuthResult(success=is_right, handled=False)


@contextmanager
def mail_host(certificate: tuple[Path, Path] | None = None) -> Iterator[MailHost]:
    """Run a mail host of which alice@example.org is known to be honest; skips the test where there is no Dovecot."""
    if DOVECOT is None:
        pytest.skip("needs Dovecot (Debian package dovecot-imapd)")
    folder = Path(tempfile.mkdtemp(prefix="spar-mail-"))  # a short path: Dovecot binds sockets below it
    try:
        with MailHost(folder / "host", certificate) as host:
            host.honest = {"alice@example.org"}
            yield host
    finally:
        shutil.rmtree(folder, ignore_errors=True)
