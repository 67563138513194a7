"""Messages that channels hand over: their validity and their session; pure."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from spar.ports.channel import LONGEST_ADDRESS, LONGEST_ID, LONGEST_TEXT, ChannelSpec, Incoming

#: Characters of a session's name.
LONGEST_SESSION: Final = 256
#: Bytes of the data that a message gets back with its answer.
LARGEST_REPLY: Final = 16_384


def session_of(spec: ChannelSpec, message: Incoming) -> str:
    """Return the session of a message: the channel's, its own, or one for each address."""
    session = spec.session or message.session or f"{spec.name}:{message.address}"
    return session if len(session) <= LONGEST_SESSION else f"{session[:200]}…{short_digest(session)}"


def short_digest(text: str) -> str:
    """Return a short name for a text of any length."""
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


def check_message(message: Incoming) -> None:
    """Check that a channel may hand over a message. Raises: ValueError."""
    if not isinstance(message, Incoming):
        raise ValueError(f"a channel must hand over an Incoming, found {message!r:.100}")
    for name, value, most in (("id", message.id, LONGEST_ID), ("address", message.address, LONGEST_ADDRESS)):
        if not isinstance(value, str) or not 0 < len(value) <= most:
            raise ValueError(f"the {name} of a message has 1 to {most} characters, found {value!r:.60}")
    if len(message.text) > LONGEST_TEXT:
        raise ValueError(f"a message has at most {LONGEST_TEXT} characters, found {len(message.text)}")
    if len(msgspec.json.encode((message.reply, message.attributes))) > LARGEST_REPLY:
        raise ValueError(f"reply and attributes of a message take at most {LARGEST_REPLY} bytes")
