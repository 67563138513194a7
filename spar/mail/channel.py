"""Mail as a channel: a mailbox that is read over IMAP, and answers that are sent over SMTP.

A mail is acknowledged (marked as seen) only after the journal has it. The UID up to which mails were taken is stored
with the accepted message; after a crash in between the mail is offered again, and recognised by its Message-ID. The
body of a mail is fetched only if its sender is admitted and the mail is not too large.

A sender that writes too often gets one answer, and is then not heard until it has been quiet. So two agents that answer
each other stop, even if neither marks its mails as automatic.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal

from annotated_types import Ge, Le
from msgspec import Struct, to_builtins

from spar.clock import Clock, SystemClock
from spar.data.bounded import BoundedDict
from spar.decoding import converted
from spar.errors import ConfigError, InboxFullError, LifecycleError, TransientError
from spar.failpoints import crashpoint
from spar.mail.incoming import Mail, UnreadableError, read_mail
from spar.mail.mailbox import Glance, Mailbox
from spar.mail.message import MailText, message_of, reply_of, save, session_of, size_text
from spar.mail.notifier import Postman
from spar.mail.origin import failure_of, reason_not_to_plan
from spar.mail.servers import read_address, read_password, read_server, tls_context
from spar.observe.logs import get_logger
from spar.ports.channel import Accepted, Channel, ChannelContext, ChannelLimits, Incoming, Outgoing
from spar.protocols.sensors import PassingRows, SensorRows
from spar.threads import Threads
from spar.types import replace

log = get_logger("spar.mail")

#: Seconds until a mail that could not be accepted is offered again.
OFFER_AGAIN: Final = 2.0
#: Seconds of one wait for news of the server: after a new mail, and at most.
SHORTEST_WAIT, LONGEST_WAIT = 0.25, 10.0
#: Seconds that sending a mail may take.
SEND_WITHIN: Final = 25.0
#: Attempts at a mail that breaks the connection; then it stays unseen, and the next ones are read.
MOST_ATTEMPTS: Final = 5
_CURSOR: Final = "cursor"
MIB: Final = 1024 * 1024


class Cursor(Struct, frozen=True):
    """Place in a folder: all mails up to this UID were taken, as long as the folder has this validity. Of those up to
    `old` only the unseen ones are taken."""

    validity: int
    uid: int
    old: int = 0


class _PassedOverError(Exception):
    """Error for a mail that is not handed over. Args: its kind in the counts, the reason, the sender if it is known."""


class MailChannel(Channel):
    """Channel to people by mail.

    Args:
        address: the agent's own address.
        imap: the server where its mails arrive: `imaps://HOST[:PORT]`, `imap+starttls://…`; `imap://…` on loopback.
        smtp: the server that sends them: `smtps://HOST[:PORT]`, `smtp+starttls://…`; `smtp://…` on loopback.
        user: the name for the login; default: the address.
        password_env: the environment variable that holds the password.
        password: the password itself, where the configuration file is a secret.
        display: the name that people see beside the address.
        folder: the folder that is read.
        ca_file: further trusted certificates, for a private server.
        verify: "required": the From is believed only with a pass of DMARC, SPF or DKIM; "none": it is always believed.
        trust_authentication_results: the name that the own server writes into Authentication-Results.
        session: one conversation for each "thread", or for each "sender".
        first: at the very first start begin with mails that are "new" from then on, or with all that are "unseen".
        poll: most seconds between two looks at the mailbox; most servers announce new mails at once (IDLE).
        largest: bytes of a mail; a larger one is not fetched, and its sender gets an answer.
        rate: mails of one sender in an hour; more are not read, and the sender is told so once.
        attachments: how many attachments of one mail are saved into the workspace.
    """

    limits = ChannelLimits(text=1_000_000)

    def __init__(
        self,
        *,
        address: str,
        imap: str,
        smtp: str,
        user: str | None = None,
        password_env: str = "MAIL_PASSWORD",
        password: str | None = None,
        display: str = "spar",
        folder: str = "INBOX",
        ca_file: str | None = None,
        verify: Literal["required", "none"] = "required",
        trust_authentication_results: str | None = None,
        session: Literal["thread", "sender"] = "thread",
        first: Literal["new", "unseen"] = "new",
        poll: Annotated[float, Ge(1), Le(1500)] = 60.0,
        largest: Annotated[int, Ge(10_000), Le(100 * MIB)] = 10 * MIB,
        rate: Annotated[int, Ge(1), Le(1000)] = 20,
        attachments: Annotated[int, Ge(0), Le(100)] = 20,
    ) -> None:
        if verify == "required" and not trust_authentication_results:
            sentence = (
                "trust_authentication_results is left out: name the server whose Authentication-Results say what "
                'is forged ("mx.example.org"), or believe every From with verify = "none"'
            )
            raise ConfigError(sentence, path=("trust_authentication_results",))
        own = read_address("address", address, display)
        self._own, self._imap, smtp_server = own.addr_spec, read_server("imap", imap), read_server("smtp", smtp)
        self._tls, self._folder = tls_context(ca_file), folder
        self._user, self._password = user or address, read_password(password, password_env)
        self._postman = Postman(own, smtp_server, self._tls, self._user, self._password, timeout=SEND_WITHIN)
        self._trusted = trust_authentication_results if verify == "required" else None
        self._session, self._first, self._poll = session, first, poll
        self._largest, self._rate = largest, rate
        self._most_saved = attachments
        self._clock: Clock = SystemClock()
        self._is_connected = False
        #: Numbers of mails that were not handed over, by reason.
        self._passed_over: Counter[str] = Counter()
        self._rates = SenderRates(rate, PassingRows())
        #: The UID of the last mail that failed, and the number of its failures.
        self._attempts = (0, 0)

    def snapshot(self) -> Mapping[str, Any]:
        """Return whether the mailbox is open, how many mails were passed over, and which senders are stopped."""
        return {"connected": self._is_connected, "passed_over": dict(self._passed_over),
                "stopped": list(self._rates.stopped)}  # fmt: skip

    # -- receiving

    async def receive(self, context: ChannelContext) -> None:
        """Take mails until cancelled. Raises: PermanentError where the server refuses the login; TransientError."""
        self._context, self._clock = context, context.clock
        self._threads = Threads(f"mail {context.name}", context.clock, limit=4)
        box = self._box = Mailbox(self._imap, self._tls, self._user, self._password, self._folder)
        self._rows: SensorRows = context.rows or PassingRows()
        self._rates = SenderRates(self._rate, self._rows)
        await self._rates.open()
        try:
            await self._threads.run(box.open)
            self._is_connected = True
            cursor = await self._begin()
            context.ready()
            pause = SHORTEST_WAIT
            while True:
                before, cursor = cursor, await self._take_new(cursor)
                pause = SHORTEST_WAIT if cursor != before else min(pause * 2, LONGEST_WAIT, self._poll)
                await self._wait(pause)
        finally:
            self._is_connected = False
            box.abort()

    async def _begin(self) -> Cursor:
        """Return the place to go on from. Where none is known, unseen mails are taken, too, if the settings say so."""
        context, box = self._context, self._box
        row = converted((await self._rows.list()).get(_CURSOR), Cursor)
        if row is not None and row.validity == box.validity:
            return row
        if row is not None:
            log.warning("folder was made anew", channel=context.name, folder=self._folder, next="unseen mails are read")
        takes_old, last = row is not None or self._first == "unseen", box.next_uid - 1
        cursor = Cursor(box.validity, 0 if takes_old else last, last)
        self._keep(cursor)
        return cursor

    async def _take_new(self, cursor: Cursor) -> Cursor:
        """Take the mails behind the cursor, and return the cursor behind them. Raises: TransientError."""
        uids = await self._threads.run(self._box.uids_from, cursor.uid + 1)
        if cursor.uid < cursor.old:
            unseen = set(await self._threads.run(self._box.unseen))
            uids = [uid for uid in uids if uid > cursor.old or uid in unseen]
        for uid in uids:
            next_cursor = replace(cursor, uid=uid)
            try:
                await self._take(uid)
            except TransientError as error:
                self._attempts = (uid, self._attempts[1] + 1 if self._attempts[0] == uid else 1)
                if self._attempts[1] < MOST_ATTEMPTS:
                    raise
                log.warning("mail left unread", channel=self._context.name, uid=uid, reason=str(error))
                self._passed_over["unreadable"] += 1
                self._keep(next_cursor)
                raise
            cursor = next_cursor
            self._keep(cursor)
        if cursor.uid < cursor.old:
            cursor = replace(cursor, uid=cursor.old)
            self._keep(cursor)
        return cursor

    def _keep(self, cursor: Cursor) -> None:
        self._rows.keep(_CURSOR, to_builtins(cursor))

    async def _wait(self, pause: float) -> None:
        """Wait for news of the server, or for the next look.

        A server announces a mail once, and an announcement within another answer is not noticed. So after a mail the
        next look comes soon, and no wait is long.
        """
        if self._box.can_wait:
            await self._threads.run(self._box.wait, pause)
        else:
            await self._context.clock.sleep(self._poll)
            await self._threads.run(self._box.touch)

    # -- one mail

    async def _take(self, uid: int) -> None:
        """Hand over one mail, or log the reason not to; it is marked as seen once it is on disk."""
        glance = await self._threads.run(self._box.look, uid)
        if glance is None:  # the mail was deleted
            return
        try:
            incoming = await self._incoming(glance)
        except _PassedOverError as error:
            self._pass_over(uid, *error.args)
            return
        accepted = await self._accept(incoming)
        crashpoint("mail.accepted")
        if accepted.status == "refused":
            self._pass_over(uid, "refused", accepted.reason, incoming.address)
        else:
            await self._threads.run(self._box.mark_seen, uid)

    async def _incoming(self, glance: Glance) -> Incoming:
        """Return the message to hand over for a mail. Raises: _PassedOverError for a mail that no person wrote, of a
        stopped sender, or that was deleted."""
        try:
            head = read_mail(glance.head)
        except UnreadableError as error:
            raise _PassedOverError("unreadable", str(error)) from None
        if reason := reason_not_to_plan(head, self._own):
            raise _PassedOverError(reason, "not written by a person", head.sender)
        if not head.sender:
            raise _PassedOverError("unreadable", "its From is not one plain address")
        forged = failure_of(head, self._trusted) if self._trusted is not None else ""
        base = Incoming(head.key, head.sender, "(not read)", is_verified=not forged, reply=reply_of(head))
        if forged:
            self._pass_over(glance.uid, "unverified", forged, head.sender)
        if forged or not self._context.hears(head.sender):
            return base
        verdict = self._rates.count(head.sender.lower(), head.key, self._clock.now())
        if verdict == "stopped":
            raise _PassedOverError("stopped", "its sender writes too often", head.sender)
        if verdict == "tell":
            return replace(base, refusal=f"You have sent me more than {self._rate} mails within an hour. I do not read "
                                         "yours now, and shall again once none has come for an hour.")  # fmt: skip
        if glance.size > self._largest:
            return replace(base, refusal=f"Your mail was not read: it has {size_text(glance.size)}, and I read mails "
                                         f"up to {size_text(self._largest)}.")  # fmt: skip
        return await self._read(glance, head, base)

    async def _read(self, glance: Glance, head: Mail, base: Incoming) -> Incoming:
        raw, home = await self._threads.run(self._box.read, glance.uid), self._context.home
        if raw is None:
            raise _PassedOverError("deleted", "it was deleted meanwhile", head.sender)
        original = f"imap://{self._imap.host}/{self._folder};UIDVALIDITY={self._box.validity}/;UID={glance.uid}"
        try:
            message = await self._threads.run(self._message, raw, home.workspace if home else "", base.id, original)
        except UnreadableError as error:
            return replace(base, refusal=f"Your mail was not read: {error}.")
        session = session_of(self._context.name, head, self._session)
        return replace(base, text=message.text, session=session, attributes=message.attributes)

    def _message(self, raw: bytes, workspace: str, key: str, original: str) -> MailText:
        """Read a mail and save its attachments. It runs in a thread."""
        mail = read_mail(raw)
        try:
            return message_of(
                mail, save(mail.attachments, workspace, key, self._most_saved if workspace else 0), original
            )
        except Exception as error:  # one mail must not block all later ones
            raise UnreadableError(f"it cannot be read: {type(error).__name__}") from error

    async def _accept(self, incoming: Incoming) -> Accepted:
        """Hand over a message; while it cannot be accepted, offer it again."""
        while True:
            try:
                return await self._context.accept(incoming)
            except (InboxFullError, TransientError, LifecycleError) as error:
                log.warning("mail offered again later", channel=self._context.name, reason=str(error))
                await self._clock.sleep(OFFER_AGAIN)

    def _pass_over(self, uid: int, kind: str, why: str, sender: str = "") -> None:
        """Count and log a mail that is not handed over."""
        self._passed_over[kind] += 1
        log.info("mail not planned", channel=self._context.name, uid=uid, kind=kind, reason=why, sender=sender)

    # -- sending

    async def send(self, message: Outgoing) -> str:
        """Send a mail. Raises: PermanentError when no server will ever accept it; TransientError."""
        await self._postman.send(message.address, message.text, id=message.id, at=self._clock.now(),
                                 reply=message.reply)  # fmt: skip
        return ""


#: Time in which mails are counted, and for which a stopped sender has to be quiet.
WINDOW: Final = timedelta(hours=1)
#: Bound of the senders whose mails are counted.
MOST_SENDERS: Final = 1000
_PREFIX: Final = "stop/"


class SenderRates:
    """Counts of the mails of each sender within an hour. Args: most: bound of a sender's mails; rows: where stops are
    stored."""

    def __init__(self, most: int, rows: SensorRows) -> None:
        self._most, self._rows = most, rows
        #: The mails of each sender: their ids, and when each came.
        self._mails: BoundedDict[str, deque[tuple[str, datetime]]] = BoundedDict(MOST_SENDERS)
        #: The stopped senders: until when, and the mail for which each is told of the stop.
        self._stops: dict[str, tuple[datetime, str]] = {}

    async def open(self) -> None:
        """Load the stops of an earlier process. Raises: the errors of the store."""
        rows = await self._rows.list()
        self._stops = {key.removeprefix(_PREFIX): (datetime.fromisoformat(value), "")
                       for key, value in rows.items() if key.startswith(_PREFIX)}  # fmt: skip

    @property
    def stopped(self) -> tuple[str, ...]:
        """Return the senders that are stopped now."""
        return tuple(self._stops)

    def count(self, sender: str, mail: str, now: datetime) -> Literal["heard", "tell", "stopped"]:
        """Count a mail; return whether it is heard, its sender is to be told of the stop, or is stopped already.

        A mail that is offered again counts once, and gets the same answer. Args: mail: its id.
        """
        self._forget(now)
        if (stop := self._stops.get(sender)) is not None:
            if stop[1] == mail:
                return "tell"
            self._stop(sender, stop[1], now)
            return "stopped"
        mails = self._mails.setdefault(sender, deque(maxlen=self._most))
        if any(known == mail for known, _ in mails):
            return "heard"
        if len(mails) == self._most and now - mails[0][1] < WINDOW:
            self._stop(sender, mail, now)
            return "tell"
        mails.append((mail, now))
        return "heard"

    def _stop(self, sender: str, told_of: str, now: datetime) -> None:
        self._stops[sender] = now + WINDOW, told_of
        self._mails.pop(sender, None)
        self._rows.keep(_PREFIX + sender, (now + WINDOW).isoformat())

    def _forget(self, now: datetime) -> None:
        for sender in [sender for sender, (until, _) in self._stops.items() if until <= now]:
            del self._stops[sender]
            self._rows.drop(_PREFIX + sender)
