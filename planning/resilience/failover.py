"""Several models as one: the first that may be asked answers, the others are there for when it cannot.

    models = Models([ProviderModel("openai:gpt-5"), ProviderModel("local", base_url=…)], clock=clock, budgets=budgets)
    pieces = await models(request)

Each request is paid for before it is sent: the most that it can take is reserved, and settled by what it took. Another
model is asked only while nothing has been handed out, and only for a fault that another may not have; the same one is
asked once more only after a connection that broke. When nobody can be asked now, that is a `DeferredError`, which says
when it is worth coming back: waiting is the asker's affair, so there are no loops here, and no storms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final

from msgspec import Struct

from planning.ports import Model, Piece, Request, ThoughtDelta, Usage, pieces_of
from planning.resilience import breaker
from planning.resilience.breaker import Breaker
from planning.resilience.provider_errors import SHORTEST, ProviderError, provider_error
from spar.clock import Clock
from spar.errors import ConfigError, PermanentError, TransientError
from spar.ports.budgets import NOTHING, BudgetError, BudgetRefusal, Quantity, RequestBudgets, RequestReservation
from spar.protocols import Host, ModelState
from spar.records.run_options import Thinking

#: What a model takes that does not say it (`most`): one request, and nobody knows how much else.
_UNKNOWN: Final[Mapping[Quantity, int | None]] = {"requests": 1, "tokens": None, "money": None}


def _advice(refusal: BudgetRefusal) -> str:
    """Return the remedy for a refusal that waiting does not change; "" where it does."""
    if refusal.asked is None:
        return 'say what a million tokens cost (prices = { input = …, output = … }), or set that budget to "off"'
    if refusal.asked > refusal.limit:
        return "one request may take more than that: raise the budget, or let answers be shorter (max_tokens)"
    return ""


class Attempt(Struct, frozen=True):
    """Why one model did not answer; `kind` is that of its fault, or `resting`, `budget` (there will be more of it),
    `too dear` (there never will be enough); `wait` in seconds."""

    model: str
    kind: str
    message: str
    wait: float | None


class DeferredError(TransientError):
    """No model can be asked now. `retry_after` is when the first may be, in seconds; None: nobody knows."""

    def __init__(self, attempts: tuple[Attempt, ...]) -> None:
        waits = [each.wait for each in attempts if each.wait is not None]
        wait = max(min(waits), SHORTEST) if waits else None
        told = "; ".join(each.message for each in attempts)
        when = "" if wait is None else f", try again in {wait:.0f} s"
        super().__init__(f"no model can answer now{when} ({told})", retry_after=wait)
        self.attempts = attempts


class _Route:
    """One model, and how it has been; `label` is its name, made different where two have the same one."""

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
        """Count what a request took."""
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cost += usage.cost or 0


class Models:
    """A `Model` over several, in the order of preference, or in that of the request. Closes them with `aclose`.

    Args:
        models: `ProviderModel`s, or any model; `name`, `provider`, `most(request)` and `aclose()` are used where it has
            them. Of those of one provider all rest when the key, the account or the way there is to blame.
        further: models that are asked only by requests that name them.
        allowed: the names that people may choose from; None: all.
        budgets: what requests, tokens and money are reserved from; None: nobody counts.

    Raises, while the answer is read: `DeferredError`, or the `ProviderError` that no other model would have helped
    against; ConfigError for a model that cannot be used as it is configured.
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
        #: Whether a request is too long for a model, though it could be made shorter; set by who makes requests.
        self.is_too_long: Callable[[str, Request], bool] = lambda label, request: False
        self._clock = clock
        self.budgets = budgets
        self._deferred = self._fallbacks = 0
        self._tell: Callable[[ModelState], None] = lambda state: None

    def _add(self, model: Model) -> None:
        route = _Route(model, self._by_label)
        self._by_label[route.label] = route

    def order(self, first: str | None = None) -> tuple[str, ...]:
        """Return the names of the models in the order in which they are asked.

        Args: first: one that is to be asked before those that are preferred.
        Raises: ConfigError for one that is not there.
        """
        if first is not None and first not in self._by_label:
            raise ConfigError(f"there is no model {first!r}; there are: {', '.join(self._by_label)}", path=("model",))
        return self._chain if first is None else (first, *(each for each in self._chain if each != first))

    def in_turn(self, order: Sequence[str]) -> str:
        """Return the name of the model that is asked now: the first that does not rest, or the first of all."""
        now = self._clock.monotonic()
        return next((each for each in order if not breaker.wait(self._by_label[each].breaker, now)), order[0])

    def room(self, name: str, thinking: Thinking | None = None) -> int | None:
        """Return the tokens that a request to this model may have; None where nobody knows."""
        route = self._by_label.get(name)
        room = getattr(route.model, "room", None) if route is not None else None
        found: int | None = room(thinking) if callable(room) else None
        return found

    async def refusal_of(self, name: str, thinking: Thinking) -> str:
        """Return why this model cannot think so much; "" where it can, or nobody knows."""
        asked = getattr(self._by_label[name].model, "refusal_of", None)
        why: str = await asked(thinking) if callable(asked) else ""
        return why

    def attach(self, host: Host) -> None:
        """Have the agent told which models there are, and whenever one is left alone or answers again."""
        self._tell = host.tell_model
        for route in self._routes:
            self._tell(_told(route))

    @property
    def name(self) -> str:
        """The name of the model that is preferred."""
        return self._routes[0].name

    async def __call__(self, request: Request) -> AsyncIterator[Piece]:
        """The pieces of the answer. Nothing is sent until they are asked for; closing them ends the request.

        There may be several `Usage`s, one for each model that took something; the last names who answered.
        """
        return self._pieces(request)

    async def load(self) -> None:
        """Let each model load what it needs; one that cannot says why when it is asked."""
        for route in self._routes:
            if callable(load := getattr(route.model, "load", None)):
                with suppress(Exception):
                    await load()

    async def aclose(self) -> None:
        """Close all models. Raises: the first error, after all were closed."""
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
        """Each model: whether it may be asked (`state`, `wait` in seconds), its last fault, how long ago it answered
        (seconds; None: never), what it took so far."""
        now = self._clock.monotonic()
        models = [
            {"model": each.name, "state": breaker.state(each.breaker, now), "wait": breaker.wait(each.breaker, now),
             "last_success_age": None if each.answered_at is None else now - each.answered_at,
             "fault": each.fault or None,
             "requests": each.requests, "faults": each.faults,
             "input_tokens": each.input_tokens, "output_tokens": each.output_tokens, "cost": each.cost,
             **getattr(each.model, "told", {})}
            for each in self._routes
        ]  # fmt: skip
        return {"models": models, "deferred": self._deferred, "fallbacks": self._fallbacks}

    # -- asking

    async def _pieces(self, request: Request) -> AsyncIterator[Piece]:
        attempts: list[Attempt] = []
        has_thought = False  # a model that did not come to an answer
        routes = [self._by_label[each] for each in request.models or self._chain if each in self._by_label]
        for route in routes:
            if self.is_too_long(route.label, request):
                raise provider_error("overflow", route.label, "the request was made for a model that reads more")
            for _ in range(2):
                if wait := breaker.wait(route.breaker, self._clock.monotonic()):
                    why = f"{route.name} rests for {wait:.0f} s after {route.breaker.last!r}"
                    attempts.append(Attempt(route.name, "resting", why, wait))
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
                    wait = breaker.wait(route.breaker, self._clock.monotonic())
                    attempts.append(Attempt(route.name, error.kind, str(error), wait))
                    if not error.treatment.again:
                        break
        if all(each.kind == "too dear" for each in attempts):
            raise PermanentError("; ".join(each.message for each in attempts))
        self._deferred += 1
        raise DeferredError(tuple(attempts))

    async def _ask(self, route: _Route, request: Request) -> AsyncGenerator[Piece]:
        """One request to one model: reserved, sent, settled, and what was learnt of the model noted."""
        route.breaker, is_probe = breaker.begun(route.breaker, self._clock.monotonic())
        is_known = is_handed_out = False
        try:
            with await self._reserved(route, request) as reservation:
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
                        reservation.settle({**NOTHING, "requests": 1})
                    elif used:
                        reservation.settle({**used, "requests": 1})
                    raise fault from (None if fault is error else error)
                is_known = True
                route.answered_at = self._clock.monotonic()
                self._turn(route, breaker.succeeded(route.breaker, is_probe=is_probe))
                if used:
                    reservation.settle({**used, "requests": 1})
        finally:
            if not is_known:
                route.breaker = breaker.abandoned(route.breaker, is_probe=is_probe)

    async def _reserved(self, route: _Route, request: Request) -> RequestReservation | _Free:
        """Raises: BudgetError when there is not enough left for it."""
        if self.budgets is None:
            return _Free()
        most = getattr(route.model, "most", None)
        amounts = await most(request) if callable(most) else _UNKNOWN
        return await self.budgets.reserve(amounts, cycle_id=request.cycle_id, what=route.name)

    def _note(self, route: _Route, error: ProviderError | TransientError, is_probe: bool) -> ProviderError:
        """Remember what went wrong, for all whom it concerns."""
        fault = error
        if not isinstance(fault, ProviderError):  # of a model that does not tell kinds apart
            fault = provider_error("server", route.name, str(error), retry_after=error.retry_after)
        route.faults += 1
        for each in self._routes:
            if each is route or (fault.treatment.everywhere and each.provider == route.provider):
                each.fault = str(fault)
                after = breaker.failed(
                    each.breaker,
                    fault.kind,
                    self._clock.monotonic(),
                    retry_after=fault.retry_after,
                    is_probe=is_probe and each is route,
                )
                self._turn(each, after)
        return fault

    def _turn(self, route: _Route, after: Breaker) -> None:
        """Take what is known of a model now, and tell if it is left alone anew or no longer."""
        before, route.breaker = route.breaker, after
        if after.openings != before.openings:
            self._tell(_told(route))


class _Free:
    """A reservation of nothing, where nobody counts."""

    def __enter__(self) -> _Free:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def settle(self, used: Mapping[Quantity, int | None] | None = None) -> None:
        pass


def _told(route: _Route) -> ModelState:
    if not route.breaker.openings:
        return ModelState(route.name)
    return ModelState(route.name, "open", route.fault, route.breaker.until)


def _amounts(usage: Usage) -> dict[Quantity, int]:
    """Return a usage as quantities of budgets; without a known cost all that was reserved is paid."""
    amounts: dict[Quantity, int] = {"tokens": usage.input_tokens + usage.output_tokens}
    if usage.cost is not None:
        amounts["money"] = usage.cost
    return amounts
