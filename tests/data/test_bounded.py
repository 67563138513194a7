"""A bounded dictionary keeps the entries that were set last."""

from __future__ import annotations

from spar.data.bounded import BoundedDict


def test_the_entry_that_was_set_longest_ago_is_dropped() -> None:
    known: BoundedDict[str, int] = BoundedDict(2)
    known["one"] = 1
    known["two"] = 2
    known["one"] = 3
    known["three"] = 4

    assert list(known.items()) == [("one", 3), ("three", 4)]


def test_a_default_that_is_set_counts_as_set() -> None:
    known: BoundedDict[int, list[int]] = BoundedDict(3)
    for number in range(10):
        known.setdefault(number, []).append(number)

    assert list(known.items()) == [(7, [7]), (8, [8]), (9, [9])]


def test_a_key_that_is_moved_to_the_end_stays() -> None:
    known: BoundedDict[str, int] = BoundedDict(2)
    known["one"], known["two"] = 1, 2
    known.move_to_end("one")
    known["three"] = 3

    assert list(known) == ["one", "three"]


def test_nothing_is_kept_where_nothing_may_be() -> None:
    known: BoundedDict[str, int] = BoundedDict(0)
    known["one"] = 1

    assert not known
