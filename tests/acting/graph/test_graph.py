from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acting.graph.graph import Graph
from acting.graph.nodes import Node
from spar.data.blackboard import Board
from spar.data.paths import parse_read, parse_write
from tests.effort import growth


class Plan:
    """A graph over a small state, driven by hand. Expressions are written without †state: `a.b || c && d`."""

    def __init__(self, state: dict[str, Any] | None = None, fallback: Literal["wait", "race"] = "wait") -> None:
        self.board = Board((), state or {})
        self.graph = Graph(self.board.has, fallback)
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

    def end(self, id: str, *, ok: bool = True, value: Any = 1, chosen: int | None = None) -> None:
        node = self.nodes[id]
        if node.writes and (ok or chosen is not None):
            paths = node.writes[chosen or 0]
            for path, stands in zip(paths, self.board.spread(paths, value, "set", node.instance), strict=True):
                self.graph.written(path, stands, node.instance)
        self.graph.end(node, ok, chosen=chosen)

    def ready(self) -> list[str]:
        found, self.graph.ready = [node.id for node in self.graph.ready], []
        return found

    def doomed(self) -> list[str]:
        found, self.graph.doomed = [node.id for node in self.graph.doomed], []
        return found

    def look(self, text: str, instance: str | None = None) -> Any:
        return self.board.look(parse_read(_told(text)), instance)

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


# -- alternatives


def test_a_read_with_alternatives_takes_the_leftmost_that_is_present_whatever_its_value() -> None:
    plan = Plan({"b": None, "c": 1})
    plan.add("reader", reads=("a || b || c",))

    assert plan.ready() == ["reader"]
    assert plan.look("a || b || c") is None


def test_all_paths_of_an_alternative_must_be_present_and_the_last_ones_value_counts() -> None:
    plan = Plan({"a": 1, "c": 3})
    plan.add("both", reads=("a && b",))
    plan.add("either", reads=("a && b || c && a",))
    assert plan.ready() == ["either"]
    assert plan.look("a && b || c && a") == 1

    plan.add("writer", write="b")
    plan.ready()
    plan.end("writer", value=2)

    assert plan.ready() == ["both"]
    assert plan.look("a && b || c && a") == 2


def test_a_read_waits_for_earlier_writers_of_the_alternatives_up_to_the_one_it_would_take_and_no_others() -> None:
    plan = Plan({"b": 1})
    for name in "abc":
        plan.add(name, write=name)
    plan.add("reader", reads=("a || b || c",))
    plan.ready()

    plan.end("a", ok=False)
    assert plan.ready() == []
    plan.end("b", value=2)

    assert plan.ready() == ["reader"]
    assert plan.look("a || b || c") == 2


def test_the_next_alternative_is_taken_at_once_when_the_writers_of_a_left_one_ended_without_it() -> None:
    plan = Plan({"b": 1})
    plan.add("a1", write="a")
    plan.add("a2", write="a.x")
    plan.add("reader", reads=("a.x || b",))
    plan.ready()

    plan.end("a2", ok=False)
    assert plan.ready() == []
    plan.end("a1", value={"y": 1})

    assert plan.ready() == ["reader"]


def test_a_left_alternative_that_a_later_call_brings_is_taken_while_earlier_writers_of_a_right_one_live() -> None:
    plan = Plan()
    plan.add("b", write="b")
    plan.add("reader", reads=("a || b",))
    plan.add("late", write="a")
    plan.ready()

    plan.end("late")

    assert plan.ready() == ["reader"]


def test_racing_takes_whatever_alternative_is_present_and_else_the_first_that_comes() -> None:
    plan = Plan({"b": 1}, "race")
    plan.add("a", write="a")
    plan.add("now", reads=("a || b",))
    plan.add("soon", reads=("a || c",))
    plan.add("ordered", reads=("a",))
    plan.add("c", write="c")
    assert plan.ready() == ["a", "now", "c"]

    plan.end("c")
    assert plan.ready() == ["soon"]
    plan.end("a")

    assert plan.ready() == ["ordered"]


# -- branches


def test_readers_of_the_branch_taken_run_and_those_of_the_others_are_skipped_as_branch() -> None:
    plan = Plan()
    plan.add("fork", write="yes || no")
    plan.add("on yes", reads=("yes",), write="done")
    plan.add("on no", reads=("no",), write="done")
    plan.add("join", reads=("done",))
    plan.ready()

    plan.end("fork", chosen=1)
    assert plan.ready() == ["on no"]
    plan.end("on no")
    assert plan.ready() == []  # the other one may still come, as far as is known
    assert plan.settle() == {"on yes": "branch"}

    assert plan.ready() == ["join"]


def test_what_depends_on_a_call_skipped_as_branch_is_a_branch_too() -> None:
    plan = Plan()
    plan.add("fork", write="yes || no")
    plan.add("on no", reads=("no",), write="x")
    plan.add("reader", reads=("x",), write="y")
    plan.add("its reader", reads=("y.z || q && x",))
    plan.add("follower", after=("on no",))
    plan.ready()

    plan.end("fork")

    assert plan.settle() == dict.fromkeys(("on no", "reader", "its reader", "follower"), "branch")


def test_a_failure_that_a_branch_handles_feeds_the_readers_of_that_branch_only() -> None:
    plan = Plan()
    plan.add("risky", write="result || error")
    plan.add("happy", reads=("result",))
    plan.add("unhappy", reads=("error",))
    plan.add("strict", after=("risky",))
    plan.ready()

    plan.end("risky", ok=False, chosen=1)

    assert plan.ready() == ["unhappy"]
    assert plan.settle() == {"strict": "dep_failed", "happy": "branch"}


def test_one_value_goes_to_every_path_of_a_fan_out() -> None:
    plan = Plan()
    plan.add("writer", write="a && b.c")
    plan.add("one", reads=("a",))
    plan.add("other", reads=("b",))
    plan.ready()

    plan.end("writer", value=[1])

    assert plan.ready() == ["one", "other"]
    assert plan.look("a && b") == {"c": [1]}


def test_a_reader_waits_for_every_writer_of_a_join_while_one_lives() -> None:
    plan = Plan()
    plan.add("left", write="x")
    plan.add("right", write="x")
    plan.add("reader", reads=("x",))
    plan.ready()

    plan.end("left")
    assert plan.ready() == []
    plan.end("right", ok=False)

    assert plan.ready() == ["reader"]


# -- what is missing at the end


@pytest.mark.parametrize(
    ("write", "ending", "why"),
    [
        ("x", {"ok": False}, "dep_failed"),
        ("y || x", {}, "branch"),
        ("x", {"value": {"z": 1}}, "bad_reference"),
        ("x || y", {"value": {"z": 1}}, "bad_reference"),
        ("z", {}, "bad_reference"),
    ],
    ids=[
        "its writer failed",
        "it chose another branch",
        "it left that part out",
        "it chose this and left that part out",
        "nobody writes it",
    ],
)
def test_what_is_missing_at_the_end_is_told_by_what_became_of_its_writer(write: str, ending: Any, why: str) -> None:
    plan = Plan()
    plan.add("writer", write=write)
    plan.add("reader", reads=("x.part",))
    plan.ready()

    plan.end("writer", **ending)

    assert plan.settle() == {"reader": why}


def test_of_several_things_missing_a_failure_tells_more_than_a_branch_and_that_more_than_nothing() -> None:
    plan = Plan()
    plan.add("fork", write="yes || no")
    plan.add("broken", write="x")
    plan.add("r1", reads=("nowhere", "no"))
    plan.add("r2", reads=("no || x || nowhere",))
    plan.ready()

    plan.end("fork")
    plan.end("broken", ok=False)

    assert plan.settle() == {"r1": "branch", "r2": "dep_failed"}


def test_whoever_can_never_start_counts_as_a_writer_no_longer_so_that_old_values_and_alternatives_are_taken() -> None:
    plan = Plan({"old": 1, "other": 2})
    plan.add("dead", reads=("nowhere",), write="old && fresh")
    plan.add("of old", reads=("old",))
    plan.add("of either", reads=("fresh || other",))
    plan.add("of fresh", reads=("fresh",))
    assert plan.ready() == []

    assert plan.settle() == {"dead": "bad_reference"}
    assert plan.ready() == ["of old", "of either"]
    assert plan.settle() == {"of fresh": "dep_failed"}


def test_calls_that_wait_for_one_another_through_an_alternative_are_untied_by_the_one_that_has_another() -> None:
    plan = Plan({"b": 1})
    plan.add("first", reads=("c",), write="a")
    plan.add("second", reads=("a || b",), write="c")
    assert plan.ready() == []

    assert plan.settle() == {}
    assert plan.ready() == ["second"]
    plan.end("second")

    assert plan.ready() == ["first"]


def test_a_circle_whose_other_alternatives_never_came_fails_the_last_and_skips_the_others() -> None:
    plan = Plan()
    assert plan.add("first", reads=("x || y",), write="z")
    assert plan.add("second", reads=("z",), write="x")

    assert plan.settle() == {"second": "cycle", "first": "dep_failed"}


def test_a_call_that_feeds_itself_in_just_one_alternative_closes_no_circle() -> None:
    plan = Plan({"b": 1})

    assert plan.add("self", reads=("a || b",), write="a")
    assert not plan.add("truly", reads=("c",), write="c && d || e")
    assert plan.ready() == ["self"]


def test_a_path_that_several_later_calls_may_bring_closes_no_circle_with_one_of_them() -> None:
    plan = Plan()
    assert plan.add("reader", reads=("x",), write="y")
    assert plan.add("one", write="x")
    assert plan.add("other", reads=("y",), write="x")

    plan.ready()
    plan.end("one")

    assert plan.ready() == ["reader"]


def test_a_reader_that_several_later_calls_may_feed_after_an_earlier_one_did_not_closes_no_circle_with_one() -> None:
    plan = Plan()
    plan.add("earlier", write="x")
    plan.add("reader", reads=("x.part",), write="y")
    plan.add("later", write="x")
    plan.ready()
    plan.end("earlier", value={})

    assert plan.add("last", reads=("y",), write="x")
    plan.end("later", value={"part": 1})

    assert plan.ready() == ["reader"]


def test_what_was_taken_away_again_before_all_was_there_is_waited_for_anew() -> None:
    plan = Plan({"a": {"x": 1}})
    plan.add("reader", reads=("a.x", "b"))
    plan.add("eraser", write="a")
    plan.add("b", write="b")
    plan.add("again", write="a.x")
    plan.ready()

    plan.end("eraser", value={})
    plan.end("b")
    assert plan.ready() == []
    plan.end("again")

    assert plan.ready() == ["reader"]


# -- instances


def test_an_instances_write_wakes_and_blocks_only_readers_of_that_instance() -> None:
    plan = Plan({"x": 0})
    plan.add("writer", write="x", instance="one")
    plan.add("mine", reads=("x",), instance="one")
    plan.add("yours", reads=("x",), instance="two")
    plan.add("all", reads=("x",))
    assert plan.ready() == ["writer", "yours", "all"]

    plan.end("writer", value=5)

    assert plan.ready() == ["mine"]
    assert [plan.look("x", each) for each in ("one", "two", None)] == [5, 0, 0]


def test_a_global_write_is_waited_for_and_seen_by_every_instance() -> None:
    plan = Plan()
    plan.add("early", reads=("x",), instance="one")
    plan.add("writer", write="x")
    plan.add("late", reads=("x.y || x",), instance="two")
    assert plan.ready() == ["writer"]

    plan.end("writer", value=5)

    assert plan.ready() == ["early", "late"]


def test_what_only_an_instance_was_to_write_is_missing_for_others_without_a_word_of_it() -> None:
    plan = Plan()
    plan.add("writer", write="x", instance="one")
    plan.add("reader", reads=("x",))
    plan.add("mine", reads=("x",), instance="one")
    plan.ready()

    plan.end("writer", ok=False)

    assert plan.settle() == {"reader": "bad_reference", "mine": "dep_failed"}


def test_an_instances_circle_is_one_and_two_instances_make_none() -> None:
    plan = Plan()
    assert plan.add("a", reads=("y",), write="x", instance="one")
    assert plan.add("b", reads=("x",), write="y", instance="two")
    assert not plan.add("c", reads=("x",), write="y", instance="one")


# -- cost: twice as many calls are twice the work. More than a thousand, as deep as Python would recurse.


def test_calls_in_reverse_order_with_alternatives_are_settled_in_order_one_by_one() -> None:
    def settle(size: int) -> None:
        plan = Plan({"k0": 1})
        for at in range(size, 0, -1):
            plan.add(f"c{at}", reads=(f"k{at - 1} || z{at}",), write=f"k{at}")
        order = []
        while ready := plan.ready():
            order += ready
            for id in ready:
                plan.end(id)

        assert order == [f"c{at}" for at in range(1, size + 1)]

    assert growth(settle, 1_000) < 2.3


def test_calls_that_wait_for_what_never_comes_are_given_up_in_one_sweep() -> None:
    def give_up(size: int) -> None:
        plan = Plan()
        for at in range(size, 0, -1):
            plan.add(f"c{at}", reads=(f"k{at - 1}",), write=f"k{at}")

        reasons = plan.settle()

        assert reasons.pop("c1") == "bad_reference"
        assert set(reasons.values()) <= {"dep_failed"}

    assert growth(give_up, 1_000) < 2.3


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

    assert growth(leave_out, 1_000) < 2.3


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


def test_many_readers_of_what_as_many_calls_write_cost_no_product() -> None:
    def read(size: int) -> None:
        plan = Plan()
        for at in range(size):
            plan.add(f"w{at}", write=f"a.k{at}")
        for at in range(size):
            plan.add(f"r{at}", reads=("a",))
        plan.ready()
        for at in range(size):
            plan.end(f"w{at}")

        assert len(plan.ready()) == size

    assert growth(read, 1_000) < 2.3


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

    assert growth(write, 1_000) < 2.3


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
@settings(deadline=None)
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
                assert all(plan.board.has(path) for path in plan.nodes[id].reads)
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
