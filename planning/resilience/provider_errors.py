"""Errors of providers: a closed table of their kinds, and the rules that find the kind of an error. Pure.

Providers report the same error in many ways, and some errors not at all. Here each error becomes a `ProviderError` of
one kind. The table has the treatment of each kind: ask the same model again, ask another one, let the provider rest.
`planning.resilience.failover` carries it out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal, NamedTuple, get_args

from spar.data.text import safe_line
from spar.errors import ConfigError, PermanentError, SparError, TransientError
from spar.ports.budgets import BudgetError

FaultKind = Literal[
    "rate_limited", "overloaded", "server", "unreachable", "silent", "idle", "endless", "truncated", "garbage",
    "length", "refused", "overflow", "auth", "billing", "not_found", "bad_request",
]  # fmt: skip


class Treatment(NamedTuple):
    """Meaning and treatment of a kind of error.

    `again`: the same model may be asked once more at once; `other`: another model may answer the same request.
    `opens`: the number of faults in a row after which the model's breaker opens, 0 if the fault is not the provider's;
    `rest`: the seconds that it stays open (None: the steps of the breaker); `everywhere`: the fault holds for all
    models of the provider. `is_free`: the provider did not accept the request, so nothing of it is spent.
    """

    says: str
    is_transient: bool = True
    again: bool = False
    other: bool = True
    opens: int = 1
    rest: float | None = None
    everywhere: bool = False
    is_free: bool = False


#: Seconds of rest after a refused key or an account without money: people have to do something.
_LONG: Final = 1_800.0

TREATMENTS: Final[Mapping[FaultKind, Treatment]] = {
    "rate_limited": Treatment("takes no more requests for now", is_free=True),
    "overloaded": Treatment("is overloaded", is_free=True),
    "server": Treatment("failed on its side", opens=3),
    "unreachable": Treatment("cannot be reached", again=True, opens=2, everywhere=True, is_free=True),
    "silent": Treatment("did not begin to answer", opens=2),
    "idle": Treatment("stopped in the middle of its answer", opens=3),
    "endless": Treatment("answered more than is taken", opens=3),
    "truncated": Treatment("broke off before its answer was complete", again=True, opens=3),
    "garbage": Treatment("answered what cannot be read", opens=3),
    # The same request would fail in the same way with any model: a new request has to be composed.
    "length": Treatment("had more to say than max_tokens allows", is_transient=False, other=False, opens=0),
    "refused": Treatment("declines this request", is_transient=False, other=False, opens=0),
    "overflow": Treatment("cannot read that much", is_transient=False, other=False, opens=0, is_free=True),
    "bad_request": Treatment("does not take this request", is_transient=False, other=False, opens=0, is_free=True),
    "auth": Treatment("does not accept the key", is_transient=False, rest=_LONG, everywhere=True, is_free=True),
    "billing": Treatment("wants to be paid first", is_transient=False, rest=_LONG, everywhere=True, is_free=True),
    "not_found": Treatment("does not exist there", is_transient=False, rest=_LONG, is_free=True),
}
KINDS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)

#: Bounds of the wait that a provider may ask for, in seconds: a shorter one floods it, a longer one is not believed.
SHORTEST, LONGEST = 1.0, 3_600.0


class ProviderError(SparError):
    """A model did not answer as it should. It is also a `TransientError` or a `PermanentError`, by its kind.

    Args: kind: its kind in the table; model: the model's name; detail: the provider's message; retry_after: the wait
        that the provider asked for, in seconds; status: the HTTP status; None if there was none.
    """

    retry_after: float | None = None

    def __init__(
        self,
        kind: FaultKind,
        model: str,
        detail: str = "",
        *,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        status_text = f" ({status})" if status is not None else ""
        detail_text = f": {safe_line(detail, 300)}" if detail else ""
        super().__init__(f"{model} {TREATMENTS[kind].says}{status_text}{detail_text}")
        self.kind, self.model, self.status = kind, model, status
        self.retry_after = retry_after

    @property
    def treatment(self) -> Treatment:
        """Return the treatment of this kind of error."""
        return TREATMENTS[self.kind]


class TransientProviderError(ProviderError, TransientError):
    """Error of a provider that the same request may not meet later."""


class PermanentProviderError(ProviderError, PermanentError):
    """Error of a provider that the same request will meet again."""


class UnsentError(PermanentError):
    """Error of a request that was not sent, because the budgets will never allow it."""


def provider_error(
    kind: FaultKind, model: str, detail: str = "", *, retry_after: float | None = None, status: int | None = None
) -> ProviderError:
    """Return an error of this kind, as a transient or a permanent one."""
    error_class = TransientProviderError if TREATMENTS[kind].is_transient else PermanentProviderError
    return error_class(kind, model, detail, retry_after=retry_after, status=status)


def is_free(error: BaseException) -> bool:
    """Return whether a request that ended with this error, before any piece of an answer, has spent nothing.

    So it is with errors of a kind that `TREATMENTS` calls free, with requests that were not sent, and with errors
    without a kind that say when to ask again.
    """
    attempts = getattr(error, "attempts", None)  # of several models, none of which answered
    if isinstance(attempts, tuple):
        return all(attempt.kind not in TREATMENTS or TREATMENTS[attempt.kind].is_free for attempt in attempts)
    kind: Any = getattr(error, "kind", None)
    if kind in TREATMENTS:
        return TREATMENTS[kind].is_free
    return isinstance(error, (BudgetError, ConfigError, UnsentError)) or getattr(error, "retry_after", None) is not None


# -- finding the kind of an error


#: Patterns for the text, in lower case, of errors whose status does not say the kind. The first match counts.
_WORDS: Final[Mapping[FaultKind, tuple[str, ...]]] = {
    "overflow": (
        r"context[_ -]?length", r"context[_ -]window", r"maximum context", r"context size", r"exceeds? the context",
        r"prompt is too long", r"prompt too long", r"input is too long", r"input too long",
        r"too many input tokens",
        r"input token count", r"input tokens exceed", r"maximum number of tokens allowed", r"reduce the length of",
        r"request too large", r"request_too_large", r"exceed_context_size", r"max_prompt_tokens",
        r"longer than the model", r"too many tokens", r"maximum prompt length", r"exceeds the available context",
    ),
    "billing": (
        r"insufficient_quota", r"insufficient (?:balance|credit|funds|quota)", r"credit balance", r"out of credits",
        r"billing_hard_limit", r"payment required", r"spend(?:ing)?[_ ]limit", r"account is not active",
        r"billing_not_active", r"arrearage",
    ),
    "refused": (
        r"content[_ ]filter", r"content[_ ]policy", r"content management policy", r"flagged", r"safety system",
        r"responsibleai", r"blocked by", r"prohibited_content",
    ),
    "not_found": (
        r"model_not_found", r"no such model", r"model .{0,200}(?:does not exist|not found)", r"unknown model",
    ),
    "auth": (r"invalid[_ ]api[_ ]key", r"incorrect api key", r"api key not valid", r"authentication_error"),
    "overloaded": (r"overloaded", r"over capacity", r"at capacity", r"no available capacity"),
    "rate_limited": (r"rate[_ ]limit", r"too many requests", r"throttl"),
}  # fmt: skip
_WORDINGS: Final = tuple((kind, re.compile("|".join(words))) for kind, words in _WORDS.items())

_STATUSES: Final[Mapping[int, FaultKind]] = {
    401: "auth", 402: "billing", 403: "auth", 404: "not_found", 408: "silent", 409: "overloaded", 413: "overflow",
    425: "overloaded", 429: "rate_limited", 503: "overloaded", 504: "silent", 524: "silent", 529: "overloaded",
}  # fmt: skip
#: Statuses that say the kind for sure, whatever the text is. An overflow may come with any other status.
_CERTAIN: Final = frozenset({401, 402})


def kind_of(status: int | None, text: str, known: FaultKind | None = None) -> FaultKind:
    """Return the kind of an error that a provider has reported.

    Args: status: the HTTP status, None inside a stream that had begun; text: the provider's code, type and message;
        known: the kind that the client library reported. It counts unless the text says that the request is too long.
    """
    if status in _CERTAIN:
        return _STATUSES[status or 0]
    lower_text = text[:4_000].lower()
    worded = next((kind for kind, pattern in _WORDINGS if pattern.search(lower_text)), None)
    if worded == "overflow" or (worded is not None and known in (None, "bad_request") and status != 429):
        return worded
    if status == 429 and worded == "billing":  # other patterns in such a text are about the rate of requests
        return worded
    if known is not None:
        return known
    if status is None:
        return "server"
    return _STATUSES.get(status) or ("server" if status >= 500 else "bad_request")


#: By name of class, since this module imports no client library: pydantic-ai's categories, and errors of lower layers
#: that adapters let through.
_CLASSES: Final[Mapping[str, FaultKind]] = {
    "ModelRateLimitError": "rate_limited",
    "ModelQuotaExceededError": "billing",
    "ModelOverloadedError": "overloaded",
    "ModelUnavailableError": "overloaded",
    "ModelServerError": "server",
    "ModelTimeoutError": "silent",
    "ModelConnectionError": "unreachable",
    "ModelContextWindowExceededError": "overflow",
    "ModelAuthenticationError": "auth",
    "ModelNotFoundError": "not_found",
    "ModelRequestRejectedError": "bad_request",
    "ModelRequestTimeout": "silent",
    "ContentFilterError": "refused",
    "UserError": "bad_request",
    "TimeoutException": "silent",
    "TransportError": "unreachable",
    "TimeoutError": "silent",
    "OSError": "unreachable",
}


def kind_of_class(error: BaseException) -> FaultKind | None:
    """Return the kind of an exception by its class or the nearest base class in the table; None if none is there."""
    return next((_CLASSES[cls.__name__] for cls in type(error).__mro__ if cls.__name__ in _CLASSES), None)


# -- the wait that a provider asks for


_NUMBER = re.compile(r"\s*([+-]?\d{1,400}(?:\.\d{0,50})?)\s*(ms|s|)\s*", re.IGNORECASE | re.ASCII)


def clamp_wait(seconds: float) -> float:
    """Return the wait within its bounds, `SHORTEST` and `LONGEST`, in seconds."""
    return min(max(seconds, SHORTEST), LONGEST)


def read_wait(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the wait in these headers (names in lower case), in seconds; None if they have no readable one.

    `retry-after-ms` is in milliseconds; `retry-after` is in seconds, has a unit, or is an HTTP date (RFC 9110, 10.2.3).
    A past or negative wait becomes the shortest one, a huge one the longest.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        if match := _NUMBER.fullmatch(text[:500]):
            scale = {"ms": 0.001, "s": 1.0, "": unit}[match[2].lower()]
            return clamp_wait(float(match[1]) * scale)
        try:
            moment = parsedate_to_datetime(text[:100])
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
            return clamp_wait((moment - now).total_seconds())
        except (ValueError, TypeError, OverflowError, IndexError):
            continue
    return None
