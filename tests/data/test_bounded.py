"""A bounded dictionary keeps the entries that were set last."""

from __future__ import annotations

import random

from spar.data.bounded import BoundedDict, SharedDict


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


def test_what_is_too_much_is_taken_from_the_owner_who_has_most() -> None:
    known: SharedDict[str, int] = SharedDict(4)
    for name in ("a", "b"):
        known.put("small", name, 0)

    gone = [known.put("large", f"{n}", n) for n in range(6)]

    assert gone == [None, None, 0, 1, 2, 3]
    assert sorted(known.values()) == [0, 0, 4, 5]
    known.use("large", "4")
    assert known.put("large", "6", 6) == 5
    assert known.shed() == [0, 4]
    assert len(known) == 2


def test_a_shared_dictionary_agrees_with_a_plain_count_of_each_owner() -> None:
    random_ = random.Random(7)
    known: SharedDict[int, int] = SharedDict(30)
    for _ in range(5_000):
        owner, key = str(random_.randrange(6)), random_.randrange(40)
        before = {each: len(of) for each, of in known._of.items()}
        gone = known.pop(owner, key) if random_.random() < 0.4 else known.put(owner, key, int(owner))
        after = {each: len(of) for each, of in known._of.items()}
        assert sum(after.values()) == len(known) <= 30
        assert known._largest == max(after.values(), default=0)
        if gone is not None and str(gone) != owner:
            assert before[str(gone)] == max(before.values())
