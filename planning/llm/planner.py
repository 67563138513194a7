"""A model makes the plan: one request a cycle, and each call is handed on the moment it is complete in the answer.

A run goes on, a request for each of its cycles, until there is an output. What belongs to no run is made one
(`host.pursue`), so that whatever is noticed can be pursued over several cycles. One cycle is `planning.llm.turn`'s
matter; here is what outlasts it. Who answers, falls back, waits or is paid is the model's affair
(`planning.resilience.failover`), whether a run has taken too much its lane's.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final, Literal

import msgspec

from planning.llm.delegates import CONSULTATION, Definitions, Delegates
from planning.llm.nesting import FRAME, Allowance, Frame
from planning.llm.request_digest import digest, kept, outline
from planning.llm.response import Solving
from planning.llm.turn import Cycle, Trouble
from planning.output_check import OutputCheck
from planning.ports import Kind, Model, Request, Usage
from planning.prompt.compaction import Compaction
from planning.prompt.history import Known
from planning.prompt.observations import bundled, parted
from planning.prompt.plans.advisors import CONSULT, read_council
from planning.prompt.prompts import MAIN
from planning.prompt.request import compose
from planning.prompt.token_budget import Gauge
from spar.errors import ConfigError, PermanentError
from spar.events import ModelRequested
from spar.protocols import CALLED_FOR, Context, Host, Lent
from spar.types import Action, Call, Perception

PlanMode = Literal["", "eager", "lazy"]
#: Of what can be read, the share from which on a conversation is summed up before a request is sent.
THRESHOLD: Final = 0.8
#: Tokens that are left for an answer where `max_tokens` says nothing: so many, or this share of what can be read.
_ANSWER: Final = (4_096, 0.25)
_MOST_RUNS: Final = 1_000
_MOST_SCHEMAS: Final = 32
_KEPT: Final = 5
_COUNTED: Final = ("requests", "tokens", "overflows", "deferred", "misfits", "empty", "unrecalled")


class ModelPlanner:
    """PLAN by a model.

    Args:
        model: answers requests (`planning.ports.Model`); closed with the planner, if it has an `aclose`.
        instructions: what the model reads first, after what spar itself says (`planning.prompt.prompts`).
        output: the schema of answers, for runs that have none of their own; None: any text or value.
        context_tokens: how much the model reads; None: not known, then only its refusals tell.
        max_tokens: how much one answer may have.
        recall: how many experiences a request is given; 0: none.
        pursue: whether what was noticed becomes a run; else it gets one request of its own.
        compaction_model: sums up long conversations; None: the model itself does.
        compaction: how that is done.
        threshold: the share of what it can read from which on that is done before a request is sent.
        definitions: what calls may be delegated to: `{"context": […], "schema": …}` by path, or a function of the path.
        plan_mode: keeps a run's calls as a plan from request to request: "eager" carries them out as they come, "lazy"
            once the plan is complete and goes round in no circle; "": no plan is kept.
        advisors: who has a say in each request of a run, as the advisor messages of a context (`id role schema on`).
        meta: what the work is and which version of it (`domain path version …`); the answers of a run make the next.

    In an agent the actor has delegated calls, consultations, and thoughts whose matter came later carried out here
    (`lends`); an executor by itself takes `Executor(tools, activities=planner.activities)`. Such requests think; they
    are given no tools.
    """

    def __init__(
        self,
        model: Model,
        *,
        instructions: str = "",
        output: Mapping[str, Any] | None = None,
        context_tokens: int | None = None,
        max_tokens: int | None = None,
        recall: int = 5,
        pursue: bool = True,
        compaction_model: Model | None = None,
        compaction: Compaction | None = None,
        threshold: float = THRESHOLD,
        definitions: Definitions | None = None,
        plan_mode: PlanMode = "",
        advisors: Sequence[Mapping[str, Any]] = (),
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        if plan_mode not in ("", "eager", "lazy"):
            raise ConfigError(f"plan_mode is {plan_mode!r}, expected 'eager' or 'lazy'", path=("plan_mode",))
        try:
            self.advisors = tuple({"type": "advisor", **each} for each in read_council((), advisors))
        except ValueError as error:
            raise ConfigError(str(error), path=("advisors",)) from error
        self.plan_mode, self.meta = plan_mode, meta
        self.model, self.compaction_model = model, compaction_model
        self.instructions = f"{MAIN}\n\n{instructions.strip()}" if instructions.strip() else MAIN
        self.output, self.max_tokens, self.recall, self.pursue = output, max_tokens, recall, pursue
        self._judges: OrderedDict[bytes, OutputCheck] = OrderedDict()
        if output is not None:
            try:
                self._judge(output)
            except ConfigError as error:
                raise ConfigError(f"the schema of answers cannot be used: {error}", path=("output",)) from error
        #: Tokens that a request may have; of a model that nobody knows the size of, learnt from its refusals.
        self.room = None if context_tokens is None else context_tokens - (max_tokens or answer_room(context_tokens))
        self.threshold = threshold
        self.compaction = compaction or Compaction(self.ask)
        self._delegates = Delegates(self._thought, definitions)
        self.activities = {**self._delegates.activities, CONSULT: self._consulted}
        #: By run or cycle, what advisors who are consulted know of the requests at hand.
        self._frames: OrderedDict[str, Frame] = OrderedDict()
        self.host: Host | None = None
        self._loading: set[asyncio.Task[None]] = set()
        #: What need not be made anew for each request: the texts of what was said, the schema of the same tools.
        self.known: Known = {}
        self.schema: tuple[list[Any], Mapping[str, Any]] = [], {}
        self.gauge = Gauge()
        #: The last requests as they were sent, the newest last, and how often what has happened.
        self.requests: deque[Request] = deque(maxlen=_KEPT)
        self.counts: Counter[str] = Counter()
        self._troubles: OrderedDict[str, Trouble] = OrderedDict()

    async def plan(
        self, perceptions: Sequence[Perception], context: Context | None = None
    ) -> AsyncGenerator[Call | Action]:
        """The calls as they come, then an action with the rest; nothing at all when there is nothing to do.

        Raises: what the model raises; PermanentError when no request is small enough, or no answer fits.
        """
        context = context or Context(agent="", cycle_id="")
        host = self.host
        if self.pursue and host is not None and host.pursue is not None:
            perceptions, strange = parted(perceptions, context)
            if strange:
                await host.pursue(bundled(strange, context.session))
        if context.run is None and not perceptions:
            return
        async with aclosing(Cycle(self, perceptions, context).planned()) as items:
            async for item in items:
                yield item

    async def ask(self, request: Request) -> Any:
        """The output of one request that stands by itself, as the compaction makes. Raises: what the model raises."""
        return await self._asked(self.compaction_model or self.model, request)

    async def _asked(self, model: Model, request: Request) -> Any:
        self.record(request)
        async with Solving(model, request) as solving:
            try:
                async for _ in solving:
                    pass
            finally:
                self.account(request, solving.usage, solving.chars)
        return solving.output

    async def _thought(
        self, context: Iterable[Any], output: Mapping[str, Any] | None, kind: Kind, instructions: str | None
    ) -> Any:
        """What the model makes of one piece of work. Raises: PermanentError when that is nothing, or does not fit."""
        cycle_id, run_id = CALLED_FOR.get()  # who called it pays for it
        request = compose(context, output=output, kind=kind, instructions=instructions, max_tokens=self.max_tokens,
                          purpose=kind, cycle_id=cycle_id, run_id=run_id)  # fmt: skip
        found, why = self.judged(await self._asked(self.model, request), output, ())
        if found is None:
            raise PermanentError(f"the model wrote no result: {why or 'its answer was empty'}")
        return found

    def lends(self) -> Lent:
        """Return what the actor needs to have calls carried out here."""
        is_consulted = any(each.get("on") is None for each in self.advisors)
        return Lent((CONSULTATION,) if is_consulted else (), self.activities)

    def advise(self, request: Request) -> None:
        """Let advisors who are consulted in a cycle or run know what its request says."""
        if self.advisors:
            frame = Frame(Allowance(0, 0), messages=[dict(each) for each in request.context],
                          advisors={str(each["id"]): each for each in self.advisors})  # fmt: skip
            self._frames[request.run_id or request.cycle_id] = frame
            if len(self._frames) > _MOST_RUNS:
                self._frames.popitem(last=False)

    async def _consulted(self, call: Call, tool: Mapping[str, Any], context: list[dict[str, Any]]) -> Any:
        """Carry out a call that asks an advisor; what it says is kept on the tape besides."""
        cycle_id, run_id = CALLED_FOR.get()
        frame = self._frames.get(run_id or cycle_id)
        token = FRAME.set(frame)
        try:
            said = await self._delegates.consult(call, tool, context)
        finally:
            FRAME.reset(token)
        self.keep(cycle_id, "advice", [{"id": call.params.get("advisor"), "advice": said}])
        return said

    def keep(self, cycle_id: str, kind: str, value: Any) -> None:
        """Have something that a solution said beside its calls and output kept with its cycle."""
        if self.host is not None and value:
            self.host.note(cycle_id, lambda: {"kind": kind, kind: value})

    def record(self, request: Request, attempt: int = 1) -> str:
        """Keep and tell what is about to be sent; its digest."""
        self.requests.append(request)
        named = digest(request)
        if self.host is not None:
            told = ModelRequested(cycle_id=request.cycle_id, run_id=request.run_id, digest=named, attempt=attempt,
                                  tokens=self.gauge.of(request), request=request)  # fmt: skip
            self.host.events.publish(told)
            self.host.note(request.cycle_id, partial(kept, request, named))
        return named

    def judged(
        self, output: Any, schema: Mapping[str, Any] | None, context: Sequence[Mapping[str, Any]]
    ) -> tuple[Any, str]:
        """An output with its references resolved, and what is wrong with it, "" if nothing is.

        Raises: PermanentError for a schema that cannot be used.
        """
        try:
            judge = self._judge(schema)
        except ConfigError as error:
            raise PermanentError(f"no answer can fit the schema that was asked for: {error}") from error
        return judge.check(output, context)

    def account(self, request: Request, usage: Usage | None, chars: int = 0) -> None:
        """Count what a request took, and learn how large a token is; `chars` were read of the answer."""
        # That nobody says what it took does not make it free.
        read, written, cached = self.gauge.of(request), self.gauge.tokens_in(chars), 0
        if usage is not None:
            read, written, cached = usage.input_tokens, usage.output_tokens, usage.cached_tokens
            self.gauge = self.gauge.learn(request, usage.input_tokens)
        used = {"requests": 1, "tokens": read + written}
        if usage is not None and usage.cost is not None:
            used["money"] = usage.cost
        self.counts.update({name: used[name] for name in ("requests", "tokens")})
        if request.run_id is not None and self.host is not None:
            self.host.used(request.run_id, used)
            parts = {"input_tokens": read, "output_tokens": written, "cached_tokens": cached}
            self.host.counted(request.run_id, parts)

    def _judge(self, schema: Mapping[str, Any] | None) -> OutputCheck:
        """Made once for each schema, as long as not too many others come in between."""
        key = msgspec.json.encode(schema)
        if (found := self._judges.get(key)) is None:
            found = self._judges[key] = OutputCheck(schema)
            if len(self._judges) > _MOST_SCHEMAS:
                self._judges.popitem(last=False)
        return found

    def trouble(self, run_id: str | None) -> Trouble:
        """What a run's answers have been lacking so far; the runs that were quiet for longest are forgotten."""
        if run_id is None:
            return Trouble()
        found = self._troubles.setdefault(run_id, Trouble())
        self._troubles.move_to_end(run_id)
        if len(self._troubles) > _MOST_RUNS:
            self._troubles.popitem(last=False)
        return found

    def snapshot(self) -> dict[str, Any]:
        """How many requests, tokens and troubles there were, and an outline of the last requests."""
        told: dict[str, Any] = {name: self.counts[name] for name in _COUNTED}
        told["bytes_per_token"] = round(self.gauge.bytes_per_token, 2)
        told["last"] = [outline(each, self.gauge.of(each)) for each in tuple(self.requests)]
        if callable(of_model := getattr(self.model, "snapshot", None)):
            told["model"] = of_model()
        return told

    def attach(self, host: Host) -> None:
        """Take what the agent lends, and have it told how the models are."""
        self.host = host
        for model in (self.model, self.compaction_model):
            if callable(attach := getattr(model, "attach", None)):
                attach(host)

    async def __aenter__(self) -> ModelPlanner:
        """Let the models load what they need beside the start, which does not wait for it, nor the first message."""
        for model in (self.model, self.compaction_model):
            if callable(load := getattr(model, "load", None)):
                self._loading.add(asyncio.get_running_loop().create_task(_loaded(load), name="loading of a model"))
        return self

    async def __aexit__(self, *exc: object) -> None:
        loading, self._loading = self._loading, set()
        for task in loading:
            task.cancel()
        await asyncio.gather(*loading, return_exceptions=True)
        for model in (self.model, self.compaction_model):
            if callable(close := getattr(model, "aclose", None)):
                await close()


async def _loaded(load: Callable[[], Awaitable[None]]) -> None:
    with suppress(Exception):  # the first request says what is wrong
        await load()


def answer_room(context_tokens: int) -> int:
    """Tokens of what a model can read that are left for its answer."""
    most, share = _ANSWER
    return min(most, int(context_tokens * share))
