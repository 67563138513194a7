"""Failed guesses of tokens: how many a peer may make before its further ones are refused for a while.

Only requests with an unknown token count. A valid token is accepted whatever its peer did before, so that one program
behind a proxy locks out no other one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Unknown tokens of one peer within so many seconds; further ones are answered 429.
MOST_GUESSES: Final = 10
GUESSES_WITHIN: Final = 60.0
#: Peers whose guesses are counted; the one that began first is forgotten.
MOST_PEERS: Final = 1_000


class Guesses:
    """The guesses of each peer; `len` is the number of peers. Args: monotonic: the clock, in seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        #: When the first of them was made, and their number, by the address of the peer; the oldest first.
        self._by_peer: dict[str, tuple[float, int]] = {}

    def __len__(self) -> int:
        return len(self._by_peer)

    def wait(self, peer: str) -> float:
        """Count a guess of a peer; return the seconds until it may guess again, 0 if it may now."""
        now = self._monotonic()
        began, number = self._by_peer.get(peer, (now, 0))
        if now - began >= GUESSES_WITHIN:
            del self._by_peer[peer]
            began, number = now, 0
        if number >= MOST_GUESSES:
            return began + GUESSES_WITHIN - now
        self._by_peer[peer] = began, number + 1
        if len(self._by_peer) > MOST_PEERS:
            del self._by_peer[next(iter(self._by_peer))]
        return 0.0
