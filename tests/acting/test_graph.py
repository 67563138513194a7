import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from acting.graph import Graph
from acting.paths import MISSING, Path, get, put
from acting.places import Node

S = "state"


class Plan:
    """A graph over a small state, driven by hand."""

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        self.state: dict[str, Any] = {S: state or {}}
        self.graph = Graph(lambda path: get(self.state, path) is not MISSING)
        self.nodes: dict[str, Node] = {}

    def add(self, id: str, reads: tuple[str, ...] = (), write: str | None = None, after: tuple[str, ...] = ()) -> bool:
        node = self.nodes[id] = Node(id)
        paths = tuple(_path(each) for each in reads)
        is_fine = self.graph.add(node, paths, None if write is None else _path(write), after)
        if not is_fine:
            self.graph.end(node, ok=False)
        return is_fine

    def end(self, id: str, *, ok: bool = True, value: Any = 1) -> None:
        node = self.nodes[id]
        if ok and node.write is not None:
            self.state = put(self.state, node.write, value)
            self.graph.written(node.write, value)
        self.graph.end(node, ok)

    def ready(self) -> list[str]:
        found, self.graph.ready = [node.id for node in self.graph.ready], []
        return found

    def doomed(self) -> list[str]:
        found, self.graph.doomed = [node.id for node in self.graph.doomed], []
        return found


def _path(text: str) -> Path:
    return (S, *text.split(".")) if text else (S,)


def test_a_call_that_waits_for_nothing_is_ready_on_arrival() -> None:
    plan = Plan({"x": None})

    plan.add("free")
    plan.add("reader", reads=("x",))

    assert plan.ready() == ["free", "reader"]


def test_a_call_follows_those_it_names_and_is_doomed_when_one_fails() -> None:
    plan = Plan()
    plan.add("a")
    plan.add("b")
    plan.add("c", after=("a", "b"))
    plan.add("d", after=("a",))
    plan.ready()

    plan.end("a")
    assert plan.ready() == ["d"]
    plan.end("b", ok=False)

    assert plan.ready() == []
    assert plan.doomed() == ["c"]


def test_a_call_may_name_one_that_has_yet_to_arrive() -> None:
    plan = Plan()
    plan.add("late", after=("first",))
    assert plan.ready() == []
    plan.add("first")
    plan.ready()
    plan.end("first")

    assert plan.ready() == ["late"]


def test_a_reader_waits_for_every_earlier_writer_of_an_overlapping_path_even_if_there_is_an_old_value() -> None:
    plan = Plan({"a": {"b": 0}})
    plan.add("above", write="a")
    plan.add("below", write="a.b.c")
    plan.add("beside", write="z")
    plan.add("reader", reads=("a.b",))
    assert plan.ready() == ["above", "below", "beside"]

    plan.end("above", value={"b": {}})
    assert plan.ready() == []
    plan.end("below")

    assert plan.ready() == ["reader"]


def test_a_later_writer_does_not_hold_back_a_reader_that_has_its_value() -> None:
    plan = Plan({"a": 1})
    plan.add("reader", reads=("a",))
    plan.add("writer", write="a")

    assert plan.ready() == ["reader", "writer"]


def test_a_later_writer_feeds_an_earlier_reader_that_has_no_value() -> None:
    plan = Plan()
    plan.add("reader", reads=("a.b",))
    plan.add("writer", write="a")
    assert plan.ready() == ["writer"]

    plan.end("writer", value={"b": 0})

    assert plan.ready() == ["reader"]


def test_a_writer_that_leaves_the_part_out_does_not_wake_its_reader() -> None:
    plan = Plan()
    plan.add("reader", reads=("a.b",))
    plan.add("writer", write="a")
    plan.ready()

    plan.end("writer", value={"c": 0})

    assert plan.ready() == []
    stuck = plan.graph.stuck()
    assert stuck is not None
    assert stuck[1] == "bad_reference"


def test_a_reader_of_a_failed_writer_goes_on_with_the_value_that_stands_or_is_stuck_without_one() -> None:
    plan = Plan({"old": 1})
    plan.add("w1", write="old")
    plan.add("w2", write="new")
    plan.add("r1", reads=("old",))
    plan.add("r2", reads=("new",))
    plan.ready()

    plan.end("w1", ok=False)
    plan.end("w2", ok=False)

    assert plan.ready() == ["r1"]
    stuck = plan.graph.stuck()
    assert stuck is not None
    assert ([node.id for node in stuck[0]], stuck[1]) == (["r2"], "dep_failed")


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


def test_after_a_refused_cycle_a_later_writer_can_still_feed_the_reader() -> None:
    plan = Plan()
    plan.add("a", reads=("y",), write="x")
    assert not plan.add("b", reads=("x",), write="y")
    plan.add("c", write="y")
    plan.ready()

    plan.end("c")

    assert plan.ready() == ["a"]


def test_what_names_an_unknown_call_is_stuck_as_a_bad_reference() -> None:
    plan = Plan()
    plan.add("a", after=("nobody",))

    stuck = plan.graph.stuck()

    assert stuck is not None
    assert stuck[1] == "bad_reference"
    assert "'nobody'" in stuck[2]


def test_ten_thousand_readers_of_what_ten_thousand_calls_write_cost_no_product() -> None:
    plan = Plan()
    size = 10_000
    began = time.perf_counter()
    for at in range(size):
        plan.add(f"w{at}", write=f"a.k{at}")
    for at in range(size):
        plan.add(f"r{at}", reads=("a",))
    plan.ready()
    for at in range(size):
        plan.end(f"w{at}")

    assert len(plan.ready()) == size
    assert time.perf_counter() - began < 5  # the product, 10**8 edges, takes minutes


def test_ten_thousand_waiting_readers_are_not_looked_at_by_writers_that_do_not_concern_them() -> None:
    plan = Plan()
    size = 10_000
    began = time.perf_counter()
    for at in range(size):
        plan.add(f"r{at}", reads=(f"k{at}",))
    for at in reversed(range(size)):
        plan.add(f"w{at}", write=f"k{at}")
    plan.ready()
    for at in range(size):
        plan.end(f"w{at}")

    assert plan.ready() == [f"r{at}" for at in range(size)]
    assert time.perf_counter() - began < 5


_KEYS = st.sampled_from(["a", "b", "c", "a.x", "a.y", "b.x"])
_CALLS = st.lists(
    st.tuples(
        st.lists(_KEYS, max_size=2),
        st.none() | _KEYS,
        st.lists(st.integers(0, 11), max_size=2),
        st.sampled_from([True, True, False]),
    ),
    max_size=12,
)


@given(_CALLS, st.randoms(use_true_random=False))
def test_every_graph_comes_to_an_end_and_nothing_starts_before_what_it_waits_for(calls: Any, random: Any) -> None:
    plan = Plan()
    running: list[str] = []
    results: dict[str, bool] = {}
    order: list[str] = []

    def end(id: str, ok: bool) -> None:
        assert id not in results
        results[id] = ok
        plan.end(id, ok=ok, value={"x": 1, "y": 1})

    def settle() -> None:
        while plan.graph.doomed or plan.graph.ready:
            for id in plan.doomed():
                if id not in results:
                    end(id, ok=False)
            for id in plan.ready():
                assert all(results.get(name) for name in afters[id])
                assert all(get(plan.state, path) is not MISSING for path in plan.nodes[id].reads)
                running.append(id)
                order.append(id)

    afters = {f"c{at}": tuple(f"c{name}" for name in call[2]) for at, call in enumerate(calls)}
    succeeds = {f"c{at}": call[3] for at, call in enumerate(calls)}
    for at, (reads, write, _, _) in enumerate(calls):
        id = f"c{at}"
        if not plan.add(id, tuple(dict.fromkeys(reads)), write, afters[id]):
            results[id] = False
        settle()
        if running and random.random() < 0.4:
            end(id := running.pop(random.randrange(len(running))), succeeds[id])
            settle()
    for _ in range(10 * len(calls) + 10):
        if running:
            end(id := running.pop(random.randrange(len(running))), succeeds[id])
        elif stuck := plan.graph.stuck():
            for node in stuck[0]:
                end(node.id, ok=False)
        else:
            break
        settle()

    assert set(results) == set(afters)
    assert plan.graph.pending == 0
