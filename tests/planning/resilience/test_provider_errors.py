from __future__ import annotations

import pytest

from planning.resilience.provider_errors import (
    KINDS,
    TREATMENTS,
    FaultKind,
    kind_of,
    kind_of_class,
    provider_error,
)
from spar.errors import PermanentError, TransientError
from spar.types import Fault


@pytest.mark.parametrize(
    ("status", "text", "known", "kind"),
    [
        (429, "Rate limit reached", None, "rate_limited"),
        (429, "Request blocked by the rate limiter", None, "rate_limited"),
        (429, "insufficient_quota You exceeded your current quota", None, "billing"),
        (429, "Request too large for gpt-4o on tokens per min (TPM)", "rate_limited", "overflow"),
        (500, "", None, "server"),
        (502, "<html>Bad Gateway</html>", None, "server"),
        (503, "", None, "overloaded"),
        (529, "", None, "overloaded"),
        (504, "upstream timed out", None, "silent"),
        (400, "This model's maximum context length is 8192 tokens", None, "overflow"),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", None, "overflow"),
        (400, "The input token count (1200000) exceeds the maximum number of tokens allowed", None, "overflow"),
        (400, "Input is too long for requested model.", "bad_request", "overflow"),
        (400, "the request exceeds the available context size, try increasing it", None, "overflow"),
        (500, "the request exceeds the available context size", "server", "overflow"),
        (413, "Payload Too Large", None, "overflow"),
        (400, "content_filter The response was filtered", "bad_request", "refused"),
        (400, "Your credit balance is too low to access the API", "bad_request", "billing"),
        (402, "maximum context", None, "billing"),
        (401, "anything", None, "auth"),
        (403, "", None, "auth"),
        (400, "API key not valid. Please pass a valid API key.", "bad_request", "auth"),
        (404, "", None, "not_found"),
        (400, "The model `gpt-9` does not exist", "bad_request", "not_found"),
        (400, "Invalid schema for function", "bad_request", "bad_request"),
        (422, "", None, "bad_request"),
        (418, "", None, "bad_request"),
        (None, "server_error upstream went away", None, "server"),
        (None, "overloaded_error", None, "overloaded"),
        (None, "Overloaded", "overloaded", "overloaded"),
    ],
)
def test_what_providers_say_becomes_one_of_the_kinds(
    status: int | None, text: str, known: FaultKind | None, kind: FaultKind
) -> None:
    assert kind_of(status, text, known) == kind


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_an_error_that_says_whether_it_may_pass(kind: FaultKind) -> None:
    error = provider_error(kind, "openai:gpt-5", "so\n  it said\x00", retry_after=7.0, status=500)

    assert isinstance(error, TransientError if TREATMENTS[kind].is_transient else PermanentError)
    assert str(error) == f"openai:gpt-5 {TREATMENTS[kind].says} (500): so it said"
    assert Fault.of(error).retryable is TREATMENTS[kind].is_transient
    assert Fault.of(error).detail.get("retry_after") == (7.0 if TREATMENTS[kind].is_transient else None)


def test_what_a_request_itself_is_to_blame_for_concerns_no_other_model_and_no_breaker() -> None:
    own = {kind for kind, treatment in TREATMENTS.items() if not treatment.other}

    assert own == {"length", "refused", "overflow", "bad_request"}
    assert all(TREATMENTS[kind].opens == 0 for kind in own)
    assert all(TREATMENTS[kind].opens > 0 for kind in set(KINDS) - own)


@pytest.mark.parametrize(
    ("error", "kind"), [(ConnectionResetError(), "unreachable"), (TimeoutError(), "silent"), (ValueError(), None)]
)
def test_some_classes_of_exceptions_say_what_it_was(error: Exception, kind: FaultKind | None) -> None:
    assert kind_of_class(error) == kind


def test_a_refusal_in_a_provider_s_own_words_does_not_say_twice_that_it_refused() -> None:
    error = provider_error("refused", "m", "the content filter refused to answer this")
    assert str(error) == "m declines this request: the content filter refused to answer this"
