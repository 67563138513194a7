from typing import Any

import pytest

from spar.data.blackboard import Board, LateCopy
from spar.data.paths import Path, parse_read


def look(board: Board, text: str, instance: str | None = None) -> Any:
    return board.look(parse_read(text), instance)


def path(text: str) -> Path:
    only = parse_read(text).only
    assert only is not None
    return only


@pytest.mark.parametrize(
    ("method", "value", "why"),
    [
        ("merge", 1, "'merge' needs an object, the value is a int"),
        ("assign", [], "'assign' needs an object, the value is an array"),
        ("assign", {}, "'assign' needs an object, what stands there is an array"),
        ("concat", 1, "'concat' needs an array, the value is a int"),
    ],
)
@pytest.mark.parametrize("instance", [None, "one"])
def test_a_method_that_does_not_fit_changes_nothing(method: str, value: Any, why: str, instance: str | None) -> None:
    board = Board((), {"a": [1]})

    with pytest.raises(ValueError, match=why):
        board.write(path("†state.a"), value, method, instance)

    assert board.state == look(board, "†state", instance) == {"a": [1]}


def test_state_stays_an_object() -> None:
    board = Board()

    for value, method in ((5, "set"), ([], "concat"), ({}, "push")):
        for instance in (None, "one"):
            with pytest.raises(ValueError, match="state is an object"):
                board.write(path("†state"), value, method, instance)

    assert not board.has(path("†state"))


def test_an_instances_write_that_no_longer_fits_is_passed_over() -> None:
    board = Board((), {"a": []})
    board.write(path("†state.a"), 1, "push", "one")

    board.write(path("†state.a"), "text")

    assert look(board, "†state", "one") == {"a": "text"}
    board.write(path("†state.a"), [0])
    assert look(board, "†state", "one") == {"a": [0, 1]}


def test_a_context_message_that_is_none_is_refused() -> None:
    for message in ({}, {"type": 1}, [], {"type": "state", "state": {}, "_instance": 5}):
        with pytest.raises(TypeError, match="context message"):
            Board([message])  # type: ignore[list-item]


def test_a_board_tells_each_kind_and_instance_that_its_context_spoke_of() -> None:
    board = Board([
        {"type": "data", "kind": "a\n†", "data": {"x": 1}, "description": "first"},
        {"type": "state", "state": {"n": 1}},
        {"type": "data", "kind": "a\n†", "data": {"y": 2}, "_instance": "i", "schema": {}},
    ])  # fmt: skip

    assert board.messages() == [
        {"type": "data", "kind": "a\n†", "data": {"x": 1}, "description": "first"},
        {"type": "state", "state": {"n": 1}},
        {"type": "data", "kind": "a\n†", "data": {"x": 1, "y": 2}, "_instance": "i", "schema": {}},
    ]


def test_a_value_that_holds_itself_many_times_has_an_end() -> None:
    endless: list[Any] = []
    endless += [endless, endless]

    told = Board([{"type": "data", "kind": "a", "data": {"x": endless}, "_outputMethod": []}]).messages()

    assert len(str(told)) < 10_000_000


@pytest.mark.parametrize(
    ("change", "is_finished"),
    [
        (lambda board: board.write(path("†state.large.1.n"), "new"), True),
        (lambda board: board.write(path("†state.large"), {"n": "new"}, "push"), True),
        (lambda board: board.write(path("†state.other"), "new"), False),
        (lambda board: (board.patch("state", {"large": 5}), board.has(path("†state.large"))), True),
        (lambda board: board.patch("elsewhere", {"large": 5}), False),
    ],
    ids=["below", "at", "beside", "folded", "of another kind"],
)
def test_a_large_value_is_read_as_it_was_whatever_is_written_meanwhile(change: Any, is_finished: bool) -> None:
    large = [{"n": number} for number in range(10_000)]
    board = Board((), {"large": large, "other": 1})
    copy = board.look_late(parse_read("†state.large"), None, [])
    assert isinstance(copy, LateCopy)
    assert not copy.advance()

    change(board)

    slices = 0
    while not copy.advance():
        slices += 1
    assert copy.value == large
    assert (slices == 0) is is_finished


def test_a_large_value_of_one_instance_is_read_as_it_was() -> None:
    large = [{"n": number} for number in range(10_000)]
    board = Board((), {"large": large})
    board.write(path("†state.large"), {"n": "mine"}, "push", "one")
    copy = board.look_late(parse_read("†state.large"), "one", [])

    board.write(path("†state.large"), 5, instance="one")
    board.patch("state", {"large": []}, "one")

    while not copy.advance():
        pass
    assert copy.value == [*large, {"n": "mine"}]
