"""Port of a webhook: what others post to the service over HTTP, and how it becomes perceptions.

The core has the route: it bounds the body and the number of simultaneous requests, answers, and reveals nothing about
the inside. The receiver, which knows no HTTP server, decides who may post and what a body means. `admit` and `read` are
called in a thread of the server, `take` in the event loop of the agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from spar.types import Perception


class WebhookRequest(Struct, frozen=True):
    """Request to a webhook. Names of headers are lower case."""

    headers: Mapping[str, str]
    body: bytes


class WebhookRefusal(Exception):
    """Answer to a request that is refused.

    Args: status: HTTP status; detail: a sentence that a stranger may read; outcome: one word under which it is counted.
    """

    def __init__(self, status: int, detail: str, outcome: str) -> None:
        super().__init__(detail)
        self.status, self.detail, self.outcome = status, detail, outcome


class Taken(Struct, frozen=True):
    """Numbers of an accepted request: new perceptions, and those that had been accepted before."""

    accepted: int = 0
    known: int = 0


class Webhook(Protocol):
    """Sensor that others post to."""

    @property
    def has_secret(self) -> bool:
        """Return whether a sender must prove its identity."""

    @property
    def max_bytes(self) -> int:
        """Return the most bytes that a body may have."""

    def admit(self, headers: Mapping[str, str], /) -> None:
        """Check a request by its headers, before its body is read. Raises: WebhookRefusal."""

    def read(self, request: WebhookRequest, /) -> Sequence[Perception]:
        """Return the perceptions of a request. Raises: WebhookRefusal for one that is not signed or makes no sense."""

    async def take(self, perceptions: Sequence[Perception], /) -> Taken:
        """Accept perceptions durably.

        Raises: what `SensorContext.accept` raises; perceptions accepted before the error stay accepted.
        """

    def count(self, outcome: str, /) -> None:
        """Count the outcome of a request."""

    @property
    def requests(self) -> Mapping[str, int]:
        """Return the number of requests by outcome."""


class HasWebhooks(Protocol):
    """Sense module with sensors that others post to."""

    def webhook(self, name: str, /) -> Webhook | None:
        """Return the webhook sensor of this name, None if there is none. From any thread.

        Raises: NotReadyError while the module is not open.
        """
