"""The port of a webhook: what others post to the service over HTTP, and how that becomes perceptions.

The route is the core's: it bounds the body and the number of requests at once, answers, and says nothing of what goes
on inside. Who may post, and what a body means, is the receiver's, which knows no HTTP server. `admit` and `read` are
called in a thread of the server, `take` in the event loop of the agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from spar.types import Perception


class WebhookRequest(Struct, frozen=True):
    """A request to a webhook. Names of headers are lower case."""

    headers: Mapping[str, str]
    body: bytes


class WebhookRefusal(Exception):
    """An answer to a request that is not taken.

    Args: status: of HTTP; detail: a sentence that a stranger may read; outcome: how it is counted, one word.
    """

    def __init__(self, status: int, detail: str, outcome: str) -> None:
        super().__init__(detail)
        self.status, self.detail, self.outcome = status, detail, outcome


class Taken(Struct, frozen=True):
    """Numbers of a request that was taken: perceptions that are new, and those that had been accepted before."""

    accepted: int = 0
    known: int = 0


@runtime_checkable
class Webhook(Protocol):
    """A sensor that is posted to."""

    @property
    def has_secret(self) -> bool:
        """Return whether a sender must prove who it is."""
        ...

    @property
    def max_bytes(self) -> int:
        """Return how many bytes a body may have."""
        ...

    def admit(self, headers: Mapping[str, str], /) -> None:
        """Judge a request by its head, before its body is read. Raises: WebhookRefusal."""

    def read(self, request: WebhookRequest, /) -> Sequence[Perception]:
        """Return what a request says. Raises: WebhookRefusal for one that is not signed or makes no sense."""
        ...

    async def take(self, perceptions: Sequence[Perception], /) -> Taken:
        """Accept them durably. Raises: what `SensorContext.accept` raises; what was accepted until then stays so."""
        ...

    def count(self, outcome: str, /) -> None:
        """Count how a request ended."""

    @property
    def requests(self) -> Mapping[str, int]:
        """Return how many requests ended how."""
        ...


@runtime_checkable
class HasWebhooks(Protocol):
    """A sense module whose sensors are posted to."""

    def webhook(self, name: str, /) -> Webhook | None:
        """Return the sensor of this name that is posted to, None if there is none. From any thread.

        Raises: NotReadyError while it is not open.
        """
        ...
