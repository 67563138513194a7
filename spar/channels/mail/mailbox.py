"""Mailbox on an IMAP server: the one place that knows `imapclient`. Every method blocks, so each belongs into a thread.

Mails are fetched by PEEK, so that reading one changes nothing; it is marked as seen only by `mark_seen`.
"""

from __future__ import annotations

import socket
import ssl
from typing import Final

from imapclient import IMAPClient
from imapclient.exceptions import IMAPClientError, LoginError
from msgspec import Struct

from spar.channels.mail.servers import Server
from spar.errors import PermanentError, TransientError

#: Bytes of the head of a mail that are looked at.
LONGEST_HEAD: Final = 128 * 1024
#: Seconds that the server may take for one answer.
ANSWER_WITHIN: Final = 60.0

#: Errors of a connection; the next one may do better.
_BROKEN: Final = (IMAPClientError, OSError, ssl.SSLError, ValueError, KeyError)


class Glance(Struct, frozen=True):
    """First look at a mail: its size in bytes, and its head."""

    uid: int
    size: int
    head: bytes


class Mailbox:
    """One folder of a mailbox. `validity` and `next_uid` are those of the folder when it was opened."""

    def __init__(self, server: Server, context: ssl.SSLContext, user: str, password: str, folder: str) -> None:
        self._server, self._context, self._user, self._password = server, context, user, password
        self._folder = folder
        self._client: IMAPClient | None = None
        self._socket: socket.socket | None = None
        self.validity = self.next_uid = 0
        self.can_wait = False

    def open(self) -> None:
        """Connect, log in and select the folder.

        Raises: PermanentError where name or password are refused, or there is no such folder; TransientError.
        """
        server = self._server
        try:
            is_tls = server.security == "tls"
            client = self._client = IMAPClient(
                server.host, server.port, ssl=is_tls, ssl_context=self._context if is_tls else None,
                timeout=ANSWER_WITHIN,
            )  # fmt: skip
            if server.security == "starttls":
                client.starttls(self._context)
            self._socket = client.socket()
            client.login(self._user, self._password)
            if not client.folder_exists(self._folder):
                raise PermanentError(f"{server.host} has no folder {self._folder!r}")
            selected = client.select_folder(self._folder)
            self.validity, self.next_uid = int(selected[b"UIDVALIDITY"]), int(selected[b"UIDNEXT"])
            self.can_wait = client.has_capability("IDLE")
        except LoginError as error:
            raise PermanentError(f"{server.host} refused the name or the password: {_said(error)}") from None
        except _BROKEN as error:
            raise _broken(server, error) from error

    def uids_from(self, uid: int) -> list[int]:
        """Return the UIDs of this one and of later mails, in order. Raises: TransientError."""
        return sorted(found for found in self._search(["UID", f"{uid}:*"]) if found >= uid)

    def unseen(self) -> list[int]:
        """Return the UIDs of mails that nobody has seen, in order. Raises: TransientError."""
        return sorted(self._search(["UNSEEN"]))

    def look(self, uid: int) -> Glance | None:
        """Return the size and the head of a mail; None for one that is gone. Raises: TransientError."""
        head = f"BODY.PEEK[HEADER]<0.{LONGEST_HEAD}>"
        found = self._fetch(uid, ["RFC822.SIZE", head])
        if found is None:
            return None
        body = next((value for key, value in found.items() if key.startswith(b"BODY[HEADER]")), b"")
        return Glance(uid, int(found.get(b"RFC822.SIZE", 0)), body or b"")

    def read(self, uid: int) -> bytes | None:
        """Return a whole mail; None for one that is gone. Raises: TransientError."""
        found = self._fetch(uid, ["BODY.PEEK[]"])
        return None if found is None else bytes(found.get(b"BODY[]") or b"")

    def mark_seen(self, uid: int) -> None:
        """Mark a mail as seen. Raises: TransientError."""
        try:
            self._open_client().add_flags([uid], [b"\\Seen"], silent=True)
        except _BROKEN as error:
            raise _broken(self._server, error) from error

    def wait(self, seconds: float) -> None:
        """Return when the server says that something has changed, at the latest after so many seconds.

        Raises: TransientError when the connection has broken.
        """
        client = self._open_client()
        try:
            client.idle()
            client.idle_check(timeout=seconds)
            client.idle_done()
        except _BROKEN as error:
            raise _broken(self._server, error) from error

    def touch(self) -> None:
        """Ask whether anything is new, which also keeps the connection open. Raises: TransientError."""
        try:
            self._open_client().noop()
        except _BROKEN as error:
            raise _broken(self._server, error) from error

    def abort(self) -> None:
        """End the connection under whatever waits for it; from any thread, does not block."""
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        """Log out, if that can still be done."""
        if self._client is not None:
            try:
                self._client.logout()
            except _BROKEN:
                self._client.shutdown()
            self._client = self._socket = None

    def _search(self, criteria: list[str]) -> list[int]:
        try:
            return list(self._open_client().search(criteria))
        except _BROKEN as error:
            raise _broken(self._server, error) from error

    def _fetch(self, uid: int, what: list[str]) -> dict[bytes, bytes] | None:
        try:
            found = self._open_client().fetch([uid], what)
        except _BROKEN as error:
            raise _broken(self._server, error) from error
        rows: dict[bytes, bytes] | None = found.get(uid)
        return rows

    def _open_client(self) -> IMAPClient:
        if self._client is None:
            raise TransientError("the mailbox is not open")
        return self._client


def _broken(server: Server, error: BaseException) -> TransientError:
    return TransientError(f"{server.host}:{server.port} (IMAP): {_said(error)}")


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
