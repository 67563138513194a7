"""Sending of mails over SMTP: for the channel, and for the notifier, whose notices are mails to the people that the
configuration names. The only module that uses `aiosmtplib`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from datetime import datetime
from email.headerregistry import Address
from typing import Annotated, Any, Literal

import aiosmtplib
from annotated_types import Gt, Len

from spar.clock import Clock, SystemClock
from spar.data.bounded import BoundedDict
from spar.data.text import safe_line
from spar.errors import PermanentError, SparError, TransientError
from spar.mail.message import compose
from spar.mail.servers import Server, read_address, read_password, read_server, reason_of, tls_context
from spar.ports.channel import Notice
from spar.protocols import Host

#: Characters of a subject.
_LONGEST_SUBJECT = 200
#: Notices whose recipients so far are remembered.
_REMEMBERED = 1_000


class _Connection(aiosmtplib.SMTP):
    """Connection that ends at once: that of the library waits for the server, which may never end the encryption."""

    def close(self) -> None:
        if isinstance(self.transport, asyncio.WriteTransport):
            self.transport.abort()
        super().close()


class Postman:
    """Client of one SMTP server, which sends mails from one address; without a `user` there is no login. `timeout` in
    seconds."""

    def __init__(self, own: Address, server: Server, context: ssl.SSLContext, user: str, password: str, *,
                 timeout: float) -> None:  # fmt: skip
        self._own, self._server, self._context, self._timeout = own, server, context, timeout
        self._user, self._password = user, password

    async def send(self, to: str, text: str, *, id: str, at: datetime, reply: dict[str, Any] | None = None,
                   subject: str = "") -> None:  # fmt: skip
        """Hand a mail to the server; when this returns, the server has accepted it. Args: as those of `compose`.

        Raises: PermanentError when no server will ever accept it; TransientError.
        """
        try:
            message = compose(self._own, to, text, reply or {}, id=id, at=at, subject=subject)
        except ValueError as error:
            raise PermanentError(str(error)) from error
        server = self._server
        client = _Connection(
            hostname=server.host, port=server.port, use_tls=server.security == "tls",
            start_tls=server.security == "starttls", timeout=self._timeout,
            tls_context=self._context if server.security != "none" else None,
        )  # fmt: skip
        task = asyncio.current_task()
        cancellations = 0 if task is None else task.cancelling()
        try:
            async with client:
                await client.ehlo()
                if self._user and client.supports_extension("auth"):
                    await client.login(self._user, self._password)
                await client.send_message(message, sender=self._own.addr_spec, recipients=[to])
        except aiosmtplib.SMTPAuthenticationError as error:
            raise TransientError(f"{server.host} refused the name or the password: {reason_of(error)}") from error
        except (aiosmtplib.SMTPRecipientsRefused, aiosmtplib.SMTPResponseException) as error:
            refused = error.recipients if isinstance(error, aiosmtplib.SMTPRecipientsRefused) else [error]
            kind = PermanentError if refused and all(part.code >= 500 for part in refused) else TransientError
            raise kind(f"{server.host} (SMTP): {reason_of(error)}") from error
        except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
            raise TransientError(f"{server.host}:{server.port} (SMTP): {reason_of(error)}") from error
        if task is not None and task.cancelling() > cancellations:  # Python 3.11 may have lost it in the library's wait
            raise asyncio.CancelledError


class MailNotifier:
    """Sends mails through `smtp` from the address `sender` to each of `to`. `timeout` in seconds.

    Without `user` there is no login; else the password is `password`, or the variable `password_env` holds it. A
    notice that is sent again goes only to the recipients for whom the server has not accepted it.
    """

    def __init__(
        self,
        *,
        smtp: str,
        sender: str,
        to: Annotated[Sequence[str], Len(1)],
        user: str = "",
        password: str | None = None,
        password_env: str = "MAIL_PASSWORD",
        ca_file: str | None = None,
        timeout: Annotated[float, Gt(0)] = 20.0,
    ) -> None:
        self._to = [read_address("to", recipient).addr_spec for recipient in to]
        secret = read_password(password, password_env) if user else ""
        self._postman = Postman(read_address("sender", sender), read_server("smtp", smtp), tls_context(ca_file), user,
                                secret, timeout=timeout)  # fmt: skip
        self._clock: Clock = SystemClock()
        #: Recipients so far, by the id of an unfinished notice.
        self._sent_to: BoundedDict[str, set[str]] = BoundedDict(_REMEMBERED)

    def attach(self, host: Host) -> None:
        """Date mails by the agent's clock."""
        self._clock = host.clock

    async def notify(self, title: str, text: str, *, urgency: Literal["low", "normal", "critical"] = "normal") -> None:
        """Send a text to all recipients. Raises: PermanentError, TransientError when the server has not accepted it."""
        await self._send(title, text, self._clock.new_id())

    async def deliver(self, notice: Notice) -> None:
        """Send a notice to all recipients. Raises: PermanentError, TransientError when the server has not accepted
        it."""
        await self._send(notice.title, f"{notice.text}\n\n{notice.at.isoformat()}", notice.id)

    async def _send(self, title: str, text: str, id: str) -> None:
        subject = safe_line(title, _LONGEST_SUBJECT)
        sent_to = self._sent_to.setdefault(id, set())
        failed: list[SparError] = []
        for to in self._to:
            if to in sent_to:
                continue
            try:
                await self._postman.send(to, text or title, id=f"{id} {to}", at=self._clock.now(), subject=subject)
            except (PermanentError, TransientError) as error:
                failed.append(error)
            else:
                sent_to.add(to)
        if failed:
            raise failed[0]
        self._sent_to.pop(id, None)
