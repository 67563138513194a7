"""Descriptions of functions and parameters, out of docstrings of any style."""

from __future__ import annotations

from typing import Any

import pytest

from acting.tooling.signatures import read_docstring


def documented(text: Any) -> Any:
    def function() -> None: ...

    function.__doc__ = text
    return function


HEAD = "Weather.\n\nMore."
STYLES = {
    "google": f"{HEAD}\n\nArgs:\n    city (str, optional): its\n        name\n    days: how: many\n\nReturns:\n    x",
    "numpy": f"{HEAD}\n\nParameters\n----------\ncity : str, optional\n    its\n    name\ndays\n    how: many\n",
    "sphinx": f"{HEAD}\n\n:param str city: its\n    name\n:param days: how: many\n:raises ValueError: never\n",
    "one line": f"{HEAD}\n\nArgs: city: its name\n    days: how: many\nRaises: ValueError",
    "loose ends": f"{HEAD}\n\nArgs:\n    city: its name\n    days: how: many\nRaises:\n    no colon here\nNote:\n    a",
}


@pytest.mark.parametrize("text", STYLES.values(), ids=STYLES.keys())
def test_every_usual_style_is_read(text: str) -> None:
    assert read_docstring(documented(text), ["city", "days"]) == (HEAD, {"city": "its name", "days": "how: many"})


def test_only_known_parameters_are_told() -> None:
    text = "Args:\n    city: its name\n    **more: others\n    gone: was here once"

    assert read_docstring(documented(text), ["city", "more"]) == ("", {"city": "its name", "more": "others"})


def test_a_docstring_without_sections_is_all_description() -> None:
    text = "Look: it works.\n\n    indented\n\nback"

    assert read_docstring(documented(text), ["it"]) == (text, {})


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
