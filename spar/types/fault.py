"""Errors as data."""

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
    """An error as data.

    `kind` is a short closed word: `transient permanent timeout contract bad_input error …`;
    `part` names who failed, `phase` where; `retryable` says whether the same may work later.
    `detail` holds what else is known: `type`, `retry_after` (seconds), `leaves` (of a group), and of an exception that
    nobody raised on purpose `where` (`mytools.py:9 in plan`) and `traceback`.
    """

    kind: str
    message: str
    part: str = ""
    phase: str = ""
    retryable: bool = True
    detail: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, error: BaseException, *, part: str = "", phase: str = "") -> Fault:
        """Return what an exception says, looking through groups; never raises.

        What is raised on purpose (`TransientError`, `PermanentError`, any `SparError`) says enough in one sentence.
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
            detail["output"] = output  # what a tool had brought before it failed
        if not isinstance(cause, SparError) and (where := place_of(cause)):
            detail["where"], detail["traceback"] = where, stack_of(error)
        return cls(_kind_of(cause), message, part, phase, not isinstance(cause, LASTING), detail)


#: What Python raises by itself about a mistake in code: the type says most, the text of a KeyError is but a key.
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
    except Exception:  # nor must a broken property
        return None


#: What the same attempt will not get over.
LASTING = (PermanentError, ConfigError)


def _kind_of(error: BaseException) -> str:
    for known, kind in _KINDS:
        if isinstance(error, known):
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
