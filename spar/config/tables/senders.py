"""Table `[senders]`: people who may talk with the agent on its channels, and unknown senders."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Le, Len

from spar.config.tables.section import After, Positive, Section, Text, Whole, refuse
from spar.records.senders import read_sender


def _check_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for index, name in enumerate(names):
        try:
            read_sender(name, may_be_pattern=True)
        except ValueError as error:
            refuse((index,), name, str(error))
    return names


class AllowedSenders(Section, frozen=True, kw_only=True):
    """Allowed senders, of one person or of several."""

    senders: Annotated[tuple[Text, ...], Len(1), After(_check_names)]
    """Each as `channel:address` (`mail:alice@example.org`); `mail:*@example.org` is everybody of a domain, `mail:*`
    everybody on a channel."""
    person: str = ""
    """The name of the person; left out: no particular person."""
    trust: Literal["trusted", "untrusted"] = "trusted"
    """"trusted": their text may steer the agent, and their commands count; "untrusted": they are answered, but a call
    that follows from their text needs approval."""

    def __post_init__(self) -> None:
        everybody = [name for name in self.senders if name.strip().endswith(":*")]
        if self.trust == "trusted" and everybody:
            refuse(("trust",), self.trust, f"must be 'untrusted': {everybody[0]} is everybody on that channel")


class SenderSettings(Section, frozen=True, kw_only=True):
    """People who may talk with the agent on its channels; messages of other senders are not heard."""

    unknown: Literal["pair", "ignore"] = "pair"
    """"pair": an unknown sender is sent a code, which the owner gives to the service (`spar senders pair`). "ignore":
    it is sent nothing. Its messages are only counted, neither planned nor stored."""
    expires: Annotated[Positive, Le(30 * 86_400)] = 86_400.0
    """Seconds for which a code is valid; a sender is sent one at most once a day."""
    limit: Annotated[Whole, Ge(1), Le(10_000)] = 100
    """Most unknown senders in the list; further ones replace those whose codes have expired, and else are not added."""
    allow: tuple[AllowedSenders, ...] = ()
    """Allowed senders; the most exact name of a sender counts."""
    deny: Annotated[tuple[Text, ...], After(_check_names)] = ()
    """Senders that are never allowed, written as under `allow`."""
