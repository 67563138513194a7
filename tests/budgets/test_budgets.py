"""Budgets: what is reserved counts, what nobody says counts in full, and nothing but time makes them fresh."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spar import Agent
from spar.budgets.budgets import Budgets, Reservation
from spar.budgets.enforcement import Enforcement
from spar.budgets.windows import LADDER, LASTING, name_of, span
from spar.config.load import from_mapping
from spar.config.tables.agent import BudgetSettings
from spar.errors import ConfigError, TransientError
from spar.events import BudgetExceeded, BudgetRenewed, BudgetWarned, HealthAlert, HealthRecovered
from spar.facts import BudgetUsed
from spar.ports.budgets import QUANTITIES, WINDOWS, BudgetError, BudgetRefusal, in_micro, micro
from spar.records.journal import Spend
from spar.testing import RecordingEvents, VirtualClock
from tests.doubles import heard

START = datetime(2026, 11, 21, 18, 30, tzinfo=UTC)
NOT_IN_CYCLES = [(window, quantity) for window in LASTING for quantity in QUANTITIES]


class Rows:
    """The journal as far as budgets know it: what was told is lost at a crash unless `safe` has returned since."""

    def __init__(self) -> None:
        self.told: list[Spend] = []
        self.used: dict[tuple[str, str], int] = {}
        self.broken: BaseException | None = None

    def append(self, fact: BudgetUsed) -> None:
        self.told += fact.spends

    async def safe(self) -> None:
        await asyncio.sleep(0)
        if self.broken is not None:
            raise self.broken
        self.write()

    def write(self) -> None:
        for each in self.told:
            key = each.window, each.quantity
            self.used[key] = max(0, self.used.get(key, 0) + each.amount)
        self.told.clear()

    def crash(self) -> list[Spend]:
        self.told.clear()
        return self.rows

    @property
    def rows(self) -> list[Spend]:
        return [Spend(window, quantity, used) for (window, quantity), used in self.used.items()]


class Case:
    """One agent's budgets, with everything around them recorded."""

    def __init__(self, limits: Mapping[Any, int], clock: Any, rows: Iterable[Spend] = ()) -> None:
        self.events, self.journal, self.measures = RecordingEvents(), Rows(), list[set[str]]()
        self.budgets = Budgets(limits, clock, self.events, lambda measures: self.measures.append({*measures}))
        self.budgets.open(self.journal, rows)

    def told(self, kind: Any) -> list[Any]:
        return [event for event in self.events.seen if type(event) is kind]

    def call(self, cycle: str = "c1", *, is_effect: bool = True) -> bool:
        """Make a call, as the executor does."""
        found = self.budgets.demand(cycle, is_effect=is_effect, what="look")
        if isinstance(found, BudgetRefusal):
            return False
        self.budgets.use(found)
        return True

    def calls(self, number: int, cycle: str = "c1") -> int:
        return sum(self.call(cycle) for _ in range(number))

    async def request(self, amounts: Any, used: Any = None, cycle: str = "c1") -> bool:
        try:
            with await self.budgets.reserve(amounts, cycle_id=cycle, what="model") as reservation:
                reservation.settle(used)
        except BudgetError:
            return False
        return True

    def used(self, budget: str) -> int:
        return next(each["used"] for each in self.budgets.snapshot() if each["budget"] == budget)

    @property
    def in_force(self) -> set[str]:
        return self.measures[-1] if self.measures else set()


@pytest.fixture
def clock_at(clock: VirtualClock) -> VirtualClock:
    clock.set_wall(START)
    return clock


# -- windows


@pytest.mark.parametrize(
    ("window", "now", "name", "end"),
    [
        ("hour", "2026-11-21T18:59:59", "hour:2026-11-21T18", "2026-11-21T19:00:00"),
        ("hour", "2026-12-31T23:00:00", "hour:2026-12-31T23", "2027-01-01T00:00:00"),
        ("day", "2026-02-28T12:00:00", "day:2026-02-28", "2026-03-01T00:00:00"),
        ("month", "2028-02-29T12:00:00", "month:2028-02", "2028-03-01T00:00:00"),
        ("month", "2026-12-31T23:59:59", "month:2026-12", "2027-01-01T00:00:00"),
    ],
)
def test_a_window_is_known_by_its_beginning(window: Any, now: str, name: str, end: str) -> None:
    start, found = span(window, datetime.fromisoformat(now).replace(tzinfo=UTC))

    assert (name_of(window, start), found) == (name, datetime.fromisoformat(end).replace(tzinfo=UTC))


# -- the limit


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("quantity", ["calls", "effects"])
async def test_the_last_call_of_each_window_runs_and_one_more_is_refused(
    window: Any, quantity: Any, clock_at: VirtualClock
) -> None:
    case = Case({(window, quantity): 7}, clock_at)

    assert case.calls(6) == 6
    assert case.call()
    assert not case.call()
    (refused,) = case.told(BudgetExceeded)
    assert (refused.budget, refused.used, refused.limit, refused.asked) == (f"{window}.{quantity}", 7, 7, 1)
    assert (refused.what, refused.cycle_id) == ("look", "c1")
    assert case.call("c2") is (window == "cycle")


async def test_the_tightest_of_several_limits_counts_and_the_one_that_lasts_longest_is_named(
    clock_at: VirtualClock,
) -> None:
    tight = Case({("cycle", "calls"): 2, ("hour", "calls"): 3, ("day", "calls"): 9}, clock_at)
    both = Case({("cycle", "calls"): 3, ("day", "calls"): 3, ("hour", "calls"): 3}, clock_at)
    none = Case({("hour", "effects"): 0}, clock_at)

    assert [tight.calls(5), tight.calls(5, "c2")] == [2, 1]
    assert both.calls(4) == 3
    assert [event.budget for event in tight.told(BudgetExceeded)] == ["cycle.calls"] * 3 + ["hour.calls"] * 4
    assert [event.budget for event in both.told(BudgetExceeded)] == ["day.calls"]
    assert (none.calls(30), none.call(is_effect=False), none.measures) == (0, True, [])


async def test_what_has_no_limit_is_not_counted(clock_at: VirtualClock) -> None:
    case = Case({}, clock_at)

    assert await case.request({"tokens": 10**9, "money": None})
    assert case.calls(1_000) == 1_000
    assert (case.budgets.limits_calls, case.budgets.limits_effects) == (False, False)
    assert (case.budgets.snapshot(), case.journal.told, case.events.seen) == ([], [], [])


async def test_a_call_that_never_began_is_given_back_and_one_that_people_approve_counts_beyond_the_limit(
    clock_at: VirtualClock,
) -> None:
    case = Case({("hour", "calls"): 1, ("cycle", "calls"): 1}, clock_at)

    fare = case.budgets.demand("c1", is_effect=False)
    assert not isinstance(fare, BudgetRefusal)
    assert not case.call()
    case.budgets.release(fare)
    assert case.call()
    assert case.used("hour.calls") == 1
    approved = case.budgets.insist("c1", is_effect=False)

    assert approved.spends == (Spend("hour:2026-11-21T18", "calls", 1),)
    assert case.used("hour.calls") == 2
    assert not case.call()


@pytest.mark.parametrize("amounts", [{"calls": -1}, {"tokens": 1.5}, {"tokens": True}, {"time": 1}, {"money": 10**16}])
async def test_an_amount_that_is_none_is_refused(amounts: Any, clock_at: VirtualClock) -> None:
    with pytest.raises(ValueError, match=r"expected a whole number|no budget for 'time'"):
        await Case({}, clock_at).budgets.reserve(amounts)


def test_a_refusal_says_which_budget_how_far_it_is_used_and_until_when() -> None:
    refusal = BudgetRefusal("hour.money", 950_000, 1_000_000, 80_001, START)

    assert refusal.sentence == (
        "budget hour.money does not allow 0.080001 more: 0.95 of 1 used until 2026-11-21 18:30 UTC"
    )
    assert BudgetRefusal("cycle.calls", 1, 1, 1).sentence == (
        "budget cycle.calls does not allow 1 more: 1 of 1 used until the next cycle"
    )
    assert [micro(n) for n in (0, 1, 1_000_000, 1_500_000, -20)] == ["0", "0.000001", "1", "1.5", "-0.00002"]


async def test_what_was_not_used_of_a_reservation_comes_back_unless_its_block_is_left_without_a_word(
    clock_at: VirtualClock,
) -> None:
    case = Case({("hour", "tokens"): 100, ("cycle", "tokens"): 100, ("hour", "requests"): 1}, clock_at)

    (await case.budgets.reserve({"tokens": 90, "requests": 1})).cancel()
    reservation = await case.budgets.reserve({"tokens": 90, "requests": 1})
    held = case.used("hour.tokens")
    reservation.settle({"tokens": 30, "requests": 1})
    reservation.settle({"tokens": 0})
    case.journal.write()

    assert (held, case.used("hour.tokens"), case.used("cycle.tokens")) == (90, 30, 30)
    assert case.journal.used["hour:2026-11-21T18", "tokens"] == 30
    with pytest.raises(ZeroDivisionError), await case.budgets.reserve({"tokens": 60}):
        raise ZeroDivisionError
    assert case.used("hour.tokens") == 90


async def test_more_than_was_reserved_counts_too_and_what_costs_nothing_needs_no_budget(clock_at: VirtualClock) -> None:
    case = Case({("hour", "tokens"): 100, ("hour", "money"): 10, ("hour", "requests"): 9}, clock_at)

    assert await case.request({"tokens": 50, "money": 10}, {"tokens": 99, "money": 11})
    assert not await case.request({"tokens": 2})
    assert await case.request({"tokens": 1, "money": 0, "requests": 1})


async def test_a_price_that_nobody_knows_is_refused_where_money_is_limited(clock_at: VirtualClock) -> None:
    case = Case({("day", "money"): 10**6}, clock_at)

    with pytest.raises(BudgetError, match=r"budget day\.money does not allow an amount that nobody knows") as refused:
        await case.budgets.reserve({"tokens": 10, "money": None})

    assert refused.value.retry_after == 5.5 * 3600
    assert case.used("day.money") == 0


async def test_a_hundred_reservations_at_once_never_use_more_than_there_is(clock_at: VirtualClock) -> None:
    case = Case({("hour", "tokens"): 1_000, ("cycle", "requests"): 60}, clock_at)

    async def work(n: int) -> bool:
        reservation: Reservation | None = None
        try:
            reservation = await case.budgets.reserve({"tokens": 15, "requests": 1}, cycle_id=f"c{n % 2}")
            await asyncio.sleep(0)
            assert case.used("hour.tokens") <= 1_000
            reservation.settle({"tokens": 15})
        except BudgetError:
            return False
        return True

    served = sum(await asyncio.gather(*(work(n) for n in range(100))))

    assert served == 66
    assert case.used("hour.tokens") == 990


@pytest.mark.parametrize("why", [TransientError("disk full"), asyncio.CancelledError()], ids=["fault", "cancelled"])
async def test_what_could_not_be_kept_is_not_used_and_never_counted_too_low(
    why: BaseException, clock_at: VirtualClock
) -> None:
    case = Case({("hour", "tokens"): 100}, clock_at)
    await case.request({"tokens": 20})
    case.journal.broken = why

    with pytest.raises(type(why)):
        await case.budgets.reserve({"tokens": 70})

    case.journal.broken = None
    assert case.used("hour.tokens") == 20
    assert await case.request({"tokens": 80})
    assert case.journal.used["hour:2026-11-21T18", "tokens"] >= 100


async def test_a_reservation_that_a_crash_cut_off_counts_in_full(clock_at: VirtualClock) -> None:
    limits: Any = {("hour", "tokens"): 100, ("hour", "requests"): 5}
    case = Case(limits, clock_at)
    await case.budgets.reserve({"tokens": 70, "requests": 1})
    assert case.journal.used["hour:2026-11-21T18", "tokens"] == 70, "it is on disk before it can be used"

    after = Case(limits, clock_at, case.journal.crash())

    assert (after.used("hour.tokens"), after.used("hour.requests")) == (70, 1)
    assert not await after.request({"tokens": 31})
    full = Case(limits, clock_at, [Spend("hour:2026-11-21T18", "tokens", 100)])
    assert full.in_force == {"slow", "degrade"}, "the measures that were in force are found too"
    full.budgets.close()


async def test_what_is_settled_after_its_window_counts_in_that_one(clock_at: VirtualClock) -> None:
    case = Case({("hour", "tokens"): 100}, clock_at)

    reservation = await case.budgets.reserve({"tokens": 90})
    clock_at.set_wall(START + timedelta(hours=1))
    assert await case.request({"tokens": 100})
    reservation.settle({"tokens": 10})
    case.journal.write()

    assert case.journal.used == {("hour:2026-11-21T18", "tokens"): 10, ("hour:2026-11-21T19", "tokens"): 100}
    assert not await case.request({"tokens": 1})


# -- the ladder


@pytest.mark.parametrize(("window", "quantity"), NOT_IN_CYCLES)
async def test_at_80_100_and_120_percent_it_slows_does_without_and_pauses(
    window: Any, quantity: Any, clock_at: VirtualClock
) -> None:
    found = {}
    for total in (79, 80, 99, 100, 119, 120, 200):
        case = Case({(window, quantity): 100}, clock_at)
        if quantity in ("calls", "effects"):
            for _ in range(total):
                case.budgets.insist("c1", is_effect=True)
        else:
            await case.request({quantity: 1}, {quantity: total})
        found[total] = len(case.in_force)
        case.budgets.close()

    assert found == {79: 0, 80: 1, 99: 1, 100: 2, 119: 2, 120: 3, 200: 3}
    assert case.in_force == {*LADDER[quantity]}
    assert [event.measure for event in case.told(BudgetWarned)] == [*LADDER[quantity]]
    assert case.told(BudgetWarned)[-1].limit == 100


async def test_who_does_not_notice_that_it_is_refused_is_paused(clock_at: VirtualClock) -> None:
    case = Case({("hour", "effects"): 10, ("cycle", "effects"): 5}, clock_at)

    case.calls(100)  # of one cycle: its limit refuses them all, and it is over soon
    assert case.measures == []
    case.calls(5, "c2")
    assert case.in_force == {"slow", "ask"}
    case.calls(19, "c3")
    assert case.in_force == {"slow", "ask"}
    case.calls(1, "c3")

    assert case.in_force == {"slow", "ask", "pause"}


async def test_what_is_only_reserved_is_no_reason_to_do_without_models(clock_at: VirtualClock) -> None:
    case = Case({("hour", "tokens"): 100}, clock_at)

    reservation = await case.budgets.reserve({"tokens": 100})
    assert not await case.request({"tokens": 50})
    reservation.settle({"tokens": 20})
    assert case.measures == []
    assert not await case.request({"tokens": 90})
    assert case.measures == []

    assert await case.request({"tokens": 65})
    assert case.in_force == {"slow", "degrade"}  # what is left is too little for what was asked for


async def test_what_was_done_ends_by_itself_when_the_window_does_but_for_what_another_asks_for(
    clock_at: VirtualClock,
) -> None:
    case = Case({("hour", "calls"): 10, ("day", "calls"): 25}, clock_at)

    case.calls(40)
    assert case.in_force == {"slow", "ask", "pause"}
    await clock_at.sleep(1790)
    assert case.in_force == {"slow", "ask", "pause"}
    await clock_at.sleep(70)

    assert case.measures[-1] == set()
    assert [event.budget for event in case.told(BudgetRenewed)] == ["hour.calls"]
    assert case.calls(20) == 10
    await clock_at.sleep(3600)
    assert case.in_force == {"slow"}
    assert [event.budget for event in case.told(BudgetRenewed)] == ["hour.calls"] * 2


async def test_a_clock_that_comes_back_to_a_used_window_finds_its_measures_and_its_rows(clock_at: VirtualClock) -> None:
    case = Case({("hour", "calls"): 10}, clock_at)

    case.calls(8)
    clock_at.set_wall(START + timedelta(hours=1))
    case.calls(1)
    clock_at.set_wall(START)
    case.calls(1)

    assert case.measures == [{"slow"}, set(), {"slow"}]
    assert [type(event) for event in case.events.seen] == [BudgetWarned, BudgetRenewed, BudgetWarned]
    clock_at.set_wall(START + timedelta(hours=2))
    begun = Case({("hour", "calls"): 4}, clock_at, [Spend("hour:2026-11-21T18", "calls", 3)])
    assert begun.calls(1) == 1
    clock_at.set_wall(START)
    assert begun.calls(3) == 1


async def test_a_clock_that_is_set_on_is_seen_within_a_minute(clock_at: VirtualClock) -> None:
    case = Case({("month", "calls"): 10}, clock_at)

    case.calls(10)
    clock_at.set_wall(START + timedelta(days=40))
    await clock_at.sleep(61)

    assert case.in_force == set()


async def test_a_higher_limit_ends_what_the_lower_one_led_to(clock_at: VirtualClock) -> None:
    case = Case({("hour", "calls"): 10}, clock_at)
    case.calls(40)

    case.budgets.apply({("hour", "calls"): 1_000, ("day", "calls"): 5})

    assert case.in_force == set()
    assert case.used("hour.calls") == 10
    assert case.calls(6) == 5


async def test_another_limit_leaves_used_what_a_cycle_has_used(clock_at: VirtualClock) -> None:
    case = Case({("cycle", "calls"): 3, ("cycle", "requests"): 3}, clock_at)
    before = case.calls(2)
    await case.request({"requests": 2}, {"requests": 2})

    case.budgets.apply({("cycle", "calls"): 4, ("cycle", "effects"): 1})
    between = case.calls(5)
    case.budgets.apply({("cycle", "calls"): 4, ("cycle", "requests"): 3})

    assert (before, between, case.calls(5)) == (2, 1, 1)
    assert [await case.request({"requests": 1}) for _ in range(2)] == [True, False]


async def test_a_snapshot_shows_each_budget_and_changes_none(clock_at: VirtualClock) -> None:
    case = Case({("cycle", "calls"): 4, ("hour", "money"): 1_000_000}, clock_at)
    case.calls(1)
    await case.request({"money": 250_000})

    shown = case.budgets.snapshot()
    clock_at.set_wall(START + timedelta(hours=1))

    end = datetime(2026, 11, 21, 19, tzinfo=UTC)
    assert shown == [
        {"budget": "cycle.calls", "used": 1, "limit": 4, "ratio": 0.25, "refused": 0, "ends_at": None},
        {"budget": "hour.money", "used": 250_000, "limit": 1_000_000, "ratio": 0.25, "refused": 0, "ends_at": end},
    ]
    assert case.used("hour.money") == 0
    assert case.budgets.ratios() == [("calls", "cycle", 0.25), ("money", "hour", 0.0)]
    assert case.budgets.refusals() == {"calls": 0, "money": 0}


# -- what it does to an agent


class Planner:
    def __init__(self) -> None:
        self.degraded_reason: str | None = None
        self.asked = 0

    def degrade(self, reason: str) -> None:
        self.degraded_reason = reason

    def restore(self) -> None:
        self.degraded_reason = None

    async def plan(self, perceptions: Any) -> None:
        self.asked += 1


def restrained(clock: Any) -> tuple[Agent, Planner, Enforcement]:
    planner = Planner()
    agent = Agent(plan=planner, clock=clock)
    restraint = Enforcement(agent.core, agent.setup, agent.health, agent)
    return agent, planner, restraint


async def test_a_degraded_planner_is_restored_unless_it_is_degraded_for_another_reason(clock: VirtualClock) -> None:
    agent, planner, restraint = restrained(clock)

    restraint({"slow": "x", "degrade": "budget hour.tokens: 10 of 10 used"})
    reason = planner.degraded_reason
    restraint({"slow": "x"})
    restored = planner.degraded_reason
    restraint({"degrade": "again"})
    planner.degrade("it fails")
    restraint({})

    assert (reason, restored, planner.degraded_reason) == ("budget hour.tokens: 10 of 10 used", None, "it fails")
    assert agent.state == "created"


async def test_the_wait_of_a_slow_agent_is_its_longest(clock: VirtualClock) -> None:
    agent, _, restraint = restrained(clock)
    longest = agent.setup.pace.max_interval
    waits = (0.0, 1.0, longest + 4.0, None)

    before = tuple(agent.setup.paced(wait) for wait in waits)
    restraint({"slow": "x"})
    slowed = tuple(agent.setup.paced(wait) for wait in waits)
    restraint({})

    assert before == waits == tuple(agent.setup.paced(wait) for wait in waits)
    assert slowed == (longest, longest, longest + 4.0, None)


async def test_a_paused_agent_is_told_of_and_goes_on_when_its_budget_is_renewed(clock: VirtualClock) -> None:
    agent, _, restraint = restrained(clock)
    alerts = heard(agent, HealthAlert, HealthRecovered)

    async with agent:
        restraint({"pause": "budget day.effects: 12 of 10 used"})
        await clock.sleep(5)
        during = agent.state
        restraint({})
        await clock.sleep(5)
        after = agent.state

    assert (during, after) == ("paused", "running")
    assert [(type(alert), alert.kind) for alert in alerts] == [(HealthAlert, "budget"), (HealthRecovered, "budget")]
    assert (alerts[0].severity, "budget day.effects" in alerts[0].message) == ("critical", True)


async def test_an_agent_that_somebody_resumes_goes_on_but_a_restart_does_not_end_a_pause(clock: VirtualClock) -> None:
    agent, _, restraint = restrained(clock)
    restraint({"pause": "all used"})
    states = []

    async def settle() -> None:
        await clock.sleep(5)
        states.append(agent.state)

    async with agent:
        await settle()
        await agent.resume()
        await settle()
        await agent.pause()
        restraint({})
        await settle()

    assert states == ["paused", "running", "paused"]


# -- settings


def test_the_defaults_let_an_agent_work_and_bound_what_it_costs() -> None:
    limits = from_mapping({}).budgets.limits

    assert limits["cycle", "calls"] == 10_000
    assert limits["hour", "money"] * 24 > limits["day", "money"]
    assert limits["day", "money"] * 30 > limits["month", "money"] == 50_000_000
    off = {window: dict.fromkeys(QUANTITIES, "off") for window in WINDOWS}
    assert BudgetSettings.off().limits == from_mapping({"budgets": off}).budgets.limits == {}


@pytest.mark.parametrize(("written", "amount"), [(0.1, 100_000), ("0.10", 100_000), (3, 3_000_000), (0, 0), (1e-6, 1)])
def test_money_is_counted_in_millionths_exactly(written: Any, amount: int) -> None:
    settings = from_mapping({"budgets": {"hour": {"money": written}}}).budgets

    assert settings.limits["hour", "money"] == amount
    assert in_micro(7) == 7


@pytest.mark.parametrize(
    ("key", "value"),
    [("money", -1), ("money", "1e-7"), ("money", float("inf")), ("money", True), ("money", 10**12),
     ("tokens", 1.5), ("tokens", -1), ("calls", "many"), ("calls", 10**16), ("requests", None)],
)  # fmt: skip
def test_an_amount_in_the_settings_that_is_none_is_an_error(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"budgets\.day\.{key} = .*: must .* or 'off'"):
        from_mapping({"budgets": {"day": {key: value}}})


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.integers(0, 40)),
        st.tuples(st.just("settle"), st.integers(0, 40)),
        st.tuples(st.just("call"), st.integers(1, 3)),
        st.tuples(st.just("crash"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("jump"), st.integers(-3, 3)),
    ),
    max_size=40,
)


class WallClock:
    """A clock that is only looked at."""

    def __init__(self) -> None:
        self.wall = START

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return 0.0

    def call_at(self, when: float, callback: Any) -> Any:
        return self

    def cancel(self) -> None: ...


@settings(max_examples=60, deadline=None)
@given(_steps)
def test_whatever_happens_no_window_uses_more_than_its_limit_and_none_less_than_nothing(steps: Any) -> None:
    limits: Any = {("hour", "tokens"): 100, ("day", "tokens"): 180, ("hour", "calls"): 6}
    most = {"hour": {"tokens": 100, "calls": 6}, "day": {"tokens": 180}}
    clock = WallClock()
    case = Case(limits, clock)
    in_flight: list[tuple[int, Reservation]] = []
    spent: dict[str, int] = {}  # tokens that were really used, by the hour in which they were reserved
    hours: dict[int, str] = {}

    def begin_anew(rows: list[Spend], journal: Rows) -> None:
        nonlocal case
        case = Case(limits, clock, rows)
        case.journal = journal
        case.budgets.open(journal)
        in_flight.clear()

    def reserve(amount: int) -> None:
        coroutine = case.budgets.reserve({"tokens": amount})
        while True:
            try:
                coroutine.send(None)
            except StopIteration as stop:
                in_flight.append((amount, stop.value))
                hours[id(stop.value)] = name_of("hour", span("hour", clock.wall)[0])
                return
            except BudgetError:
                return

    for what, number in steps:
        if what == "reserve":
            reserve(number)
        elif what == "settle" and in_flight:
            amount, reservation = in_flight.pop(0)
            took = min(number, amount)
            hour = hours[id(reservation)]
            spent[hour] = spent.get(hour, 0) + took
            reservation.settle({"tokens": took})
        elif what == "call":
            case.calls(number)
            case.journal.write()
        elif what == "crash":
            begin_anew(case.journal.crash(), case.journal)
        elif what == "restart":
            case.journal.write()
            begin_anew(case.journal.rows, case.journal)
        elif what == "jump":
            clock.wall += timedelta(hours=number)
        for row in case.journal.rows:
            assert 0 <= row.amount <= most[row.window.partition(":")[0]][row.quantity]
        for each in case.budgets.snapshot():
            assert 0 <= each["used"] <= each["limit"]
    for hour, tokens in spent.items():
        assert (
            case.journal.used.get((hour, "tokens"), 0)
            + sum(each.amount for each in case.journal.told if (each.window, each.quantity) == (hour, "tokens"))
            >= tokens
        )
