"""State of a planner by a model, which outlasts its turns: settings, what was learnt, the record of requests.

Each request is recorded and told before it is sent (`PlannerState.record`) and paid for afterwards (`account`).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from planning.bootstrap.sections import lay_out
from planning.bootstrap.session_prompts import SessionPrompts
from planning.llm.compaction import Compaction
from planning.llm.delegates import FRAME, Allowance, Definitions, Delegates, Frame
from planning.llm.response import AnswerFaults, ModelResponse
from planning.output_check import OutputCheck
from planning.ports import Kind, Model, Request, Usage
from planning.prompt.advisors import CONSULT, read_advisors
from planning.prompt.history import Past
from planning.prompt.request import Composer, compose
from planning.prompt.token_budget import TokenEstimator
from spar.data.bounded import BoundedDict
from spar.errors import ConfigError, PermanentError
from spar.events import ModelRequested
from spar.protocols import CALLED_FOR, Host
from spar.types import Call

PlanMode = Literal["", "eager", "lazy"]
#: Of what can be read, the share from which on a conversation is summed up before a request is sent.
THRESHOLD: Final = 0.8
#: Tokens that are left for an answer where `max_tokens` says nothing: so many, or this share of what can be read.
_ANSWER: Final = (4_096, 0.25)
_MOST_RUNS: Final = 1_000
_MOST_SCHEMAS: Final = 32
#: Sessions whose turns are remembered, and about how many characters of all of them.
_MOST_PASTS: Final = 64
_LARGEST_PASTS: Final = 16 << 20
_KEPT: Final = 5
_COUNTED: Final = ("requests", "tokens", "overflows", "deferred", "misfits", "empty", "unrecalled")


class Sent(NamedTuple):
    """A request that was recorded, its digest, and its estimated size in tokens."""

    request: Request
    digest: str
    tokens: int


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
        #: Tokens that a request may have; of a model that nobody knows the size of, learnt from its refusals.
        self.room = None if context_tokens is None else context_tokens - (max_tokens or answer_room(context_tokens))
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
        self._faults: BoundedDict[str, AnswerFaults] = BoundedDict(_MOST_RUNS)

    async def ask(self, request: Request) -> Any:
        """The output of one request that stands by itself, as the compaction makes. Raises: what the model raises."""
        return await self._asked(self.compaction_model or self.model, request)

    async def _asked(self, model: Model, request: Request) -> Any:
        sent = self.record(request)
        async with ModelResponse(model, request) as response:
            try:
                async for _ in response:
                    pass
            finally:
                self.account(sent, response.usage, response.chars)
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
        sent = Sent(request, digest(request), self.estimator.of(request))
        if self.host is not None:
            event = ModelRequested(cycle_id=request.cycle_id, run_id=request.run_id, digest=sent.digest,
                                   attempt=attempt, tokens=sent.tokens, request=request)  # fmt: skip
            self.host.events.publish(event)
            self.host.note(request.cycle_id, partial(kept, request, sent.digest))
        return sent

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


def answer_room(context_tokens: int) -> int:
    """Tokens of what a model can read that are left for its answer."""
    most, share = _ANSWER
    return min(most, int(context_tokens * share))


# -- the record of requests


def digest(request: Request) -> str:
    """Return a digest of all that a model reads, independent of the asker and the time."""
    read = replace(request, cycle_id="", run_id=None, purpose="", context=())
    return hashlib.blake2b(msgspec.json.encode(read), digest_size=8).hexdigest()


def kept(request: Request, named: str) -> dict[str, Any]:
    """A request as it is kept on the tape: all that the model read, and the schema that it had to fit."""
    return {
        "kind": "model.request",
        "digest": named,
        "purpose": request.purpose,
        "instructions": request.instructions,
        **({"preface": list(request.preface)} if request.preface else {}),
        "turns": [{"role": turn.role, "text": turn.text} for turn in request.turns],
        "texts": list(request.texts),
        "schema": request.schema,
    }


def outline(request: Request, tokens: int) -> dict[str, Any]:
    """A request as a status tells of it: what it was for and how large. Not what was said: that is on the tape, and
    for those only who may read that."""
    return {
        "digest": digest(request),
        "purpose": request.purpose,
        "run_id": request.run_id,
        "cycle_id": request.cycle_id,
        "tokens": tokens,
        "turns": len(request.turns),
        "texts": len(request.texts),
    }
