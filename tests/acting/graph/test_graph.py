"""Graph of calls: which call is refused, and what it costs; the rest is held by properties/test_graph_oracle."""

import gc
from typing import Any

import pytest

from acting.graph import graph
from acting.graph.graph import Graph
from acting.graph.nodes import IndexNode, Node
from spar.data.blackboard import Board
from spar.data.paths import parse_read, parse_write
from tests.effort import growth


class Plan:
    """A graph over a small state, driven by hand. Expressions are written without †state: `a.b || c && d`."""

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        self.board = Board((), state or {})
        self.graph = Graph(self.board.has)
        self.nodes: dict[str, Node] = {}

    def add(
        self,
        id: str,
        reads: tuple[str, ...] = (),
        write: str | None = None,
        after: tuple[str, ...] = (),
        instance: str | None = None,
    ) -> bool:
        node = self.nodes[id] = Node(id)
        written = None if write is None else parse_write(_told(write))
        is_fine = self.graph.add(node, [parse_read(_told(each)) for each in reads], written, after, instance)
        if not is_fine:
            self.graph.end(node, ok=False)
        return is_fine

    def end(self, id: str, *, value: Any = 1) -> None:
        node = self.nodes[id]
        if node.writes:
            paths = node.writes[0]
            for path, stands in zip(paths, self.board.spread(paths, value, "set", node.instance), strict=True):
                self.graph.written(path, stands, node.instance)
        self.graph.end(node, ok=True)

    def ready(self) -> list[str]:
        found, self.graph.ready = [node.id for node in self.graph.ready], []
        return found

    def doomed(self) -> list[str]:
        found, self.graph.doomed = [node.id for node in self.graph.doomed], []
        return found

    def settle(self) -> dict[str, str]:
        """End all that can never start, as the executor does; why each was given up, until something is ready."""
        reasons: dict[str, str] = {}
        while True:
            doomed, self.graph.doomed = self.graph.doomed, []
            for node in doomed:
                reasons[node.id] = node.why
                self.graph.end(node, ok=False)
            if self.graph.ready:
                return reasons
            if not doomed:
                stuck = self.graph.stuck()
                if stuck is None:
                    return reasons
                for node in stuck[0]:
                    reasons[node.id] = stuck[1]
                    self.graph.end(node, ok=False)


def _told(text: str) -> str:
    alternatives = (each.split("&&") for each in text.split("||"))
    return " || ".join(" && ".join(f"†state.{path.strip()}".rstrip(".") for path in paths) for paths in alternatives)


def test_the_call_that_closes_a_cycle_is_the_one_refused() -> None:
    plan = Plan()
    assert plan.add("a", reads=("y",), write="x")
    assert plan.add("b", reads=("x",), write="z")
    assert not plan.add("c", reads=("z",), write="y")

    plan_of_ids = Plan()
    assert plan_of_ids.add("a", after=("b",))
    assert not plan_of_ids.add("b", after=("a",))
    assert plan_of_ids.doomed() == ["a"]


def test_a_call_that_waits_for_itself_is_a_cycle_unless_the_value_is_there() -> None:
    plan = Plan({"n": 1})

    assert plan.add("count", reads=("n",), write="n")
    assert not plan.add("self", reads=("m",), write="m")
    assert not plan.add("me", after=("me",))
    assert plan.ready() == ["count"]


def test_what_names_an_unknown_call_is_stuck_as_a_bad_reference() -> None:
    plan = Plan()
    plan.add("a", after=("nobody",))

    stuck = plan.graph.stuck()

    assert stuck[1] == "bad_reference"
    assert "'nobody'" in stuck[2]


def test_an_instances_circle_is_one_and_two_instances_make_none() -> None:
    plan = Plan()
    assert plan.add("a", reads=("y",), write="x", instance="one")
    assert plan.add("b", reads=("x",), write="y", instance="two")
    assert not plan.add("c", reads=("x",), write="y", instance="one")


# -- cost: twice as many calls are twice the work. More than a thousand, as deep as Python would recurse.


def test_calls_that_wait_for_what_never_comes_are_given_up_in_one_sweep() -> None:
    def give_up(size: int) -> None:
        plan = Plan()
        for at in range(size, 0, -1):
            plan.add(f"c{at}", reads=(f"k{at - 1}",), write=f"k{at}")

        reasons = plan.settle()

        assert reasons.pop("c1") == "bad_reference"
        assert set(reasons.values()) <= {"dep_failed"}

    assert growth(give_up, 300) < 2.3


def test_many_readers_of_a_part_that_as_many_later_calls_leave_out_cost_no_product() -> None:
    def leave_out(size: int) -> None:
        plan = Plan()
        for at in range(size):
            plan.add(f"r{at}", reads=("a.x",))
        for at in range(size):
            plan.add(f"w{at}", write="a")
        plan.ready()
        for at in reversed(range(size)):
            plan.end(f"w{at}", value={})

        assert set(plan.settle().values()) == {"bad_reference"}

    assert growth(leave_out, 300) < 2.3


def test_writers_and_readers_in_turn_make_a_long_row_of_barriers_and_no_deep_one() -> None:
    plan = Plan()
    size = 5_000
    for at in range(size):
        plan.add(f"w{at}", write="a")
        plan.add(f"v{at}", write="a")
        plan.add(f"r{at}", reads=("a",))
    plan.ready()
    for at in reversed(range(size)):
        plan.end(f"w{at}")
        plan.end(f"v{at}")

    assert len(plan.ready()) == size


def test_paths_of_sixty_four_segments_and_expressions_of_256_paths_are_within_reach() -> None:
    plan = Plan()
    deep = ".".join(["d"] * 63)
    wide = " && ".join(f"k{at}" for at in range(256))
    plan.add("deep", reads=(deep,))
    plan.add("wide", reads=(wide,))
    plan.add("any", reads=(wide.replace("&&", "||"),))
    plan.add("spread", write=wide)
    plan.add("above", write="d")
    plan.ready()

    plan.end("spread")
    plan.end("above", value={"d": {}})
    assert sorted(plan.ready()) == ["any", "wide"]
    plan.add("to the end", write=deep)
    assert plan.ready() == ["to the end"]
    plan.end("to the end")

    assert plan.ready() == ["deep"]


def test_waiting_readers_are_not_looked_at_by_writers_that_do_not_concern_them() -> None:
    def write(size: int) -> None:
        plan = Plan()
        for at in range(size):
            plan.add(f"r{at}", reads=(f"k{at}",))
        for at in reversed(range(size)):
            plan.add(f"w{at}", write=f"k{at}")
        plan.ready()
        for at in range(size):
            plan.end(f"w{at}")

        assert plan.ready() == [f"r{at}" for at in range(size)]

    assert growth(write, 300) < 2.3


def test_what_is_stuck_can_be_asked_whatever_was_ended_before() -> None:
    plan = Plan()
    plan.graph.end(Node("never taken in"), ok=False)
    assert plan.graph.stuck() is None

    plan.add("a", reads=("x || y",), write="y")
    plan.add("b", reads=("y || z",), write="x")
    plan.graph.end(Node("nor this one"), ok=False)

    assert plan.graph.pending == 2 - len(plan.ready())
    while (stuck := plan.graph.stuck()) is not None:
        for node in stuck[0]:
            plan.graph.end(node, ok=False)
    assert plan.graph.pending == 0
    assert plan.graph.stuck() is None


@pytest.mark.parametrize("most", [1, 2, 3, 9])
def test_a_call_that_reads_knows_all_calls_before_it_that_write(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "MOST_UNINDEXED", most)
    plan = Plan()
    for name in ("a", "b", "c", "d"):
        plan.add(name, write=name if name != "d" else "d || e")
    plan.end("a")
    plan.graph.end(plan.nodes["b"], ok=False)
    plan.end("d")
    plan.ready()

    for name, reads in (("x", ("a", "c")), ("y", ("b",)), ("z", ("e",))):
        assert plan.add(name, reads)

    assert plan.ready() == []
    plan.end("c")
    assert plan.ready() == ["x"]
    plan.end("x")
    assert plan.settle() == {"y": "dep_failed", "z": "branch"}


def test_the_garbage_collector_knows_what_is_written_without_telling_it() -> None:
    assert all(gc.is_tracked(made) for made in (Graph(lambda path, instance: False), IndexNode()))
