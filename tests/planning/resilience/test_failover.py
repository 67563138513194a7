from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest

from planning.ports import Piece, Request, TextDelta, ThoughtDelta, Usage
from planning.resilience.failover import RESTS, Breaker, DeferredError, Models
from planning.resilience.provider_errors import TREATMENTS, FaultKind, provider_error
from spar.budgets.budgets import Budgets
from spar.errors import ConfigError, PermanentError, TransientError
from spar.journal.in_memory import JournalInMemory
from spar.ports.budgets import Limits
from spar.testing import Fail, Hang, RecordingEvents, ScriptedModel, VirtualClock, stream

ASK = Request(texts=("what now?",), cycle_id="c")
CALL = {"_tool": "look"}
ANSWER = stream([CALL, Usage("it", 100, 20, cost=500)])


def fault(kind: FaultKind, retry_after: float | None = None) -> Fail:
    return Fail(provider_error(kind, "it", "so", retry_after=retry_after))


class Named(ScriptedModel):
    """A model with a name, a provider and a price."""

    def __init__(self, name: str, *script: Any, provider: str = "", money: int | None = 1_000) -> None:
        super().__init__(script)
        self.name, self.provider, self.money = name, provider, money
        self.is_closed = False

    async def most(self, request: Request) -> dict[str, int | None]:
        return {"requests": 1, "tokens": 5_000, "money": self.money}

    async def aclose(self) -> None:
        self.is_closed = True


def budgets(clock: VirtualClock, limits: Limits) -> Budgets:
    made = Budgets(limits, clock, RecordingEvents())
    made.open(JournalInMemory())
    return made


def used(made: Budgets) -> dict[str, int]:
    return {each["budget"]: each["used"] for each in made.snapshot()}


@pytest.fixture
def made(clock: VirtualClock) -> Budgets:
    return budgets(clock, ALL)


async def said(models: Models) -> list[Piece]:
    return [piece async for piece in await models(ASK)]


def asked(models: Sequence[ScriptedModel]) -> list[int]:
    return [len(model.requests) for model in models]


async def test_the_first_answers_as_long_as_it_can() -> None:
    first, second = Named("first", ANSWER), Named("second")

    assert await said(Models([first, second], clock=VirtualClock())) == [CALL, Usage("it", 100, 20, cost=500)]
    assert asked([first, second]) == [1, 0]


async def test_a_model_that_has_only_thought_is_replaced_and_its_thoughts_are_void() -> None:
    first = Named("first", stream([ThoughtDelta("hm"), fault("server").error]))
    second = Named("second", stream([ThoughtDelta("aha"), TextDelta("x")]))

    assert await said(Models([first, second], clock=VirtualClock())) == [
        ThoughtDelta("hm"), ThoughtDelta("", reset=True), ThoughtDelta("aha"), TextDelta("x")
    ]  # fmt: skip


async def test_a_solution_handed_over_whole_is_a_piece() -> None:
    assert await said(Models([ScriptedModel([{"output": "x"}])], clock=VirtualClock())) == [{"output": "x"}]


@pytest.mark.parametrize(
    "kind", ["rate_limited", "overloaded", "server", "silent", "idle", "garbage", "auth", "billing", "not_found"]
)
async def test_another_answers_when_the_first_cannot(kind: FaultKind) -> None:
    models = [Named("first", fault(kind)), Named("second", ANSWER)]
    both = Models(models, clock=VirtualClock())

    assert CALL in await said(both)
    assert asked(models) == [1, 1]
    assert both.snapshot()["fallbacks"] == 1


@pytest.mark.parametrize("kind", ["overflow", "bad_request", "refused", "length"])
async def test_what_the_request_is_to_blame_for_goes_to_no_other_model(kind: FaultKind) -> None:
    models = [Named("first", fault(kind)), Named("second", ANSWER)]

    with pytest.raises(PermanentError) as caught:
        await said(Models(models, clock=VirtualClock()))

    assert caught.value.kind == kind  # type: ignore[attr-defined]
    assert asked(models) == [1, 0]


@pytest.mark.parametrize("piece", ["{", TextDelta("We"), CALL])
async def test_nobody_takes_over_once_a_piece_was_handed_out(piece: Piece) -> None:
    models = [Named("first", stream([piece, fault("truncated")])), Named("second", ANSWER)]
    pieces = await Models(models, clock=VirtualClock())(ASK)

    assert await anext(pieces) == piece
    with pytest.raises(TransientError, match="broke off"):
        await anext(pieces)
    assert asked(models) == [1, 0]


async def test_what_a_model_took_that_then_failed_is_no_reason_to_stay_with_it() -> None:
    took = Usage("first", 10, 0, cost=5)
    models = [Named("first", stream([took, fault("server")])), Named("second", ANSWER)]

    assert await said(Models(models, clock=VirtualClock())) == [took, CALL, Usage("it", 100, 20, cost=500)]


@pytest.mark.parametrize(
    ("script", "times"), [((fault("unreachable"), ANSWER), [2, 0]), ((fault("truncated"),), [2, 1])]
)
async def test_a_connection_that_broke_is_tried_once_more_and_no_more(script: Sequence[Any], times: list[int]) -> None:
    models = [Named("first", *script), Named("second", ANSWER)]

    assert CALL in await said(Models(models, clock=VirtualClock()))
    assert asked(models) == times


async def test_when_nobody_can_answer_it_is_said_when_to_come_back_and_why() -> None:
    models = [Named("first", fault("rate_limited", 45.0)), Named("second", fault("overloaded"))]
    both = Models(models, clock=VirtualClock())

    with pytest.raises(DeferredError) as caught:
        await said(both)

    assert caught.value.retry_after == 30.0
    assert [(each.model, each.kind, each.wait) for each in caught.value.attempts] == [
        ("first", "rate_limited", 45.0),
        ("second", "overloaded", 30.0),
    ]
    assert "try again in 30 s" in str(caught.value)
    assert "it takes no more requests for now: so" in str(caught.value)
    assert both.snapshot()["deferred"] == 1


async def test_a_model_that_rests_is_not_asked_until_its_time_has_come(clock: VirtualClock) -> None:
    model = Named("it", fault("rate_limited", 45.0), ANSWER)
    models = Models([model], clock=clock)
    for _ in range(3):
        with pytest.raises(DeferredError):
            await said(models)
    assert asked([model]) == [1]

    await clock.sleep(44.0)
    with pytest.raises(DeferredError) as caught:
        await said(models)
    assert caught.value.retry_after == pytest.approx(1.0)
    assert caught.value.attempts[0].kind == "resting"
    await clock.sleep(1.0)

    assert CALL in await said(models)
    assert models.snapshot()["models"][0]["state"] == "closed"


async def test_a_provider_that_stays_down_is_asked_ever_less_often(clock: VirtualClock) -> None:
    model = Named("it", fault("overloaded"))
    models = Models([model], clock=clock)
    for _ in range(3_600):
        with pytest.raises(DeferredError):
            await said(models)
        await clock.sleep(1.0)

    assert asked([model])[0] <= 15


async def test_one_probe_at_a_time_and_one_that_is_given_up_lets_the_next_try(clock: VirtualClock) -> None:
    model = Named("it", fault("overloaded"), stream([Hang()]), ANSWER)
    models = Models([model], clock=clock)
    with pytest.raises(DeferredError):
        await said(models)
    await clock.sleep(30.0)
    probe = asyncio.ensure_future(said(models))
    await clock.sleep(1.0)

    with pytest.raises(DeferredError):
        await said(models)
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)

    assert CALL in await said(models)


@pytest.mark.parametrize(("kind", "times"), [("auth", [1, 0, 1]), ("rate_limited", [1, 1, 0])])
async def test_a_key_that_is_refused_holds_for_all_models_of_the_provider_but_a_limit_of_one_does_not(
    kind: FaultKind, times: list[int]
) -> None:
    models = [Named("a", fault(kind), provider="x"), Named("b", ANSWER, provider="x"), Named("c", ANSWER)]
    assert CALL in await said(Models(models, clock=VirtualClock()))
    assert asked(models) == times


async def test_a_model_that_knows_no_kinds_still_fails_over() -> None:
    models = [Named("a", Fail(TransientError("later", retry_after=9.0))), Named("b", ANSWER)]
    both = Models(models, clock=VirtualClock())

    assert CALL in await said(both)
    assert both.snapshot()["models"][0]["wait"] == 9.0


async def test_a_mistake_in_the_configuration_is_not_passed_over_and_no_model_at_all_is_one(
    clock: VirtualClock,
) -> None:
    models = [Named("a", Fail(ConfigError("no such provider"))), Named("b", ANSWER)]
    with pytest.raises(ConfigError):
        await said(Models(models, clock=clock))
    assert asked(models) == [1, 0]
    with pytest.raises(ConfigError, match="at least one model"):
        Models([], clock=clock)


async def test_all_are_closed_even_if_one_of_them_fails() -> None:
    class Broken(Named):
        async def aclose(self) -> None:
            raise OSError("broken")

    last = Named("last")

    with pytest.raises(OSError, match="broken"):
        await Models([Broken("a"), last], clock=VirtualClock()).aclose()

    assert last.is_closed


# -- what it takes


ALL: Limits = {("day", "requests"): 10, ("day", "tokens"): 20_000, ("day", "money"): 10_000}


async def test_what_a_request_took_is_what_it_costs_and_one_of_which_nobody_knows_the_cost_costs_the_most(
    clock: VirtualClock, made: Budgets
) -> None:
    models = Models([Named("it", ANSWER, stream([CALL, Usage("it", 100, 20)]))], clock=clock, budgets=made)

    await said(models)

    assert used(made) == {"day.requests": 1, "day.tokens": 120, "day.money": 500}
    told = models.snapshot()["models"][0]
    assert (told["requests"], told["input_tokens"], told["output_tokens"], told["cost"]) == (1, 100, 20, 500)
    await said(models)
    assert used(made) == {"day.requests": 2, "day.tokens": 240, "day.money": 1_500}


async def test_tokens_that_a_cache_served_have_a_budget_of_their_own(clock: VirtualClock) -> None:
    limits: Limits = {("day", "tokens"): 20_000, ("day", "cached_tokens"): 9_000}
    answer = stream([CALL, Usage("it", 4_500, 20, cached_tokens=4_000)])
    models = Models([Named("it", answer, answer)], clock=clock, budgets=(made := budgets(clock, limits)))

    async with aclosing(await models(ASK)) as pieces:  # type: ignore[type-var]
        await anext(pieces)
        assert used(made) == {"day.tokens": 5_000, "day.cached_tokens": 5_000}, "a cache may serve all of it"
        async for _ in pieces:
            pass

    assert used(made) == {"day.tokens": 520, "day.cached_tokens": 4_000}
    await said(models)
    with pytest.raises(DeferredError, match=r"budget day\.cached_tokens does not allow 5000 more"):
        await said(models)
    assert used(made) == {"day.tokens": 1_040, "day.cached_tokens": 8_000}

    more = stream([CALL, Usage("it", 100, 20, cached_tokens=9_999)])  # than was read
    await said(Models([Named("it", more)], clock=clock, budgets=(made := budgets(clock, limits))))
    assert used(made) == {"day.tokens": 20, "day.cached_tokens": 100}


async def test_the_most_it_can_take_is_reserved_while_it_answers_and_paid_if_nobody_says_less(
    clock: VirtualClock, made: Budgets
) -> None:
    models = Models([Named("it", stream([CALL, TextDelta("…")]))], clock=clock, budgets=made)

    async with aclosing(await models(ASK)) as pieces:  # type: ignore[type-var]
        await anext(pieces)
        reserved = used(made)

    assert reserved == used(made) == {"day.requests": 1, "day.tokens": 5_000, "day.money": 1_000}


@pytest.mark.parametrize(
    ("kind", "spent"),
    [("rate_limited", (0, 0)), ("auth", (0, 0)), ("overflow", (0, 0)), ("server", (1, 5_000)), ("silent", (1, 5_000))],
)
async def test_a_request_that_was_turned_away_costs_nothing(
    kind: FaultKind, spent: tuple[int, int], clock: VirtualClock, made: Budgets
) -> None:

    with pytest.raises((DeferredError, PermanentError)):
        await said(Models([Named("it", fault(kind))], clock=clock, budgets=made))

    assert (used(made)["day.requests"], used(made)["day.tokens"]) == spent


async def test_a_model_that_is_too_dear_gives_way_to_a_cheaper_one(clock: VirtualClock) -> None:
    models = [Named("dear", ANSWER, money=50_000), Named("unknown", ANSWER, money=None), Named("cheap", ANSWER)]

    assert CALL in await said(Models(models, clock=clock, budgets=budgets(clock, ALL)))
    assert asked(models) == [0, 0, 1]


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (lambda: Named("dear", ANSWER, money=50_000), r"dear: budget .*one request may take more than that"),
        (lambda: Named("unknown", ANSWER, money=None), r"unknown: budget .*say what a million tokens cost"),
    ],
)
async def test_what_no_budget_will_ever_allow_is_not_waited_for(model: Any, told: str, clock: VirtualClock) -> None:
    with pytest.raises(PermanentError, match=told):
        await said(Models([model()], clock=clock, budgets=budgets(clock, ALL)))


async def test_a_model_without_a_price_may_be_asked_where_money_has_no_limit(clock: VirtualClock) -> None:

    assert CALL in await said(
        Models([ScriptedModel([ANSWER])], clock=clock, budgets=budgets(clock, {("day", "requests"): 1}))
    )


async def test_when_the_budget_is_spent_it_is_said_when_there_will_be_more(clock: VirtualClock) -> None:
    model = Named("it", ANSWER)
    models = Models([model], clock=clock, budgets=budgets(clock, {("hour", "requests"): 1}))
    await said(models)

    with pytest.raises(DeferredError) as caught:
        await said(models)

    assert caught.value.retry_after == pytest.approx(3_600.0)
    assert caught.value.attempts[0].kind == "budget"
    assert asked([model]) == [1]
    assert models.snapshot()["models"][0]["state"] == "closed"


def test_it_is_closed_until_as_many_faults_in_a_row_as_their_kind_tolerates() -> None:
    once = Breaker().failed("garbage", 0.0)
    twice = once.failed("server", 1.0)
    thrice = twice.failed("garbage", 2.0)

    assert [each.state(2.0) for each in (once, twice, thrice)] == ["closed", "closed", "open"]
    assert thrice.wait(2.0) == RESTS[0]


@pytest.mark.parametrize("kind", ["auth", "billing", "not_found"])
def test_it_rests_long_where_people_have_to_do_something(kind: FaultKind) -> None:
    assert Breaker().failed(kind, 0.0).wait(0.0) == 1_800.0


def test_who_had_begun_before_it_opened_neither_closes_it_nor_climbs_its_steps() -> None:
    breaker = Breaker().failed("overloaded", 0.0)

    assert breaker.succeeded(is_probe=False) == breaker
    assert breaker.failed("overloaded", 1.0).wait(1.0) == 29.0
    assert breaker.failed("rate_limited", 1.0, retry_after=100.0).wait(1.0) == 100.0
    assert breaker.failed("overloaded", 1.0).openings == 1


@pytest.mark.parametrize("kind", [kind for kind, treatment in TREATMENTS.items() if not treatment.opens])
def test_a_fault_of_the_request_is_an_answer_of_the_provider(kind: FaultKind) -> None:
    probed, _ = Breaker().failed("overloaded", 0.0).begun(30.0)

    assert probed.failed(kind, 31.0, is_probe=True) == Breaker()
    assert Breaker(faults=2).failed(kind, 0.0) == Breaker()
