"""Failover: several models as one. The first model that may be asked answers; the others stand in for it.

    models = Models([ProviderModel("openai:gpt-5"), ProviderModel("local", base_url=…)], clock=clock, budgets=budgets)
    pieces = await models(request)

Before a request is sent, its largest possible use is reserved in the budgets; after it, the reservation is settled with
the real use. Another model is asked only if no piece of an answer was passed on yet, and only for a fault that another
model may not have. The same model is asked once more only after a broken connection. If no model can be asked now,
`DeferredError` says when to try again. The caller waits, so this module has no retry loop that could flood a provider.

Each model has a circuit breaker. A closed breaker lets requests through. It opens after as many faults in a row as the
kind of fault tolerates. An open breaker lets no request through for a time: the provider's `retry-after`; half an hour
if people have to do something; else 30 s, 1 minute and 5 minutes, longer each time that it opens again. Then it is half
open: it lets one request through (the probe), and its result closes or opens the breaker.

Source: M. Nygard, "Release It!", 2nd ed. 2018, chapter 5; the steps are those of OpenClaw's model failover.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, nullcontext, suppress
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from planning.ports import Model, Piece, Request, ThoughtDelta, Usage, pieces_of
from planning.resilience.provider_errors import (
    SHORTEST,
    TREATMENTS,
    FaultKind,
    ProviderError,
    UnsentError,
    provider_error,
)
from spar.clock import Clock
from spar.errors import ConfigError, TransientError
from spar.ports.budgets import NOTHING, BudgetError, BudgetRefusal, Quantity, RequestBudgets, RequestReservation
from spar.protocols import Host, ModelState
from spar.records.run_options import Thinking

State = Literal["closed", "open", "half_open"]

#: Seconds that a breaker stays open the first, second, third and later time in a row.
RESTS: Final = (30.0, 60.0, 300.0)
#: Seconds that another request waits at least while the probe runs.
_PROBE: Final = 5.0


class Breaker(Struct, frozen=True):
    """State of a circuit breaker. `until` is a time of the monotonic clock; `faults` and `openings` count in a row."""

    faults: int = 0
    openings: int = 0
    until: float = 0.0
    is_probed: bool = False
    last: FaultKind | None = None

    def state(self, now: float) -> State:
        """Return the state at this time."""
        if not self.openings:
            return "closed"
        return "open" if now < self.until else "half_open"

    def wait(self, now: float) -> float:
        """Return the seconds until the model may be asked; 0 if it may be asked now."""
        if not self.openings:
            return 0.0
        return max(self.until - now, _PROBE if self.is_probed else 0.0)

    def begun(self, now: float) -> tuple[Breaker, bool]:
        """Return the breaker after the begin of a request, and whether the request is the probe.

        Call this only when `wait` is 0. Give the second value to `succeeded`, `abandoned` or `failed`.
        """
        if self.state(now) == "half_open":
            return replace(self, is_probed=True), True
        return self, False

    def succeeded(self, *, is_probe: bool) -> Breaker:
        """Return the breaker after an answer. An answer to a request from before the opening does not close it."""
        return Breaker() if is_probe or not self.openings else self

    def abandoned(self, *, is_probe: bool) -> Breaker:
        """Return the breaker after a request that was cancelled before its answer: it says nothing about the model."""
        return replace(self, is_probed=False) if is_probe else self

    def failed(
        self, kind: FaultKind, now: float, *, retry_after: float | None = None, is_probe: bool = False
    ) -> Breaker:
        """Return the breaker after a fault. A fault that is not the provider's counts as an answer."""
        treatment = TREATMENTS[kind]
        if not treatment.opens:
            return self.succeeded(is_probe=is_probe)
        faults, opens = self.faults + 1, is_probe or not self.openings
        if opens and not is_probe and faults < treatment.opens and retry_after is None:
            return replace(self, faults=faults, last=kind)
        rest = retry_after or treatment.rest or 0.0
        longer = max(self.until, now + rest)  # of an open one: this request began before and can only lengthen the wait
        until = now + (rest or RESTS[min(self.openings, len(RESTS) - 1)]) if opens else longer
        return Breaker(faults, self.openings + opens, until, self.is_probed and not is_probe, kind)


#: The use of a request to a model without `most`: one request; its tokens and money are unknown.
_UNKNOWN: Final[Mapping[Quantity, int | None]] = {"requests": 1, "tokens": None, "money": None}


def _advice(refusal: BudgetRefusal) -> str:
    """Return the remedy for a budget's refusal that does not end by waiting; "" for one that does."""
    if refusal.asked is None:
        return 'say what a million tokens cost (prices = { input = …, output = … }), or set that budget to "off"'
    if refusal.asked > refusal.limit:
        return "one request may take more than that: raise the budget, or let answers be shorter (max_tokens)"
    return ""


class Attempt(Struct, frozen=True):
    """Reason why one model did not answer. `kind` is the kind of its fault, or `resting`, `budget` (the budget will
    allow it later), `too dear` (the budget never allows it). `wait` is in seconds."""

    model: str
    kind: str
    message: str
    wait: float | None


class DeferredError(TransientError):
    """No model can be asked now. `retry_after` has the seconds until the first may be asked; None: unknown."""

    def __init__(self, attempts: tuple[Attempt, ...]) -> None:
        waits = [attempt.wait for attempt in attempts if attempt.wait is not None]
        wait = max(min(waits), SHORTEST) if waits else None
        reasons = "; ".join(attempt.message for attempt in attempts)
        when = "" if wait is None else f", try again in {wait:.0f} s"
        super().__init__(f"no model can answer now{when} ({reasons})", retry_after=wait)
        self.attempts = attempts


class _Route:
    """One model with its breaker and its counts. `label` is its name, with a number if another has the same name."""

    def __init__(self, model: Model, taken: Collection[str] = ()) -> None:
        self.model = model
        self.name = str(getattr(model, "name", "") or getattr(model, "__name__", "") or type(model).__name__)
        self.provider = str(getattr(model, "provider", "") or self.name)
        self.label, number = self.name, 1
        while self.label in taken:
            number += 1
            self.label = f"{self.name} ({number})"
        self.breaker = Breaker()
        self.answered_at: float | None = None
        self.fault = ""
        self.requests = self.faults = self.input_tokens = self.output_tokens = self.cost = 0

    def note(self, usage: Usage) -> None:
        """Add the usage of a request to the counts."""
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cost += usage.cost or 0


class Models:
    """A `Model` that asks several models in the order of preference or of the request. `aclose` closes them.

    Args:
        models: `ProviderModel`s or any model; its `name`, `provider`, `most(request)` and `aclose()` are used if it has
            them. All models of a provider rest when its key, its account or the connection to it fails.
        further: models that are asked only by requests that name them.
        allowed: the names that people may choose from; None: all.
        budgets: the budgets of requests, tokens and money; None: no budgets.

    Raises, while the answer is read: `DeferredError`; a `ProviderError` that another model would meet too; ConfigError
    for a model with a wrong configuration.
    """

    def __init__(
        self,
        models: Iterable[Model],
        *,
        clock: Clock,
        budgets: RequestBudgets | None = None,
        further: Iterable[Model] = (),
        allowed: Iterable[str] | None = None,
    ) -> None:
        self._by_label: dict[str, _Route] = {}
        for model in models:
            self._add(model)
        if not self._by_label:
            raise ConfigError("at least one model is needed", path=("models",))
        self._chain = tuple(self._by_label)
        for model in further:
            self._add(model)
        self._routes = list(self._by_label.values())
        #: The names that people may choose from.
        self.allowed = tuple(self._by_label if allowed is None else allowed)
        #: Returns whether a request is too long for a model but could be made shorter. The planner sets this.
        self.is_too_long: Callable[[str, Request], bool] = lambda label, request: False
        self._clock = clock
        self.budgets = budgets
        self._deferred = self._fallbacks = 0
        self._report_state: Callable[[ModelState], None] = lambda state: None

    def _add(self, model: Model) -> None:
        route = _Route(model, self._by_label)
        self._by_label[route.label] = route

    def order(self, first: str | None = None) -> tuple[str, ...]:
        """Return the names of the models in the order in which they are asked.

        Args: first: a model that is asked before the preferred ones.
        Raises: ConfigError when there is no model of this name.
        """
        if first is not None and first not in self._by_label:
            raise ConfigError(f"there is no model {first!r}; there are: {', '.join(self._by_label)}", path=("model",))
        return self._chain if first is None else (first, *(label for label in self._chain if label != first))

    def in_turn(self, order: Sequence[str]) -> str:
        """Return the name of the model that is asked now: the first one that does not rest; if all rest, the first."""
        now = self._clock.monotonic()
        return next((label for label in order if not self._by_label[label].breaker.wait(now)), order[0])

    def room(self, name: str, thinking: Thinking | None = None) -> int | None:
        """Return the tokens that a request to this model may have; None if unknown."""
        route = self._by_label.get(name)
        room = getattr(route.model, "room", None) if route is not None else None
        tokens: int | None = room(thinking) if callable(room) else None
        return tokens

    async def refusal_of(self, name: str, thinking: Thinking) -> str:
        """Return the reason why this model does not support this much thinking; "" if it does or that is unknown."""
        refusal_of = getattr(self._by_label[name].model, "refusal_of", None)
        reason: str = await refusal_of(thinking) if callable(refusal_of) else ""
        return reason

    def attach(self, host: Host) -> None:
        """Report the state of each model to the agent, now and whenever its breaker opens or closes."""
        self._report_state = host.tell_model
        for route in self._routes:
            self._report_state(_model_state(route))

    @property
    def name(self) -> str:
        """Return the name of the preferred model."""
        return self._routes[0].name

    async def __call__(self, request: Request) -> AsyncIterator[Piece]:
        """Return the pieces of the answer. The request is sent when the first piece is read; closing them ends it.

        There may be several `Usage`s, one for each model that used tokens; the last one names the answering model.
        """
        return self._pieces(request)

    async def load(self) -> None:
        """Let each model load its libraries. A model that fails here raises its error again when it is asked."""
        for route in self._routes:
            if callable(load := getattr(route.model, "load", None)):
                with suppress(Exception):
                    await load()

    async def aclose(self) -> None:
        """Close all models. Raises: the first error, after all models were closed."""
        failed: Exception | None = None
        for route in self._routes:
            if callable(close := getattr(route.model, "aclose", None)):
                try:
                    await close()
                except Exception as error:
                    failed = failed or error
        if failed is not None:
            raise failed

    def snapshot(self) -> dict[str, Any]:
        """Return for each model the state of its breaker (`state`, `wait` in seconds), its last fault, the seconds
        since its last answer (None: it never answered) and its counts so far."""
        now = self._clock.monotonic()
        models = [
            {"model": route.name, "state": route.breaker.state(now), "wait": route.breaker.wait(now),
             "last_success_age": None if route.answered_at is None else now - route.answered_at,
             "fault": route.fault or None,
             "requests": route.requests, "faults": route.faults,
             "input_tokens": route.input_tokens, "output_tokens": route.output_tokens, "cost": route.cost,
             **getattr(route.model, "given_settings", {})}
            for route in self._routes
        ]  # fmt: skip
        return {"models": models, "deferred": self._deferred, "fallbacks": self._fallbacks}

    # -- asking

    async def _pieces(self, request: Request) -> AsyncIterator[Piece]:
        attempts: list[Attempt] = []
        has_thought = False  # a model streamed thoughts and no answer yet
        routes = [self._by_label[label] for label in request.models or self._chain if label in self._by_label]
        for route in routes:
            if self.is_too_long(route.label, request):
                raise provider_error("overflow", route.label, "the request was made for a model that reads more")
            for _ in range(2):
                if wait := route.breaker.wait(self._clock.monotonic()):
                    reason = f"{route.name} rests for {wait:.0f} s after {route.breaker.last!r}"
                    attempts.append(Attempt(route.name, "resting", reason, wait))
                    break
                if has_thought:
                    has_thought = False
                    yield ThoughtDelta("", reset=True)
                is_handed_out = False
                try:
                    async with aclosing(self._ask(route, request)) as pieces:
                        async for piece in pieces:
                            is_handed_out = is_handed_out or not isinstance(piece, (Usage, ThoughtDelta))
                            has_thought = has_thought or isinstance(piece, ThoughtDelta)
                            yield piece
                    self._fallbacks += route is not routes[0]
                    return
                except BudgetError as error:
                    if advice := _advice(error.refusal):
                        attempts.append(Attempt(route.name, "too dear", f"{route.name}: {error}; {advice}", None))
                    else:
                        attempts.append(Attempt(route.name, "budget", f"{route.name}: {error}", error.retry_after))
                    break
                except ProviderError as error:
                    if is_handed_out or not error.treatment.other:
                        raise
                    wait = route.breaker.wait(self._clock.monotonic())
                    attempts.append(Attempt(route.name, error.kind, str(error), wait))
                    if not error.treatment.again:
                        break
        if all(attempt.kind == "too dear" for attempt in attempts):
            raise UnsentError("; ".join(attempt.message for attempt in attempts))
        self._deferred += 1
        raise DeferredError(tuple(attempts))

    async def _ask(self, route: _Route, request: Request) -> AsyncGenerator[Piece]:
        """Send a request to one model and yield its answer; settle the reservation and update the breaker."""
        route.breaker, is_probe = route.breaker.begun(self._clock.monotonic())
        is_known = is_handed_out = False
        try:
            reservation = await self._reserve(route, request)
            settle = _no_settlement if reservation is None else reservation.settle
            with reservation or nullcontext():
                route.requests += 1
                used: Counter[Quantity] = Counter()
                try:
                    async with pieces_of(route.model, request) as pieces:
                        async for piece in pieces:
                            if isinstance(piece, Usage):
                                route.note(piece)
                                used.update(_amounts(piece))
                            is_handed_out = True
                            yield piece
                except (ProviderError, TransientError) as error:
                    is_known = True
                    fault = self._note(route, error, is_probe)
                    if fault.treatment.is_free and not is_handed_out:
                        settle(NOTHING)
                    elif used:
                        settle({**used, "requests": 1})
                    raise fault from (None if fault is error else error)
                is_known = True
                route.answered_at = self._clock.monotonic()
                self._set_breaker(route, route.breaker.succeeded(is_probe=is_probe))
                if used:
                    settle({**used, "requests": 1})
        finally:
            if not is_known:
                route.breaker = route.breaker.abandoned(is_probe=is_probe)

    async def _reserve(self, route: _Route, request: Request) -> RequestReservation | None:
        """Return a reservation for the largest possible use; None without budgets. Raises: BudgetError."""
        if self.budgets is None:
            return None
        most = getattr(route.model, "most", None)
        amounts = await most(request) if callable(most) else _UNKNOWN
        amounts = {"cached_tokens": amounts["tokens"], **amounts}  # a cache may serve any of them
        return await self.budgets.reserve(amounts, cycle_id=request.cycle_id, what=route.name)

    def _note(self, failed_route: _Route, error: ProviderError | TransientError, is_probe: bool) -> ProviderError:
        """Record a fault for this model and all models that it concerns, and return it as a `ProviderError`."""
        fault = error
        if not isinstance(fault, ProviderError):  # the model's errors have no kind
            fault = provider_error("server", failed_route.name, str(error), retry_after=error.retry_after)
        failed_route.faults += 1
        for route in self._routes:
            if route is failed_route or (fault.treatment.everywhere and route.provider == failed_route.provider):
                route.fault = str(fault)
                after = route.breaker.failed(
                    fault.kind,
                    self._clock.monotonic(),
                    retry_after=fault.retry_after,
                    is_probe=is_probe and route is failed_route,
                )
                self._set_breaker(route, after)
        return fault

    def _set_breaker(self, route: _Route, after: Breaker) -> None:
        """Set the breaker of a model, and report the model's state if it has opened or closed."""
        before, route.breaker = route.breaker, after
        if after.openings != before.openings:
            self._report_state(_model_state(route))


def _no_settlement(used: Mapping[Quantity, int | None]) -> None:
    """Settle nothing, because there are no budgets."""


def _model_state(route: _Route) -> ModelState:
    if not route.breaker.openings:
        return ModelState(route.name)
    return ModelState(route.name, "open", route.fault, route.breaker.until)


def _amounts(usage: Usage) -> dict[Quantity, int]:
    """Return a usage as quantities of budgets. If its cost is unknown, the reserved money is charged."""
    amounts = usage.amounts
    if usage.cost is not None:
        amounts["money"] = usage.cost
    return amounts
