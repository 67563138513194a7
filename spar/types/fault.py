"""Fault: an error as data."""

from __future__ import annotations

from typing import Any

from msgspec import field

from spar.errors import (
    ConfigError,
    PermanentError,
    SparError,
    TooLargeError,
    TransientError,
    leaves,
    place_of,
    stack_of,
    unwrap,
)
from spar.types.value import Value


class Fault(Value, frozen=True):
    """Error as data.

    `kind` is a word of a closed set: `transient permanent timeout contract bad_input error …`; `part` names the part
    that failed, `phase` the phase; `retryable` says whether the same attempt may work later.
    `detail` holds further facts: `type`, `retry_after` (seconds), `leaves` (of an exception group), and for an
    exception that was not raised on purpose `where` (`mytools.py:9 in plan`) and `traceback`.
    """

    kind: str
    message: str
    part: str = ""
    phase: str = ""
    retryable: bool = True
    detail: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, error: BaseException, *, part: str = "", phase: str = "") -> Fault:
        """Return the fault of an exception, looking through groups; never raises.

        Exceptions that are raised on purpose (`TransientError`, `PermanentError`, any `SparError`) get no place and
        traceback: their sentence is enough.
        """
        cause = unwrap(error)
        detail: dict[str, Any] = {"type": type(cause).__name__}
        if isinstance(error, BaseExceptionGroup):
            detail["leaves"] = [_sentence(leaf) for leaf in leaves(error)]
            message = "; ".join(detail["leaves"])
        else:
            message = _sentence(error)
        wait = _attribute(cause, "retry_after") if isinstance(cause, TransientError) else None
        if isinstance(wait, (int, float)) and 0 <= wait < float("inf"):
            detail["retry_after"] = wait
        output = _attribute(cause, "output")
        if output is not None:
            detail["output"] = output  # what a tool produced before it failed
        if not isinstance(cause, SparError) and (where := place_of(cause)):
            detail["where"], detail["traceback"] = where, stack_of(error)
        return cls(_kind_of(cause), message, part, phase, not isinstance(cause, LASTING), detail)


#: Exceptions that Python raises for mistakes in code. Their message needs the type: a KeyError's text is only a key.
MISTAKES = (LookupError, ArithmeticError, AssertionError, AttributeError, NameError, ImportError)


def _sentence(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # a broken __str__ must not hide the failure that it belongs to
        text = ""
    name = type(error).__name__
    if not text:
        return name
    return f"{name}: {text}" if isinstance(error, MISTAKES) else text


def _attribute(error: BaseException, name: str) -> Any:
    try:
        return getattr(error, name, None)
    except Exception:  # a broken property must not hide it either
        return None


#: Exceptions that the same attempt would raise again.
LASTING = (PermanentError, ConfigError)


def _kind_of(error: BaseException) -> str:
    for error_class, kind in _KINDS:
        if isinstance(error, error_class):
            return kind
    return "error"


_KINDS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    (TransientError, "transient"),
    (TooLargeError, "too_large"),
    (PermanentError, "permanent"),
    (ConfigError, "config"),
    (TimeoutError, "timeout"),
    (ConnectionError, "transient"),
    (PermissionError, "permission"),
    (FileNotFoundError, "not_found"),
    (OSError, "io"),
    (TypeError, "contract"),
    (ValueError, "bad_input"),
    (MemoryError, "resources"),
)
