"""Every field of every product of a module with values that it cannot hold.

The places are walked from the annotations of the products, so that a new field is among them by itself.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from memory import Memory
from spar import Agent, Context
from spar.errors import ContractError
from spar.events import ErrorOccurred, RunEnded
from spar.loop.setup import PRODUCT_OF
from spar.testing import VirtualClock
from spar.types import (
    PHASES,
    Ability,
    Action,
    ActionResult,
    Answer,
    Call,
    CallFailure,
    CallResult,
    Credit,
    Experience,
    Fault,
    Feedback,
    Learnt,
    Perception,
    Phase,
    Reflection,
    Remedy,
    TriedCall,
    replace,
)

CALL = Call("probe")
#: What each phase returns, and a valid value of each type in it.
PRODUCTS: dict[Phase, type[Struct]] = {"sense": Perception, "plan": Action, "act": ActionResult, "reflect": Reflection}
SAMPLES: dict[type[Struct], Struct] = {
    type(sample): sample
    for sample in (
        Perception("seen"), Action(output="x"), Learnt("because"), Feedback("x", True, "person"), Answer("x"), CALL,
        ActionResult(), CallResult(CALL, "ok"), Fault("error", "it broke"), Reflection(), CallFailure(CALL, "why"),
        Ability("probe", "task", 0.5, 0.1, 1), Experience("x"), TriedCall("probe"), Remedy("none"), Credit("x", True),
    )
}  # fmt: skip


class Place(NamedTuple):
    """A field of a value in the product of a phase; `make` returns the product with a content in that field."""

    phase: Phase
    kind: type[Struct]
    field: str
    make: Callable[[Any], Any]

    def __repr__(self) -> str:
        return f"{self.phase}: {self.kind.__name__}.{self.field}"


def values_in(hint: Any) -> Iterator[tuple[type[Struct], bool]]:
    """Yield the types of the values that a field holds, and whether it holds a list of them."""
    if isinstance(hint, type) and issubclass(hint, Struct):
        yield hint, False
    is_list = isinstance(origin := typing.get_origin(hint), type) and issubclass(origin, (tuple, Sequence))
    for part in typing.get_args(hint):
        for kind, _ in values_in(part):
            yield kind, is_list


def places_in(phase: Phase, kind: type[Struct], make: Callable[[Any], Any], above: tuple[type, ...]) -> Iterator[Place]:
    sample, hints = SAMPLES[kind], typing.get_type_hints(kind)
    for name in kind.__struct_fields__:
        put = lambda content, name=name: make(lambda: replace(sample, **{name: content()}))  # noqa: E731
        yield Place(phase, kind, name, put)
        for inner, is_list in values_in(hints[name]):
            if inner not in above and inner not in (Perception, Action, ActionResult):
                put_inner = (lambda content, put=put: put(lambda: (content(),))) if is_list else put
                yield from places_in(phase, inner, put_inner, (*above, inner))


PLACES = [
    place for phase, kind in PRODUCTS.items() for place in places_in(phase, kind, lambda content: content(), (kind,))
]


class BrokenZone(tzinfo):
    """A time zone whose methods raise."""

    def utcoffset(self, at: datetime | None) -> timedelta:
        raise RuntimeError("no such zone")


#: What no field can hold, or only some.
ODD: dict[str, Any] = {
    "nan": math.nan, "infinity": math.inf, "-infinity": -math.inf, "7.0": 7.0, "5": 5, "True": True, "None": None,
    "text": "high", "no text": "", "a surrogate": "a\ud800", "a zero": "a\0b", "200 kB": "x" * 200_000, "bytes": b"x",
    "a list": [1], "a list of None": [None], "a list of texts": ["x"], "a number as key": {1: 2},
    "a tuple as key": {(1, 2): 3}, "a wide number inside": {"a": 2**70}, "an object inside": {"a": object()},
    "an object": object(), "no zone": datetime(2020, 1, 1), "the last time": datetime.max.replace(tzinfo=UTC),
    "before the first time": datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    "a broken zone": datetime(2020, 1, 1, tzinfo=BrokenZone()),
}  # fmt: skip
WIDE = st.integers(2**63, 2**80) | st.integers(-(2**80), -(2**63) - 1)
#: By name, since hypothesis compares what it draws.
UNFIT = WIDE | st.sampled_from(list(ODD))


def content_of(drawn: Any) -> Any:
    return ODD[drawn] if isinstance(drawn, str) else drawn


def test_every_value_in_a_product_is_among_the_places() -> None:
    assert set(SAMPLES) == {place.kind for place in PLACES}
    assert Counter(place.kind for place in PLACES)[Experience] == len(Experience.__struct_fields__)


def refusal_of(place: Place, content: Any) -> str:
    """Return why a product is refused where it was returned; "" if it is accepted."""
    try:
        PRODUCT_OF[place.phase](place.make(lambda: content), "the part", Action() if place.phase == "act" else ())
    except (ContractError, TypeError, ValueError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("phase", PHASES)
@given(data=st.data())
@settings(max_examples=100)
def test_an_unfit_field_is_refused_by_name_where_it_was_returned(phase: Phase, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from([place for place in PLACES if place.phase == phase]))
    refusal = refusal_of(place, content_of(data.draw(UNFIT)))
    assert not refusal or place.field in refusal
    assert len(refusal) < 600


def test_a_result_is_looked_into_where_it_was_returned_and_by_no_later_check() -> None:
    result = ActionResult(state={"a": 1})
    reflection, of_another = Reflection(result), Reflection(ActionResult(state={1: 2}))
    result.state[2] = 3  # what whoever looks into it would refuse

    assert PRODUCT_OF["reflect"](reflection, "the part", result) is reflection
    with pytest.raises(ContractError, match=r"state must be .* found the key 1"):
        PRODUCT_OF["reflect"](of_another, "the part", result)
    with pytest.raises(ContractError, match=r"state must be .* found the key 2"):
        PRODUCT_OF["reflect"](reflection, "the part", ActionResult())


# -- in an agent with a memory --------------------------------------------------------------------------------


class House:
    """An agent with sessions that return unfit products, and others beside them whose rows are in the same batch."""

    def __init__(self, clock: VirtualClock, folder: str, unfit: Sequence[tuple[Place, Any]]) -> None:
        self.unfit = {f"bad{number}": pair for number, pair in enumerate(unfit)}
        self.sensed = [pair for pair in unfit if pair[0].phase == "sense"]
        self.told: dict[str, tuple[Place, Any]] = {}  # by cycle
        self.ended, self.errors = Counter[str](), list[ErrorOccurred]()
        self.agent = Agent(sense=self.sense, plan=self.plan, act=self.act, reflect=self.reflect, loop_interval=1.0,
                           memory=Memory(f"sqlite:///{folder}/memory.db", ballast=0), clock=clock)  # fmt: skip
        self.agent.events.subscribe(RunEnded, lambda event: self.ended.update([event.run_id]))
        self.agent.events.subscribe(ErrorOccurred, self.errors.append)
        self._is_even = False

    def returns(self, phase: Phase, context: Context, usual: Any) -> Any:
        place, content = self.unfit.get(context.session, (None, None))
        if place is None or place.phase != phase:
            return usual
        self.told[context.cycle_id] = place, content
        return place.make(lambda: content)

    async def sense(self, context: Context) -> Any:
        self._is_even = not self._is_even
        if not self.sensed or self._is_even:  # so that it never fails many times in a row
            return ()
        place, content = self.told[context.cycle_id] = self.sensed.pop()
        return [place.make(lambda: content)]

    async def plan(self, perceptions: Any, context: Context) -> Any:
        if context.run is None:
            return None
        await asyncio.sleep(1.0)
        return self.returns("plan", context, Action(output="done"))

    async def act(self, action: Action, context: Context) -> Any:
        return self.returns("act", context, ActionResult(action))

    async def reflect(self, result: ActionResult, context: Context) -> Any:
        experience = Experience("s", session=context.session, key=context.session, origin=context.cycle_id)
        return self.returns("reflect", context, Reflection(result, experiences=(experience,)))


async def _is_kept_apart(unfit: Sequence[tuple[Place, Any]], folder: str) -> None:
    good = [f"good{number}" for number in range(3)]
    async with VirtualClock() as clock:
        house = House(clock, folder, unfit)
        async with house.agent:
            runs = {name: await house.agent.submit("go", session=name) for name in (*house.unfit, *good)}
            await clock.sleep(120.0 + 3.0 * len(house.sensed))
            assert house.agent.state == "running"
            for name in good:
                assert (await house.agent.wait(runs[name].run_id, 0)).status == "ok"
            refused = {error.cycle_id: error for error in house.errors}
            for cycle_id, error in refused.items():
                place, _ = house.told[cycle_id]
                assert error.phase == place.phase
                assert f"House.{error.phase}" in error.error.part
                assert place.field in error.error.message
        assert set(house.ended.values()) == {1}

        again = House(clock, folder, ())
        async with again.agent:
            await clock.sleep(120.0)
            cycles = Counter[str]()
            for row in await again.agent.memory.cycles(limit=1_000):
                cycles[row["session"]] += 1
                record = await again.agent.memory.cycle(row["cycle_id"])
                assert [fault for fault in record.faults if fault.kind == "unreadable"] == []
            assert [cycles[name] for name in good] == [1, 1, 1]
            learnt = Counter(each.session for each in await again.agent.memory.recall("", 1_000))
            assert [learnt[name] for name in good] == [1, 1, 1]
            assert again.errors == []
        assert set((house.ended + again.ended).values()) == {1}


def is_kept_apart(unfit: Sequence[tuple[Place, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_is_kept_apart(unfit, folder))


@given(st.lists(st.tuples(st.sampled_from(PLACES), UNFIT), min_size=15, max_size=30))
@settings(max_examples=3)
def test_unfit_products_are_errors_of_their_own_cycles_alone(unfit: list[tuple[Place, Any]]) -> None:
    is_kept_apart([(place, content_of(drawn)) for place, drawn in unfit])


def test_whatever_is_accepted_is_kept_and_read_again() -> None:
    usual = {"7.0", "5", "True", "None", "text", "no text", "a list of texts"}
    odd = [content for name, content in ODD.items() if name not in usual]
    pairs = [(place, content) for place in PLACES for content in (*odd, 2**63, -(2**80))]
    accepted = [pair for pair in pairs if not refusal_of(*pair)]

    assert {place.kind for place, _ in accepted} == set(SAMPLES)
    is_kept_apart(accepted)
