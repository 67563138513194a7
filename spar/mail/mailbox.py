"""Mailbox on an IMAP server: the only module that uses `imapclient`. Every method blocks, so call it in a thread.

Mails are fetched with PEEK, so reading one changes nothing; only `mark_seen` marks it as seen.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from imapclient import IMAPClient
from imapclient.exceptions import IMAPClientError, LoginError
from msgspec import Struct

from spar.errors import PermanentError, TransientError
from spar.mail.servers import Server, reason_of

#: Bytes of the head of a mail that are read.
LONGEST_HEAD: Final = 128 * 1024
#: Seconds that the server may take for one answer.
ANSWER_WITHIN: Final = 60.0

#: Errors of a connection, after which a new one may work.
_BROKEN: Final = (IMAPClientError, OSError, ssl.SSLError, ValueError, KeyError)


class Glance(Struct, frozen=True):
    """First look at a mail: its size in bytes, and its head."""

    uid: int
    size: int
    head: bytes


class Mailbox:
    """One folder of a mailbox. `validity` and `next_uid` are those of the folder when it was opened.

    One thread at a time may use it; any thread may call `abort`.
    """

    def __init__(self, server: Server, context: ssl.SSLContext, user: str, password: str, folder: str) -> None:
        self._server, self._context, self._user, self._password = server, context, user, password
        self._folder = folder
        self._lock = threading.Lock()
        self._client: IMAPClient | None = None
        self._socket: socket.socket | None = None
        self._is_aborted = False
        self.validity = self.next_uid = 0
        self.can_wait = False

    def open(self) -> None:
        """Connect, log in and select the folder.

        Raises: PermanentError where the login is refused, or the folder does not exist; TransientError.
        """
        with self._using() as client:
            client.login(self._user, self._password)
            if not client.folder_exists(self._folder):
                raise PermanentError(f"{self._server.host} has no folder {self._folder!r}")
            selected = client.select_folder(self._folder)
            self.validity, self.next_uid = int(selected[b"UIDVALIDITY"]), int(selected[b"UIDNEXT"])
            self.can_wait = client.has_capability("IDLE")

    def uids_from(self, uid: int) -> list[int]:
        """Return the UIDs from this one on, in order. Raises: TransientError."""
        with self._using() as client:
            return sorted(later for later in client.search(["UID", f"{uid}:*"]) if later >= uid)

    def unseen(self) -> list[int]:
        """Return the UIDs of unseen mails, in order. Raises: TransientError."""
        with self._using() as client:
            return sorted(client.search(["UNSEEN"]))

    def look(self, uid: int) -> Glance | None:
        """Return the size and the head of a mail; None for a deleted one. Raises: TransientError."""
        with self._using() as client:
            data = client.fetch([uid], ["RFC822.SIZE", f"BODY.PEEK[HEADER]<0.{LONGEST_HEAD}>"]).get(uid)
        if data is None:
            return None
        head = next((value for key, value in data.items() if key.startswith(b"BODY[HEADER]")), b"")
        return Glance(uid, int(data.get(b"RFC822.SIZE", 0)), head or b"")

    def read(self, uid: int) -> bytes | None:
        """Return a whole mail; None for a deleted one. Raises: TransientError."""
        with self._using() as client:
            data = client.fetch([uid], ["BODY.PEEK[]"]).get(uid)
        return None if data is None else bytes(data.get(b"BODY[]") or b"")

    def mark_seen(self, uid: int) -> None:
        """Mark a mail as seen. Raises: TransientError."""
        with self._using() as client:
            client.add_flags([uid], [b"\\Seen"], silent=True)

    def wait(self, seconds: float) -> None:
        """Wait until the server announces a change, at most `seconds`.

        Raises: TransientError when the connection has broken.
        """
        with self._using() as client:
            client.idle()
            client.idle_check(timeout=seconds)
            client.idle_done()

    def touch(self) -> None:
        """Send a request that does nothing, which keeps the connection open. Raises: TransientError."""
        with self._using() as client:
            client.noop()

    def abort(self) -> None:
        """End the connection, also while a thread uses it. It may be called from any thread and does not block."""
        self._is_aborted = True
        if (connection := self._socket) is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        if self._lock.acquire(blocking=False):
            self._drop()
            self._lock.release()

    @contextmanager
    def _using(self) -> Iterator[IMAPClient]:
        """Yield the connection, opened if there is none; after an error it is dropped."""
        with self._lock:
            try:
                yield self._client or self._connect()
            except LoginError as error:
                self._drop()
                sentence = f"{self._server.host} refused the name or the password: {reason_of(error)}"
                raise PermanentError(sentence) from None
            except _BROKEN as error:
                self._drop()
                raise TransientError(f"{self._server.host}:{self._server.port} (IMAP): {reason_of(error)}") from error
            except PermanentError:
                self._drop()
                raise
            finally:
                if self._is_aborted:
                    self._drop()

    def _connect(self) -> IMAPClient:
        if self._is_aborted or self.validity:  # do not open a broken connection again: its folder would not be selected
            raise TransientError(f"{self._server.host}:{self._server.port} (IMAP): the connection has ended")
        server, is_tls = self._server, self._server.security == "tls"
        client = self._client = IMAPClient(
            server.host, server.port, ssl=is_tls, ssl_context=self._context if is_tls else None, timeout=ANSWER_WITHIN
        )
        self._socket = client.socket()
        if server.security == "starttls":
            client.starttls(self._context)
            self._socket = client.socket()
        return client

    def _drop(self) -> None:
        client, self._client, self._socket = self._client, None, None
        if client is not None:
            with suppress(*_BROKEN):
                client.shutdown()
