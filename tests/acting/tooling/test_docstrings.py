"""Descriptions of functions and parameters, out of docstrings of any style."""

from __future__ import annotations

from typing import Any

import pytest

from acting.tooling.signatures import read_docstring


def documented(text: Any) -> Any:
    def function() -> None: ...

    function.__doc__ = text
    return function


@pytest.mark.parametrize(
    "text", [None, "", 5, b"bytes", "\ud800\0", ":param", ":param :", "Args:", "Args:\n\n\n  :", "-" * 10_000]
)
def test_what_cannot_be_read_describes_nothing_and_does_no_harm(text: Any) -> None:
    assert read_docstring(documented(text), ["a"])[1] == {}


def test_an_object_whose_docstring_raises_has_none() -> None:
    class Hostile:
        @property
        def __doc__(self) -> str:  # type: ignore[override]
            raise RuntimeError("no")

    assert read_docstring(Hostile(), ["a"]) == ("", {})
