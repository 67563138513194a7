"""Sending of mails over SMTP, for the channel and the notifier: the only module that uses `aiosmtplib`."""

from __future__ import annotations

import asyncio
import ssl
from datetime import datetime
from email.headerregistry import Address
from typing import Any

import aiosmtplib

from spar.channels.mail.message import compose
from spar.channels.mail.servers import Server, reason_of
from spar.errors import PermanentError, TransientError


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
        except aiosmtplib.SMTPRecipientsRefused as error:
            codes = [recipient.code for recipient in error.recipients]
            raise _refusal(codes, server, error) from error
        except aiosmtplib.SMTPResponseException as error:
            raise _refusal([error.code], server, error) from error
        except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
            raise TransientError(f"{server.host}:{server.port} (SMTP): {reason_of(error)}") from error
        if task is not None and task.cancelling() > cancellations:  # Python 3.11 may have lost it in the library's wait
            raise asyncio.CancelledError


def _refusal(codes: list[int], server: Server, error: BaseException) -> PermanentError | TransientError:
    """Return the error for an answer of the server: from code 500 on it is permanent."""
    kind = PermanentError if codes and all(code >= 500 for code in codes) else TransientError
    return kind(f"{server.host} (SMTP): {reason_of(error)}")
