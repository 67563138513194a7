"""The lines of the house are lines of code, and each area that is to become smaller is there."""

from __future__ import annotations

from benchmarks.house import OWED, lines_of_code, modules

SOURCE = '''"""A module.

Its tour.
"""

# a comment
LIMIT = 3  # and what it is
"""What it is."""


def work(
    number: int,
) -> str:
    """Work."""
    return f"""
    {number}
"""
'''


def test_blank_lines_comments_and_docstrings_are_no_code() -> None:
    assert lines_of_code(SOURCE) == 7


def test_each_area_has_its_modules() -> None:
    for area, (places, _) in OWED.items():
        assert modules(places), area
