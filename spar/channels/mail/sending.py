"""Sending of mails over SMTP: the only module that uses `aiosmtplib`."""

from __future__ import annotations

import asyncio
import ssl
from email.message import EmailMessage

import aiosmtplib

from spar.channels.mail.servers import Server
from spar.errors import PermanentError, TransientError


class _Connection(aiosmtplib.SMTP):
    """Connection that ends at once: that of the library waits for the server, which may never end the encryption."""

    def close(self) -> None:
        if isinstance(self.transport, asyncio.WriteTransport):
            self.transport.abort()
        super().close()


class Postman:
    """Client of one SMTP server; without a `user` there is no login."""

    def __init__(self, server: Server, context: ssl.SSLContext, user: str, password: str) -> None:
        self._server, self._context, self._user, self._password = server, context, user, password

    async def send(self, message: EmailMessage, to: str, *, own: str, timeout: float) -> None:
        """Hand a mail to the server; when this returns, the server has accepted it.

        Args: own: the agent's address, as the sender of the envelope.

        Raises: PermanentError when the server will never accept it; TransientError.
        """
        server = self._server
        is_secure = server.security != "none"
        client = _Connection(
            hostname=server.host, port=server.port, use_tls=server.security == "tls",
            start_tls=server.security == "starttls", tls_context=self._context if is_secure else None, timeout=timeout,
        )  # fmt: skip
        task = asyncio.current_task()
        cancellations = 0 if task is None else task.cancelling()
        try:
            async with client:
                await client.ehlo()
                if self._user and client.supports_extension("auth"):
                    await client.login(self._user, self._password)
                await client.send_message(message, sender=own, recipients=[to])
        except aiosmtplib.SMTPAuthenticationError as error:
            raise TransientError(f"{server.host} refused the name or the password: {_one_line(error)}") from error
        except aiosmtplib.SMTPRecipientsRefused as error:
            codes = [recipient.code for recipient in error.recipients]
            raise _refusal(codes, server, error) from error
        except aiosmtplib.SMTPResponseException as error:
            raise _refusal([error.code], server, error) from error
        except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
            raise TransientError(f"{server.host}:{server.port} (SMTP): {_one_line(error)}") from error
        if (
            task is not None and task.cancelling() > cancellations
        ):  # the library's waiting (Python 3.11) may have lost it
            raise asyncio.CancelledError


def _refusal(codes: list[int], server: Server, error: BaseException) -> PermanentError | TransientError:
    """Return the error for an answer of the server: from code 500 on it is permanent."""
    kind = PermanentError if codes and all(code >= 500 for code in codes) else TransientError
    return kind(f"{server.host} (SMTP): {_one_line(error)}")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
