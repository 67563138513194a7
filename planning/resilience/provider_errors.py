"""Errors of providers as a closed table of kinds, and how to tell which one it was; pure.

A provider says the same thing in many ways, and some things it does not say at all. Here each becomes a `ProviderError`
of one kind, and the table says what may be done about it: ask the same model again, ask another one, leave the provider
alone for a while. Waiting and asking again are `planning.resilience.failover`'s affair.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, Literal, NamedTuple, get_args

from spar.data.text import safe_line
from spar.errors import PermanentError, SparError, TransientError

FaultKind = Literal[
    "rate_limited", "overloaded", "server", "unreachable", "silent", "idle", "endless", "truncated", "garbage",
    "length", "refused", "overflow", "auth", "billing", "not_found", "bad_request",
]  # fmt: skip


class Treatment(NamedTuple):
    """Meaning of a kind of error, and the remedy.

    `again`: the same model may be asked once more at once; `other`: another model may answer the same request.
    `opens`: after how many faults in a row the model is left alone, 0 when the fault is not the provider's; `rest`: how
    long then, in seconds (None: as the breaker's own steps say); `everywhere`: it holds for all of the provider's
    models. `is_free`: nothing was generated, so nothing is to be paid.
    """

    says: str
    is_transient: bool = True
    again: bool = False
    other: bool = True
    opens: int = 1
    rest: float | None = None
    everywhere: bool = False
    is_free: bool = False


#: A key that was refused or an account without money: people have to do something.
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
    # The same request would end in the same way, with any model: it has to be made anew.
    "length": Treatment("had more to say than max_tokens allows", is_transient=False, other=False, opens=0),
    "refused": Treatment("declines this request", is_transient=False, other=False, opens=0),
    "overflow": Treatment("cannot read that much", is_transient=False, other=False, opens=0, is_free=True),
    "bad_request": Treatment("does not take this request", is_transient=False, other=False, opens=0, is_free=True),
    "auth": Treatment("does not accept the key", is_transient=False, rest=_LONG, everywhere=True, is_free=True),
    "billing": Treatment("wants to be paid first", is_transient=False, rest=_LONG, everywhere=True, is_free=True),
    "not_found": Treatment("does not exist there", is_transient=False, rest=_LONG, is_free=True),
}
KINDS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)

#: What a provider may ask for, in seconds: less than this is a storm, more is not believed.
SHORTEST, LONGEST = 1.0, 3_600.0


class ProviderError(SparError):
    """A model did not answer as it should. Also a `TransientError` or a `PermanentError`, as its kind says.

    Args: kind: which of the table; model: who; detail: the provider's own words; retry_after: the wait that it asked
        for, in seconds; status: of HTTP, where there was one.
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
        said = f" ({status})" if status is not None else ""
        told = f": {safe_line(detail, 300)}" if detail else ""
        super().__init__(f"{model} {TREATMENTS[kind].says}{said}{told}")
        self.kind, self.model, self.status = kind, model, status
        self.retry_after = retry_after

    @property
    def treatment(self) -> Treatment:
        """Return the remedy."""
        return TREATMENTS[self.kind]


class TransientProviderError(ProviderError, TransientError):
    """It may work later."""


class PermanentProviderError(ProviderError, PermanentError):
    """Error of a provider that the same request will meet again."""


def provider_error(
    kind: FaultKind, model: str, detail: str = "", *, retry_after: float | None = None, status: int | None = None
) -> ProviderError:
    """The error of this kind, of the class that says whether it may pass."""
    made = TransientProviderError if TREATMENTS[kind].is_transient else PermanentProviderError
    return made(kind, model, detail, retry_after=retry_after, status=status)


# -- which kind it was


#: How providers word what their status does not tell apart, the first that is found counts. Looked for in lower case.
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
#: What a status says for sure, whatever stands in the text; an overflow may come with any but these.
_CERTAIN: Final = frozenset({401, 402})


def kind_of(status: int | None, text: str, known: FaultKind | None = None) -> FaultKind:
    """The kind of an error that a provider has told us about.

    Args: status: of HTTP, None inside a stream that had begun; text: code, type and message as it sent them; known:
        what the library that talks to it has found out, which counts unless the words say that it was too much to read.
    """
    if status in _CERTAIN:
        return _STATUSES[status or 0]
    said = text[:4_000].lower()
    worded = next((kind for kind, pattern in _WORDINGS if pattern.search(said)), None)
    if worded == "overflow" or (worded is not None and known in (None, "bad_request") and status != 429):
        return worded
    if status == 429 and worded == "billing":  # its other words say how fast one was
        return worded
    if known is not None:
        return known
    if status is None:
        return "server"
    return _STATUSES.get(status) or ("server" if status >= 500 else "bad_request")


#: By name, since the classes are not there before their library is: pydantic-ai's categories, and what adapters let
#: through of the layers below them.
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
    """The kind that an exception's class stands for, its own before those that it comes from; None for any other."""
    return next((_CLASSES[each.__name__] for each in type(error).__mro__ if each.__name__ in _CLASSES), None)


# -- how long it asks to be left alone


_NUMBER = re.compile(r"\s*([+-]?\d{1,400}(?:\.\d{0,50})?)\s*(ms|s|)\s*", re.IGNORECASE | re.ASCII)


def clamped(seconds: float) -> float:
    """A wait as it is believed: from `SHORTEST` to `LONGEST`."""
    return min(max(seconds, SHORTEST), LONGEST)


def wait_asked(headers: Mapping[str, str], now: datetime) -> float | None:
    """The wait that headers (keys in lower case) ask for, in seconds; None when they ask for none that can be read.

    `retry-after-ms` is in milliseconds; `retry-after` in seconds, with a unit, or a date as HTTP writes it (RFC 9110,
    10.2.3). What is past or negative is as short as possible, what is huge as long as is believed.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        if found := _NUMBER.fullmatch(text[:500]):
            scale = {"ms": 0.001, "s": 1.0, "": unit}[found[2].lower()]
            return clamped(float(found[1]) * scale)
        try:
            moment = parsedate_to_datetime(text[:100])
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
            return clamped((moment - now).total_seconds())
        except (ValueError, TypeError, OverflowError, IndexError):
            continue
    return None
