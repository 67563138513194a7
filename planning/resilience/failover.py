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
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final

from msgspec import Struct

from planning.ports import Model, Piece, Request, Usage, pieces_of
from planning.resilience import breaker
from planning.resilience.breaker import Breaker
from planning.resilience.provider_errors import SHORTEST, ProviderError, provider_error
from spar.clock import Clock
from spar.errors import ConfigError, PermanentError, TransientError
from spar.ports.budgets import NOTHING, BudgetError, BudgetRefusal, Quantity, RequestBudgets, RequestReservation
from spar.protocols import Host, ModelState

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
    """One model, and how it has been."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.name = str(getattr(model, "name", "") or getattr(model, "__name__", "") or type(model).__name__)
        self.provider = str(getattr(model, "provider", "") or self.name)
        self.breaker = Breaker()
        self.fault = ""
        self.requests = self.faults = self.input_tokens = self.output_tokens = self.cost = 0

    def note(self, usage: Usage) -> None:
        """Count what a request took."""
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cost += usage.cost or 0


class Models:
    """A `Model` over several, in the order of preference. Closes them with `aclose`.

    Args:
        models: `ProviderModel`s, or any model; `name`, `provider`, `most(request)` and `aclose()` are used where it has
            them. Of those of one provider all rest when the key, the account or the way there is to blame.
        budgets: what requests, tokens and money are reserved from; None: nobody counts.

    Raises, while the answer is read: `DeferredError`, or the `ProviderError` that no other model would have helped
    against; ConfigError for a model that cannot be used as it is configured.
    """

    def __init__(self, models: Iterable[Model], *, clock: Clock, budgets: RequestBudgets | None = None) -> None:
        self._routes = [_Route(model) for model in models]
        if not self._routes:
            raise ConfigError("at least one model is needed", path=("models",))
        self._clock = clock
        self.budgets = budgets
        self._deferred = self._fallbacks = 0
        self._tell: Callable[[ModelState], None] = lambda state: None

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
        """Each model: whether it may be asked (`state`, `wait` in seconds), its last fault, what it took so far."""
        now = self._clock.monotonic()
        models = [
            {"model": each.name, "state": breaker.state(each.breaker, now), "wait": breaker.wait(each.breaker, now),
             "fault": each.fault or None, "requests": each.requests, "faults": each.faults,
             "input_tokens": each.input_tokens, "output_tokens": each.output_tokens, "cost": each.cost}
            for each in self._routes
        ]  # fmt: skip
        return {"models": models, "deferred": self._deferred, "fallbacks": self._fallbacks}

    # -- asking

    async def _pieces(self, request: Request) -> AsyncIterator[Piece]:
        attempts: list[Attempt] = []
        for route in self._routes:
            for _ in range(2):
                if wait := breaker.wait(route.breaker, self._clock.monotonic()):
                    why = f"{route.name} rests for {wait:.0f} s after {route.breaker.last!r}"
                    attempts.append(Attempt(route.name, "resting", why, wait))
                    break
                is_handed_out = False
                try:
                    async with aclosing(self._ask(route, request)) as pieces:
                        async for piece in pieces:
                            is_handed_out = is_handed_out or not isinstance(piece, Usage)
                            yield piece
                    self._fallbacks += route is not self._routes[0]
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
