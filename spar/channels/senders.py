"""Table of senders: the senders met on channels, and the decisions of people about them.

Only people admit a sender: by the configuration, by name, or by the pairing code that the sender got. The messages of
an unknown sender are not stored. It gets a code at most once a day, and only a bounded number of unknown senders wait:
nobody can make the agent send mail, or fill its disk, by inventing senders. A sender whose address was not proven gets
no answer.

The sender gives its code to the owner, and the owner enters it. So the owner knows that the person with the code reads
the messages to that address. Only a digest is stored: somebody who reads the database, a log or a backup cannot pair a
sender.

The configuration names senders exactly, by the domain of their address or by their channel. The most exact name
counts, and of two equally exact ones the denial. A person's decision about one sender (its row) goes before exact
names that are allowed, and after those that are denied.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec

from spar.attaching import Attaching
from spar.decoding import convert
from spar.errors import ConflictError, TransientError
from spar.events import SenderDecided, SenderMet
from spar.loop.core import Core
from spar.ports.any_part import offers
from spar.ports.rows import InMemory
from spar.protocols import Records
from spar.records.senders import (
    CHANNELS,
    KIND,
    Admission,
    SenderRow,
    SenderRules,
    SenderStatus,
    patterns_of,
    read_sender,
    rules_of,
    sender_of,
)  # fmt: skip
from spar.types import Trust, replace

if TYPE_CHECKING:
    from spar.config.tables.agent import SenderSettings

#: Least time between two answers to a sender that is not admitted.
ANSWER_EVERY: Final = timedelta(days=1)
#: Wrong codes within `TRIES_WITHIN` after which no code is accepted for a while.
MOST_TRIES, TRIES_WITHIN = 10, timedelta(minutes=10)
#: Bound of the senders that people have decided about.
MOST_DECIDED: Final = 10_000
#: Letters of a code, which do not look or sound alike; 8 of them are 40 bits.
ALPHABET: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
CODE_LENGTH: Final = 8
#: Characters of a person's name.
LONGEST_PERSON: Final = 200


class Senders:
    """Senders of one agent. `refused` counts messages that were not accepted, by channel and reason."""

    def __init__(self, core: Core, memory: Any) -> None:
        self.core, self._store = core, memory if offers(memory, Records) else InMemory()
        self._lock = asyncio.Lock()
        self._rows: dict[str, SenderRow] = {}
        #: Names of the waiting senders, which are few compared with the decided ones.
        self._waiting: set[str] = set()
        self._tries: list[datetime] = []
        self._settings: SenderSettings | None = None
        self._rules = SenderRules()
        self.refused: Counter[tuple[str, str]] = Counter()

    async def open(self) -> None:
        """Read the stored rows, and decide for other nodes. Raises: the errors of the store."""
        if self.core.shared is not None:
            self.core.shared.on_request(KIND, self.do)
        await self.read()

    async def read(self) -> None:
        """Read the stored rows, which another node may have changed. Raises: the errors of the store."""
        async with self._lock:
            rows = [convert(record.value, SenderRow) for record in await self._store.records(KIND)]
            self._rows = {row.id: row for row in rows if row.agent == self.core.name}
            self._waiting = {row.id for row in self._rows.values() if row.status == "waiting"}

    @property
    def waiting(self) -> int:
        """Return how many unknown senders wait for a person's decision; of several nodes the one with the channels
        knows."""
        return len(self._waiting) if self.core.has(CHANNELS) else 0

    # -- for channels

    async def meet(self, channel: str, address: str, *, is_verified: bool = True) -> Admission:
        """Return the verdict on the sender of a message; the message of one that is not admitted is counted.

        Args: is_verified: whether the channel knows that the address is the sender's own.

        Raises: TransientError when the row cannot be stored now.
        """
        async with self._lock:
            if is_verified:
                admission = judge(channel, address, self._known_rules(), self._rows)
            else:
                admission = Admission(f"{channel}:", "unverified")
            if admission.is_allowed:
                return admission
            self.refused[channel, admission.verdict] += 1
            return admission if admission.verdict == "unverified" else await self._count(admission)

    def knows(self, channel: str, address: str) -> bool:
        """Return whether a sender would be admitted now; nothing is counted."""
        return judge(channel, address, self._known_rules(), self._rows).is_allowed

    async def _count(self, admission: Admission) -> Admission:
        """Count a message of a sender that is not admitted, and return the verdict with the answer."""
        now, row = self.core.clock.now(), self._rows.get(admission.sender)
        if row is None and (admission.verdict == "denied" or not await self._has_room(now)):
            return admission
        if row is None:
            row = SenderRow(admission.sender, self.core.name, first_at=now)
        row, answer = replace(row, messages=row.messages + 1, last_at=now), ""
        is_due = row.answered_at is None or now - row.answered_at >= ANSWER_EVERY
        if admission.verdict == "unknown" and self._terms.unknown == "pair" and is_due:
            code, salt, expires = new_code(), secrets.token_hex(16), timedelta(seconds=self._terms.expires)
            row = replace(row, salt=salt, digest=digest_of(code, salt), answered_at=now, expires_at=now + expires)
            answer = _code_text(code, self._terms.expires)
        await self._keep(row)  # before the answer: after a crash in between, the answer is lost, not sent twice
        self.core.events.publish(SenderMet(sender=row.id, verdict=admission.verdict, messages=row.messages))
        return replace(admission, answer=answer)

    async def _has_room(self, now: datetime) -> bool:
        """Return whether one more sender may wait; to make room, the oldest one with an expired code is dropped."""
        if len(self._waiting) < self._terms.limit:
            return True
        expired = [row for row in self._unanswered() if row.last_at is None or now - row.last_at >= ANSWER_EVERY]
        expired = [row for row in expired if row.expires_at is None or row.expires_at <= now]
        if not expired:
            return False
        await self._drop(min(expired, key=lambda row: row.last_at or now).id)
        return True

    def _unanswered(self) -> Iterator[SenderRow]:
        return (self._rows[name] for name in self._waiting)

    # -- for people

    async def pair(self, code: str, *, person: str = "", trust: Trust = "trusted", by: str = "") -> SenderRow:
        """Admit the sender that got this code; a code is valid once.

        Raises: LookupError when no valid code is this one; TransientError after too many wrong ones.
        """
        async with self._lock:  # the lock also makes the count right for concurrent tries
            now = self.core.clock.now()
            self._tries = [at for at in self._tries if now - at < TRIES_WITHIN]
            if len(self._tries) >= MOST_TRIES:
                wait = (self._tries[0] + TRIES_WITHIN - now).total_seconds()
                raise TransientError(f"{MOST_TRIES} wrong codes were tried; try again later", retry_after=wait)
            same = [row for row in self._unanswered() if row.digest and is_same(row.digest, code, row.salt)]
            good = [row for row in same if row.expires_at is not None and now < row.expires_at]
            if not good:
                self._tries.append(now)
                why = "that code has expired; its sender is told another when it writes again" if same else (
                    "no sender was told that code; spar senders list")  # fmt: skip
                raise LookupError(why)
            return await self._decide(good[0].id, "allowed", person, trust, by)

    async def allow(self, sender: str, *, person: str = "", trust: Trust = "trusted", by: str = "") -> SenderRow:
        """Admit a sender. Raises: ValueError for an invalid name; ConflictError for a sender that the settings deny."""
        name = read_sender(sender)
        async with self._lock:
            return await self._decide(name, "allowed", person, trust, by)

    async def deny(self, sender: str, *, by: str = "") -> SenderRow:
        """Deny a sender: it is never heard nor answered. Raises: ValueError."""
        name = read_sender(sender)
        async with self._lock:
            row = self._rows.get(name)
            return await self._decide(name, "denied", row.person if row is not None else "", "untrusted", by)

    async def forget(self, sender: str) -> SenderRow:
        """Forget the decision: the sender is unknown again, unless the settings name it. Raises: LookupError."""
        name = read_sender(sender)
        async with self._lock:
            if (row := self._rows.get(name)) is None:
                raise LookupError(f"no sender {name!r} was met or decided about; spar senders list")
            await self._drop(name)
            return row

    async def ask(self, work: str, **given: Any) -> SenderRow:
        """Have the node with the channels make a decision (`do`). Raises: as its method; SparError if no node does."""
        owner = self.core.owner_of(CHANNELS)
        if owner is None:
            return await self.do(work, **given)
        return convert(await owner.ask(CHANNELS, KIND, work=work, **given), SenderRow)

    async def do(self, work: str, **given: Any) -> SenderRow:
        """Make a decision about a sender on this node: `pair allow deny forget`. Raises: as `ask`."""
        await self._refresh()
        works: dict[str, Callable[..., Awaitable[SenderRow]]] = {
            "pair": self.pair, "allow": self.allow, "deny": self.deny, "forget": self.forget,
        }  # fmt: skip
        return await works[work](**given)

    async def rows(self) -> Collection[SenderRow]:
        """Return the senders that were met or decided about, after decisions of other nodes. Raises: the errors of the
        store."""
        await self._refresh()
        return self._rows.values()

    async def _refresh(self) -> None:
        if self.core.shared is not None:  # another node may have decided
            await self.read()

    async def _decide(self, name: str, status: SenderStatus, person: str, trust: Trust, by: str) -> SenderRow:
        if len(person) > LONGEST_PERSON:
            raise ValueError(f"a person's name has at most {LONGEST_PERSON} characters, found {len(person)}")
        if status == "allowed" and name in self._known_rules().deny:
            raise ConflictError(f"{name} is denied by the configuration (senders.deny); take it out there")
        if name not in self._rows and len(self._rows) - len(self._waiting) >= MOST_DECIDED:
            raise ConflictError(f"{MOST_DECIDED} senders have been decided about; forget some, or use senders.allow")
        now = self.core.clock.now()
        row = self._rows.get(name) or SenderRow(name, self.core.name, first_at=now)
        row = replace(row, status=status, person=person, trust=trust, by=by, decided_at=now, salt="", digest="",
                      expires_at=None)  # fmt: skip
        await self._keep(row)
        self.core.events.publish(SenderDecided(sender=name, status=status, person=person, trust=trust, by=by))
        return row

    # -- rows and rules

    @property
    def _terms(self) -> SenderSettings:
        return self.core.settings.senders

    def _known_rules(self) -> SenderRules:
        """Return the rules of the present settings; they are read again when the settings have changed."""
        if self._settings is not self._terms:
            self._settings, self._rules = self._terms, rules_of(self._terms)
        return self._rules

    async def _keep(self, row: SenderRow) -> None:
        await self._store.keep(KIND, self._id(row.id), msgspec.to_builtins(row))
        self._rows[row.id] = row
        (self._waiting.add if row.status == "waiting" else self._waiting.discard)(row.id)

    async def _drop(self, name: str) -> None:
        await self._store.drop(KIND, self._id(name))
        self._rows.pop(name, None)
        self._waiting.discard(name)

    def _id(self, name: str) -> str:
        return f"{self.core.name}/{name}"


def attach(agent: Attaching) -> Senders:
    """Attach the senders to an agent."""
    senders = Senders(agent.core, agent.services.memory)
    agent.open(senders.open)
    return senders


def _code_text(code: str, seconds: float) -> str:
    hours = max(round(seconds / 3600), 1)
    return (
        "I do not know you yet, so I have not read your message. To be let in, give this code to the person who runs "
        f"me: {code}. It is good for {hours} {'hour' if hours == 1 else 'hours'}. Then write again."
    )


def new_code() -> str:
    """Return a random code: `K7QF-2M9X`."""
    letters = "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))
    return f"{letters[:4]}-{letters[4:]}"


def digest_of(code: str, salt: str) -> str:
    """Return the digest of a code for the store; case, spaces and dashes make no difference."""
    letters = "".join(letter for letter in code.upper() if letter in ALPHABET)
    return hmac.new(salt.encode(), letters.encode(), sha256).hexdigest()


def is_same(digest: str, code: str, salt: str) -> bool:
    """Return whether a code has this digest, in a time that reveals nothing about either."""
    return hmac.compare_digest(digest, digest_of(code, salt))


def judge(channel: str, address: str, rules: SenderRules, rows: Mapping[str, SenderRow]) -> Admission:
    """Return the verdict on a sender whose address is known to be its own; "unverified" for one that nobody could
    name. Args: rows: by sender."""
    try:
        sender = sender_of(channel, address)
    except ValueError:
        return Admission(f"{channel}:", "unverified")
    row = rows.get(sender)
    for name in patterns_of(sender):
        if name in rules.deny:
            return Admission(sender, "denied")
        if name == sender and row is not None and row.status == "denied":
            return Admission(sender, "denied", row.person)
        if name == sender and row is not None and row.status == "allowed":
            return Admission(sender, "allowed", row.person, row.trust)
        if (allowed := rules.allow.get(name)) is not None:
            return Admission(sender, "allowed", allowed.person, allowed.trust)
    return Admission(sender, "unknown")
