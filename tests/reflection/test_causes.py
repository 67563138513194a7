from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reflection.causes import BY_KIND, BY_REASON, BY_TYPE, explain, retry_after
from spar.data.text import safe_line
from spar.errors import PermanentError, TransientError
from spar.types import Call, CallResult, Fault


def cause(status: str, reason: str = "", fault: Fault | None = None) -> str:
    failure = explain(CallResult(Call("t"), status, reason, fault=fault))  # type: ignore[arg-type]
    assert failure.remedy
    return failure.cause


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ConnectionRefusedError("port 80"), "the other side took no connection: port 80"),
        (ConnectionResetError("peer"), "the connection broke: peer"),
        (TimeoutError("5 s"), "it took longer than it may: 5 s"),
        (FileNotFoundError("a.txt"), "what it asked for does not exist: a.txt"),
        (PermissionError("root"), "it was not permitted: root"),
        (ValueError("n < 0"), "the tool did not accept what it was given: n < 0"),
        (TransientError("busy"), "a passing trouble: busy"),
        (PermanentError("gone"), "it will fail in the same way every time: gone"),
        (KeyError("odd"), "it failed for a reason that is not known here: KeyError: 'odd'"),
        (ExceptionGroup("g", [TimeoutError("5 s")]), "it took longer than it may: 5 s"),
    ],
)
def test_an_exception_of_a_tool_has_a_cause(error: Exception, sentence: str) -> None:
    assert cause("failed", fault=Fault.of(error)) == sentence


@pytest.mark.parametrize(
    ("status", "reason", "says"),
    [
        ("skipped", "dep_failed", "a call that it needed"),
        ("denied", "denied", "denied"),
        ("denied", "", "denied"),
        ("denied", "expired", "nobody answered"),
        ("in_doubt", "", "nobody knows"),
        ("cancelled", "", "cancelled"),
        ("timeout", "", "longer than it may"),
        ("failed", "", "not known here"),
    ],
)
def test_what_was_not_run_has_a_cause_too(status: str, reason: str, says: str) -> None:
    assert says in cause(status, reason)


def test_a_call_that_timed_out_and_must_not_be_repeated_is_in_doubt() -> None:
    assert cause("timeout", fault=Fault("timeout", "5 s", detail={"in_doubt": True})).startswith("nobody knows")


@pytest.mark.parametrize(("status", "reason"), [("ok", ""), ("skipped", "branch"), ("skipped", "steered"),
                                                ("denied", "parked"), ("failed", "handled")])  # fmt: skip
def test_what_was_not_meant_to_end_well_is_no_failure(status: str, reason: str) -> None:
    assert explain(CallResult(Call("t"), status, reason)) is None  # type: ignore[arg-type]


def test_an_unknown_kind_is_said_to_be_unknown() -> None:
    assert cause("failed", fault=Fault("gremlins", "boom")) == "it failed for a reason that is not known here: boom"


def test_every_entry_of_the_table_reads_as_two_sentences() -> None:
    for table in (BY_REASON, BY_TYPE, BY_KIND):
        for entry in table.values():
            assert entry.cause[0].islower()
            assert entry.remedy[0].islower()
            assert not entry.cause.endswith(".")
            assert not entry.remedy.endswith(".")


@pytest.mark.parametrize(
    ("fault", "status", "seconds"),
    [
        (Fault("transient", "busy", detail={"retry_after": 30}), "failed", 30.0),
        (Fault("transient", "busy", detail={"retry_after": 1e12}), "failed", 3600.0),
        (Fault("transient", "busy", detail={"retry_after": float("nan")}), "failed", 5.0),
        (Fault("timeout", "slow"), "timeout", 5.0),
        (None, "timeout", 5.0),
        (None, "failed", None),
        (Fault("gremlins", "boom"), "failed", 5.0),
        (Fault("transient", "gone", retryable=False), "failed", None),
        (Fault("bad_parameters", "x"), "failed", None),
        (Fault("permission", "x"), "failed", None),
        (Fault("bad_input", "x"), "failed", None),
    ],
)
def test_looking_again_is_worth_it_only_for_what_may_pass(
    fault: Fault | None, status: str, seconds: float | None
) -> None:
    assert retry_after(fault, status, 5.0) == seconds


@given(st.text(st.characters(exclude_categories=())), st.integers(1, 50))
def test_any_text_becomes_one_bounded_line_that_can_be_stored(text: str, limit: int) -> None:
    line = safe_line(text, limit)

    assert len(line) <= limit
    line.encode()
    assert not any(unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") for sign in line)


def test_ten_megabytes_of_message_cost_little() -> None:
    assert len(cause("failed", fault=Fault("error", "x" * 10_000_000))) == 500
