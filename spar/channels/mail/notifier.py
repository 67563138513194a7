"""Notifier by mail: each notice is a mail to the people that the configuration names, through one SMTP server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from annotated_types import Gt, Len

from spar.channels.mail.sending import Postman
from spar.channels.mail.servers import read_address, read_password, read_server, tls_context
from spar.clock import Clock, SystemClock
from spar.data.bounded import BoundedDict
from spar.data.text import safe_line
from spar.errors import PermanentError, SparError, TransientError
from spar.ports.notifier import Notice
from spar.protocols import Host

#: Characters of a subject.
_LONGEST_SUBJECT = 200
#: Notices whose recipients so far are remembered.
_REMEMBERED = 1_000


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
