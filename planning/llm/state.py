"""State of a planner by a model, which outlasts its turns: settings, what was learnt, the record of requests.

Each request is recorded and told before it is sent (`PlannerState.record`) and paid for afterwards (`account`).
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal, NamedTuple, Self

import msgspec

from planning.bootstrap.sections import lay_out
from planning.bootstrap.session_prompts import SessionPrompts
from planning.llm.compaction import Compaction
from planning.llm.delegates import FRAME, Allowance, Definitions, Delegates, Frame
from planning.llm.record import answered, digest, kept, outline
from planning.llm.response import AnswerFaults, ModelResponse
from planning.output_check import OutputCheck
from planning.ports import Asked, Kind, Model, Request, Usage
from planning.prompt.advisors import CONSULT, read_advisors
from planning.prompt.history import Past
from planning.prompt.request import Composer, compose
from planning.prompt.token_budget import TokenEstimator, answer_room
from planning.resilience.failover import Models
from spar.checks import shorten
from spar.data.bounded import BoundedDict
from spar.errors import ConfigError, ContractError, PermanentError
from spar.events import ModelAnswered, ModelRequested
from spar.protocols import CALLED_FOR, Host, ModelQuestion
from spar.records.run_options import RunOptions, Thinking
from spar.types import Call, Fault

PlanMode = Literal["", "eager", "lazy"]
#: Of what can be read, the share from which on a conversation is summed up before a request is sent.
THRESHOLD: Final = 0.8
_MOST_RUNS: Final = 1_000
_MOST_SCHEMAS: Final = 32
#: Sessions whose turns are remembered, and about how many characters of all of them.
_MOST_PASTS: Final = 64
_LARGEST_PASTS: Final = 16 << 20
_KEPT: Final = 5
_COUNTED: Final = ("requests", "tokens", "overflows", "deferred", "misfits", "empty", "unrecalled")


class Sent(NamedTuple):
    """A request that was recorded, its digest, its estimated size in tokens, which attempt of its cycle it is, when it
    was sent: by the wall clock, and in monotonic seconds, and which of its planner's requests it is."""

    request: Request
    digest: str
    tokens: int
    attempt: int = 1
    at: datetime | None = None
    began: float = 0.0
    number: int = 0


class PlannerState:
    """State of a planner by a model: its settings, what it has learnt, and the record of what was asked and answered.

    What a turn needs of its planner stands here; see `planning.llm.planner.ModelPlanner` for the arguments.
    """

    def __init__(
        self,
        model: Model,
        *,
        instructions: str | SessionPrompts = "",
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
            self.advisors = tuple({"type": "advisor", **each} for each in read_advisors((), advisors))
        except ValueError as error:
            raise ConfigError(str(error), path=("advisors",)) from error
        self.plan_mode, self.meta = plan_mode, meta
        self.model, self.compaction_model = model, compaction_model
        self.prompts = SessionPrompts(instructions) if isinstance(instructions, str) else instructions
        #: Those of the configuration, after spar's own.
        self.instructions = lay_out(self.prompts.instructions).instructions
        self.output, self.max_tokens, self.recall, self.pursue = output, max_tokens, recall, pursue
        self._checks: BoundedDict[bytes, OutputCheck] = BoundedDict(_MOST_SCHEMAS)
        if output is not None:
            try:
                self._check_for(output)
            except ConfigError as error:
                raise ConfigError(f"the schema of answers cannot be used: {error}", path=("output",)) from error
        #: Tokens that a request may have where its model does not say; what was learnt from refusals, by model.
        self._room = None if context_tokens is None else context_tokens - (max_tokens or answer_room(context_tokens))
        self._learnt: dict[str, int] = {}
        self.threshold = threshold
        self.compaction = compaction or Compaction(self.ask)
        self._delegates = Delegates(self._thought, definitions)
        self.activities = {**self._delegates.activities, CONSULT: self._consulted}
        #: By run or cycle, what advisors who are consulted know of the requests at hand.
        self._frames: BoundedDict[str, Frame] = BoundedDict(_MOST_RUNS)
        self.host: Host | None = None
        self._loading: set[asyncio.Task[None]] = set()
        self._pasts: BoundedDict[str, Past] = BoundedDict(_MOST_PASTS)
        self.composer = Composer()
        self.estimator = TokenEstimator()
        #: The last requests as they were sent, the newest last, and how often what has happened.
        self.requests: deque[Request] = deque(maxlen=_KEPT)
        self.counts: Counter[str] = Counter()
        self._number = 0  # of the requests so far
        self._faults: BoundedDict[str, AnswerFaults] = BoundedDict(_MOST_RUNS)

    @property
    def room(self) -> int | None:
        """Return the tokens that a request to the preferred model may have; None while nobody knows."""
        return self.room_of(self.in_turn(self.order()))

    @property
    def allowed_models(self) -> tuple[str, ...]:
        """Return the names of the models that people and hooks may choose from."""
        return self.model.allowed if isinstance(self.model, Models) else ()

    def order(self, first: str | None = None) -> tuple[str, ...]:
        """Return the names of the models in the order in which they are asked, `first` before those that are preferred.

        Raises: PermanentError for one that may not be chosen.
        """
        if first is not None and first not in self.allowed_models:
            raise PermanentError(self._not_allowed(first))
        return self.model.order(first) if isinstance(self.model, Models) else ()

    def in_turn(self, order: Sequence[str]) -> str:
        """Return the name of the model that is asked now, "" where there is one without a name."""
        return self.model.in_turn(order) if order and isinstance(self.model, Models) else ""

    def room_of(self, name: str, thinking: Thinking | None = None) -> int | None:
        """Return the tokens that a request to this model may have; None where nobody knows."""
        said = self.model.room(name, thinking) if isinstance(self.model, Models) else None
        known = [each for each in (self._room if said is None else said, self._learnt.get(name)) if each is not None]
        return min(known, default=None)

    def learn(self, name: str, room: int | None, thinking: Thinking | None = None) -> None:
        """Remember how much a model has read, where it had refused more."""
        if room is not None and room != self.room_of(name, thinking):
            self._learnt[name] = room

    async def check_options(self, options: RunOptions) -> None:
        """Raises: ValueError for a model that may not be chosen, or that cannot think so much."""
        if options.model is not None and options.model not in self.allowed_models:
            raise ValueError(self._not_allowed(options.model))
        if options.thinking is None:
            return
        if not isinstance(self.model, Models):
            raise ValueError("option thinking means nothing here: it is not known how much the model thinks")
        if why := await self.model.refusal_of(self.order(options.model)[0], options.thinking):
            raise ValueError(f"option thinking is {options.thinking!r}: {why}")

    def _not_allowed(self, name: str) -> str:
        allowed = ", ".join(self.allowed_models) or "none"
        return f"option model is {shorten(name, 80)}, allowed are: {allowed} (plan.options.allowed_models)"

    def _is_too_long(self, name: str, request: Request) -> bool:
        """Return whether a cycle's request that was made for a model with more room does not fit this one."""
        room = self.room_of(name, request.thinking)
        if room is None or not request.models or (request.room is not None and request.room <= room):
            return False
        return self.estimator.of(request) > room

    async def ask(self, request: Request) -> Any:
        """The output of one request that stands by itself, as the compaction makes. Raises: what the model raises."""
        return await self._asked(self.compaction_model or self.model, request)

    async def answer(self, question: ModelQuestion) -> Any:
        """Return the answer to a question of a part that has no model (`spar.protocols.Ask`).

        Raises: ContractError when it is empty or does not fit; what the model raises.
        """
        request = compose(question.data, output=question.schema, kind="latent", instructions=question.instructions,
                          max_tokens=question.max_tokens, purpose=question.purpose,
                          cycle_id=question.cycle_id)  # fmt: skip
        found, why = self.judged(await self._asked(self.model, request), question.schema, ())
        if found is None:
            raise ContractError(f"the model wrote no answer that can be used: {why or 'it was empty'}")
        return found

    async def _asked(self, model: Model, request: Request) -> Any:
        sent = self.record(request)
        async with ModelResponse(model, sent.request) as response:
            try:
                async for _ in response:
                    pass
            except BaseException as error:
                self.tell_answer(sent, response.usage, error)
                raise
            finally:
                self.account(sent, response.usage, response.chars)
        self.tell_answer(sent, response.usage)
        return response.output

    async def _thought(
        self, context: Iterable[Any], output: Mapping[str, Any] | None, kind: Kind, instructions: str | None
    ) -> Any:
        """Return the model's result for one piece of work. Raises: PermanentError when it is empty, or does not fit."""
        cycle_id, run_id = CALLED_FOR.get()  # who called it pays for it
        request = compose(context, output=output, kind=kind, instructions=instructions, max_tokens=self.max_tokens,
                          purpose=kind, cycle_id=cycle_id, run_id=run_id)  # fmt: skip
        found, why = self.judged(await self._asked(self.model, request), output, ())
        if found is None:
            raise PermanentError(f"the model wrote no result: {why or 'its answer was empty'}")
        return found

    def advise(self, request: Request) -> None:
        """Let advisors who are consulted in a cycle or run know what its request says."""
        if self.advisors:
            frame = Frame(Allowance(0, 0), messages=[dict(each) for each in request.context],
                          advisors={str(each["id"]): each for each in self.advisors})  # fmt: skip
            self._frames[request.run_id or request.cycle_id] = frame

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

    def record(self, request: Request, attempt: int = 1) -> Sent:
        """Keep and publish a request that is about to be sent."""
        self.requests.append(request)
        sent = Sent(request, digest(request), self.estimator.of(request), attempt)
        if self.host is not None:
            self._number += 1
            header = self.host.traceparent("models", request.cycle_id, "model", str(self._number))
            named = msgspec.structs.replace(request, traceparent=header) if header else request
            sent = sent._replace(request=named, number=self._number, at=self.host.clock.now(),
                                 began=self.host.clock.monotonic())  # fmt: skip
            event = ModelRequested(cycle_id=request.cycle_id, run_id=request.run_id, digest=sent.digest,
                                   attempt=attempt, tokens=sent.tokens, request=request)  # fmt: skip
            self.host.events.publish(event)
            self.host.note(request.cycle_id, partial(kept, request, sent.digest))
        return sent

    def tell_answer(self, sent: Sent, usage: Usage | None, error: BaseException | None = None) -> None:
        """Publish that a request was answered, or what came in the place of an answer."""
        if self.host is None or sent.at is None:
            return
        request, usage = sent.request, usage or Usage()
        self.host.events.publish(
            ModelAnswered(
                cycle_id=request.cycle_id, run_id=request.run_id, digest=sent.digest, attempt=sent.attempt,
                purpose=request.purpose, model=request.models[0] if request.models else usage.model,
                answered_by=usage.model, answered_as=usage.answered_as, finish=usage.finish,
                input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cached_tokens=usage.cached_tokens,
                cost=usage.cost, started_at=sent.at, duration=self.host.clock.monotonic() - sent.began,
                error="" if error is None else Fault.of(error).kind, number=sent.number,
            )
        )  # fmt: skip

    def told_of(self, cycle_id: str, sent: Sent, asked: Asked | None) -> None:
        """Keep with its cycle which model answered, and with which settings it was asked."""
        if self.host is not None and asked is not None:
            self.host.note(cycle_id, partial(answered, asked, sent.digest))

    def judged(
        self, output: Any, schema: Mapping[str, Any] | None, context: Sequence[Mapping[str, Any]]
    ) -> tuple[Any, str]:
        """An output with its references resolved, and what is wrong with it, "" if nothing is.

        Raises: PermanentError for a schema that cannot be used.
        """
        try:
            check = self._check_for(schema)
        except ConfigError as error:
            raise PermanentError(f"no answer can fit the schema that was asked for: {error}") from error
        return check.check(output, context)

    def account(self, sent: Sent, usage: Usage | None, chars: int = 0) -> None:
        """Count what a request took, and learn how large a token is; `chars` were read of the answer."""
        request = sent.request
        if usage is None:  # that nobody says what it took does not make it free
            read, written, cached = sent.tokens, self.estimator.tokens_in(chars), 0
        else:
            read, written, cached = usage.input_tokens, usage.output_tokens, usage.cached_tokens
            self.estimator = self.estimator.learn(request, usage.input_tokens)
        used = {"requests": 1, "tokens": read + written}
        if usage is not None and usage.cost is not None:
            used["money"] = usage.cost
        self.counts["requests"] += 1
        self.counts["tokens"] += read + written
        if request.run_id is not None and self.host is not None:
            self.host.used(request.run_id, used)
            parts = {"input_tokens": read, "output_tokens": written, "cached_tokens": cached}
            self.host.counted(request.run_id, parts)

    def _check_for(self, schema: Mapping[str, Any] | None) -> OutputCheck:
        """Return the check for a schema, made once as long as not too many others come in between."""
        key = msgspec.json.encode(schema)
        if (found := self._checks.get(key)) is None:
            found = self._checks[key] = OutputCheck(schema)
        return found

    def past_of(self, session: str) -> Past:
        """Return the turns of a session composed before; sessions that were quiet for longest are forgotten."""
        past = self._pasts[session] = self._pasts.get(session) or Past()
        while len(self._pasts) > 1 and sum(each.chars for each in self._pasts.values()) > _LARGEST_PASTS:
            self._pasts.popitem(last=False)
        return past

    def faults_of(self, run_id: str | None) -> AnswerFaults:
        """Return the account of a run's answers; the runs that were quiet for longest are forgotten."""
        if run_id is None:
            return AnswerFaults()
        faults = self._faults[run_id] = self._faults.get(run_id) or AnswerFaults()
        return faults

    def snapshot(self) -> dict[str, Any]:
        """Return the counts of requests, tokens and faults, and an outline of the last requests."""
        told: dict[str, Any] = {name: self.counts[name] for name in _COUNTED}
        told["bytes_per_token"] = round(self.estimator.bytes_per_token, 2)
        told["last"] = [outline(each, self.estimator.of(each)) for each in tuple(self.requests)]
        if prompts := self.prompts.snapshot():
            told["prompt"] = prompts
        if callable(of_model := getattr(self.model, "snapshot", None)):
            told["model"] = of_model()
        return told

    def attach(self, host: Host) -> None:
        """Take what the agent lends, and have it told how the models are."""
        self.host = host
        self.prompts.attach(host)
        self._pasts.clear()
        for model in (self.model, self.compaction_model):
            if callable(attach := getattr(model, "attach", None)):
                attach(host)
        if isinstance(self.model, Models):
            self.model.is_too_long = self._is_too_long

    async def __aenter__(self) -> Self:
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
