"""The table `[senders]`: people who may talk with the agent on its channels, and strangers."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Le, Len

from spar.config.tables.fields import After, Positive, Whole
from spar.config.tables.section import Section, Text, refuse
from spar.records.senders import read_sender


def _judge(names: tuple[str, ...]) -> tuple[str, ...]:
    for index, name in enumerate(names):
        try:
            read_sender(name, may_be_pattern=True)
        except ValueError as error:
            refuse((index,), name, str(error))
    return names


class AllowedSenders(Section, frozen=True, kw_only=True):
    """Senders that are let in, one person or several."""

    senders: Annotated[tuple[Text, ...], Len(1), After(_judge)]
    """Each as `channel:address` (`mail:alice@example.org`); `mail:*@example.org` is everybody of a domain, `mail:*`
    everybody on a channel."""
    person: str = ""
    """The name of the person; left out: nobody in particular."""
    trust: Literal["trusted", "untrusted"] = "trusted"
    """"trusted": their text may steer the agent, and their commands count; "untrusted": they are answered, but a call
    that follows from what they say needs approval."""

    def __post_init__(self) -> None:
        everybody = [name for name in self.senders if name.strip().endswith(":*")]
        if self.trust == "trusted" and everybody:
            refuse(("trust",), self.trust, f"must be 'untrusted': {everybody[0]} is everybody on that channel")


class SenderSettings(Section, frozen=True, kw_only=True):
    """People who may talk with the agent on its channels; nobody else is listened to."""

    unknown: Literal["pair", "ignore"] = "pair"
    """An unknown sender is told a code that its owner gives to the service (`spar senders pair`), or nothing at all.
    Its messages are neither planned nor kept, only counted."""
    expires: Annotated[Positive, Le(30 * 86_400)] = 86_400.0
    """Seconds for which a code is good; a sender is told one at most once a day."""
    limit: Annotated[Whole, Ge(1), Le(10_000)] = 100
    """Unknown senders that are listed at once; of more, those whose codes have expired go, and else nobody is added."""
    allow: tuple[AllowedSenders, ...] = ()
    """Senders that are let in; the most exact name of a sender counts."""
    deny: Annotated[tuple[Text, ...], After(_judge)] = ()
    """Senders that are never let in, written as under `allow`."""
