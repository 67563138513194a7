"""Faults of a provider: exceptions of the library and bad ends of an answer become a `ProviderError`.

Each has one of a fixed set of kinds (`FaultKind`), by which callers decide what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from planning.llm.provider.settings import ModelOptions
from planning.resilience.provider_errors import (
    FaultKind,
    ProviderError,
    clamp_wait,
    kind_of,
    kind_of_class,
    provider_error,
    read_wait,
)
from planning.resilience.timeouts import Watch
from spar.clock import Clock

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse

#: Kinds of a failed connection before the answer has begun, and the kind that each becomes afterwards.
_AMID: Final[Mapping[FaultKind | None, FaultKind]] = {"unreachable": "truncated", "silent": "idle"}


class ProviderFaults:
    """Maker of the errors of one model, which name the model and never hold its key.

    The key, `secret`, is "" until the model is open.

    Args: options: with the limits in seconds of the waits for an answer (`Watch`), for error messages.
    """

    def __init__(self, model: str, clock: Clock, options: ModelOptions) -> None:
        self._model, self._clock, self._options = model, clock, options
        self.secret = ""

    def of_ending(self, response: ModelResponse) -> ProviderError | None:
        """Return the error if the answer ended badly, else None."""
        details = response.provider_details or {}
        match response.finish_reason:
            case "content_filter":
                return self.error_of("refused", str(details.get("refusal", "")))
            case "length":
                return self.error_of("length", "")
            case "error":
                return self.error_of("server", str(details.get("finish_reason", "")))
        if response.state != "complete":
            return self.error_of("truncated", "")
        return None

    def of_exception(self, error: Exception, watch: Watch) -> ProviderError:
        """Return the `ProviderError` for an exception that was raised while the answer was read."""
        from pydantic_ai import exceptions

        if watch.is_over:
            if watch.is_too_long:
                return self.error_of("endless", f"not over after {self._options.longest:g} s")
            if watch.has_begun:
                return self.error_of("idle", f"nothing for {self._options.idle:g} s")
            return self.error_of("silent", f"nothing for {self._options.first_byte:g} s")
        known = kind_of_class(error)
        if watch.has_begun:
            known = _AMID.get(known, known)
        if not isinstance(error, exceptions.ModelAPIError):
            # The library could not read what the provider sent: an unexpected shape, not JSON, not UTF-8.
            return self.error_of(known or "garbage", str(error) or type(error).__name__)
        status = getattr(error, "status_code", None)
        headers = getattr(error, "headers", None) or {}
        words = (error.provider_error_code, error.provider_error_type, error.body or error.message)
        text = " ".join(str(word) for word in words if word)
        if known is None and status is None and not error.in_stream:
            known = "truncated" if "finish_reason" in error.message else "garbage"
        wait = read_wait(headers, self._clock.now())
        if wait is None and error.retry_after is not None and not headers:
            wait = clamp_wait(error.retry_after)
        return self.error_of(kind_of(status, text, known), _message(error), retry_after=wait, status=status)

    def error_of(
        self, kind: FaultKind, detail: str, *, retry_after: float | None = None, status: int | None = None
    ) -> ProviderError:
        """Return an error of this kind, without the key of the model."""
        return provider_error(kind, self._model, self._safe(detail), retry_after=retry_after, status=status)

    def _safe(self, text: str) -> str:
        return text.replace(self.secret, "…") if self.secret else text


def _message(error: Any) -> str:
    """Return the provider's error message from the body of its answer."""
    body = error.body
    while isinstance(body, Mapping):
        body = body.get("error") or body.get("message") or body.get("detail")
    return body if isinstance(body, str) else str(error.message or "")
