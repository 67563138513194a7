"""State of a planner by a model: its settings, its models, its record of requests. It outlasts the planner's turns.

A turn is the planning of one cycle (`planning.llm.cycle`). This module also sends the single requests that belong to no
turn: for a summary, for the result of a call, and for the question of a part of the agent that has no model.

It also chooses among the models: which may be named, in which order they are asked, how much each can read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, Self

import msgspec

from planning.bootstrap.sections import lay_out
from planning.bootstrap.session_prompts import SessionPrompts
from planning.llm.compaction import Compaction
from planning.llm.delegates import Allowance, Definitions, Delegates, Frame
from planning.llm.record import RequestRecord, recorded_model
from planning.llm.response import AnswerFaults, ModelResponse
from planning.output_check import OutputCheck
from planning.ports import Kind, Model, Request
from planning.prompt.advisors import CONSULT, read_advisors
from planning.prompt.history import Additions, Past
from planning.prompt.prompts import summary_in
from planning.prompt.request import Composer, compose
from planning.prompt.token_budget import answer_room
from planning.resilience.failover import Models
from spar.checks import shorten
from spar.data.bounded import BoundedDict
from spar.data.scrub import masked
from spar.decoding import convert
from spar.errors import ConfigError, ContractError, PermanentError, SparError
from spar.ports.planners import AnswerTo
from spar.protocols import CALLED_FOR, Host, ModelQuestion, ModuleRows, RunContext
from spar.records.run_options import RunOptions, Thinking
from spar.threads import Users
from spar.types import Call


class ModelChoice:
    """Choice among the models of a planner, which are one model or several (`Models`).

    Args: model: one model (without a name here) or `Models`, which has names for its models; room: the tokens that a
        request may have if the model's limit is unknown; size_of: returns the estimated tokens of a request.
    """

    def __init__(self, model: Model, room: int | None, size_of: Callable[[Request], int]) -> None:
        self.model = model
        self._room = room
        self._size_of = size_of
        self._read: dict[str, int] = {}  # by model, the tokens that it read after it had refused more

    @property
    def allowed(self) -> tuple[str, ...]:
        """Return the names of the models that people and hooks may choose from."""
        return self.model.allowed if isinstance(self.model, Models) else ()

    @property
    def room(self) -> int | None:
        """Return the tokens that a request to the preferred model may have; None if unknown."""
        return self.room_of(self.in_turn(self.order()))

    def attach(self) -> None:
        """Let the models refuse a request that was made for a model with more room and does not fit another one."""
        if isinstance(self.model, Models):
            self.model.is_too_long = self._is_too_long

    def order(self, first: str | None = None) -> tuple[str, ...]:
        """Return the names of the models in the order in which they are asked, `first` before the preferred ones.

        Raises: PermanentError when `first` may not be chosen.
        """
        if first is not None and first not in self.allowed:
            raise PermanentError(self._not_allowed(first))
        return self.model.order(first) if isinstance(self.model, Models) else ()

    def in_turn(self, order: Sequence[str]) -> str:
        """Return the name of the model that is asked now; "" if there is only one model, without a name."""
        return self.model.in_turn(order) if order and isinstance(self.model, Models) else ""

    def room_of(self, name: str, thinking: Thinking | None = None) -> int | None:
        """Return the tokens that a request to this model may have; None if unknown."""
        room = self.model.room(name, thinking) if isinstance(self.model, Models) else None
        rooms = [
            tokens for tokens in (self._room if room is None else room, self._read.get(name)) if tokens is not None
        ]
        return min(rooms, default=None)

    def learn(self, name: str, room: int | None, thinking: Thinking | None = None) -> None:
        """Remember how many tokens a model has read if that differs from its known limit."""
        if room is not None and room != self.room_of(name, thinking):
            self._read[name] = room

    async def check_options(self, options: RunOptions) -> None:
        """Raise ValueError for a model that may not be chosen, or that does not support this much thinking."""
        if options.model is not None and options.model not in self.allowed:
            raise ValueError(self._not_allowed(options.model))
        if options.thinking is None:
            return
        if not isinstance(self.model, Models):
            raise ValueError("option thinking means nothing here: it is not known how much the model thinks")
        if reason := await self.model.refusal_of(self.order(options.model)[0], options.thinking):
            raise ValueError(f"option thinking is {options.thinking!r}: {reason}")

    def _not_allowed(self, name: str) -> str:
        if not self.allowed:
            return f"option model is {shorten(name, 80)}, no model may be chosen (plan.options.allowed_models is empty)"
        allowed = ", ".join(self.allowed)
        return f"option model is {shorten(name, 80)}, allowed are: {allowed} (plan.options.allowed_models)"

    def _is_too_long(self, name: str, request: Request) -> bool:
        """Return whether a cycle's request, made for a model with more room, does not fit this model."""
        room = self.room_of(name, request.thinking)
        if room is None or not request.models or (request.room is not None and request.room <= room):
            return False
        return self._size_of(request) > room


PlanMode = Literal["", "eager", "lazy"]
#: Share of the tokens that a model reads; a request with more has its conversation summarized before it is sent.
THRESHOLD: Final = 0.8
#: Most runs whose last answers and messages are remembered, and most schemas of outputs whose check is remembered. The
#: oldest are forgotten.
_MOST_RUNS: Final = 1_000
_MOST_SCHEMAS: Final = 32
#: Most runs with a row of what their requests told: of those that ended without an answer.
_MOST_ADDITIONS: Final = 200
#: Most sessions whose composed conversation is remembered, and most characters of all these conversations (about).
_MOST_PASTS: Final = 64
_LARGEST_PASTS: Final = 16 << 20


class PlannerState:
    """State of a planner by a model: its settings, its models, and what it remembers of sessions and runs.

    A turn reads from here all that it needs of its planner. `planning.llm.planner.ModelPlanner` explains the arguments.
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
        references: bool = True,
    ) -> None:
        if plan_mode not in ("", "eager", "lazy"):
            raise ConfigError(f"plan_mode is {plan_mode!r}, expected 'eager' or 'lazy'", path=("plan_mode",))
        try:
            self.advisors = tuple({"type": "advisor", **advisor} for advisor in read_advisors((), advisors))
        except ValueError as error:
            raise ConfigError(str(error), path=("advisors",)) from error
        self.plan_mode, self.meta = plan_mode, meta
        self.model, self.compaction_model = model, compaction_model
        self.prompts = (
            SessionPrompts(instructions, references=references) if isinstance(instructions, str) else instructions
        )
        self.references = references
        #: The instructions of the configuration; a request has them behind spar's own.
        self.instructions = lay_out(self.prompts.instructions).instructions
        self.output, self.max_tokens, self.recall, self.pursue = output, max_tokens, recall, pursue
        self._checks: BoundedDict[bytes, OutputCheck] = BoundedDict(_MOST_SCHEMAS)
        if output is not None:
            try:
                self._check_for(output)
            except ConfigError as error:
                raise ConfigError(f"the schema of answers cannot be used: {error}", path=("output",)) from error
        room = None if context_tokens is None else context_tokens - (max_tokens or answer_room(context_tokens))
        self.record = RequestRecord()
        self.models = ModelChoice(model, room, lambda request: self.record.estimator.of(request))
        self.threshold = threshold
        self.compaction = compaction or Compaction(self.ask)
        self._delegates = Delegates(self._thought, definitions, self._frame)
        self.activities = {**self._delegates.activities, CONSULT: self._consulted}
        #: By the id of a run (or of a cycle without a run), the messages of its last request, which advisors may read.
        self._frames: BoundedDict[str, Frame] = BoundedDict(_MOST_RUNS)
        self.host: Host | None = None
        self._loading: set[asyncio.Task[None]] = set()
        self._users = Users()
        self._pasts: BoundedDict[str, Past] = BoundedDict(_MOST_PASTS)
        self.composer = Composer()
        #: The last request of each session.
        self._last: BoundedDict[str, Request] = BoundedDict(_MOST_PASTS)
        self._faults: BoundedDict[str, AnswerFaults] = BoundedDict(_MOST_RUNS)
        #: What requests have told and the transcript does not say, by run.
        self.additions: BoundedDict[str, Additions] = BoundedDict(_MOST_RUNS)
        self._rows: ModuleRows | None = None
        self._has_loaded = False

    @property
    def allowed_models(self) -> tuple[str, ...]:
        """Return the names of the models that people and hooks may choose from."""
        return self.models.allowed

    async def check_options(self, options: RunOptions) -> None:
        """Raise ValueError for a model that may not be chosen, or that does not support this much thinking."""
        await self.models.check_options(options)

    def use(self, model: Model, compaction_model: Model | None) -> None:
        """Ask these models from now on. It must be called before `attach`."""
        self.model = self.models.model = model
        self.compaction_model = compaction_model

    def answer_from(self, answer_to: AnswerTo, *, is_asked: bool = False) -> None:
        """Take the answers of the models from this function from now on (`spar.ports.planners.OptionalPlanner`)."""
        self.model = recorded_model(answer_to, self.model if is_asked else None)
        self.compaction_model = None

    async def ask(self, request: Request) -> Any:
        """Return the output of one request that belongs to no turn, such as one for a summary.

        Raises: what the model raises.
        """
        return await self._asked(self.compaction_model or self.model, request)

    async def answer(self, question: ModelQuestion) -> Any:
        """Return the answer to a question of a part of the agent that has no model (`spar.protocols.Ask`).

        Raises: ContractError when the answer is empty or does not fit its schema; what the model raises.
        """
        request = compose(question.data, output=question.schema, kind="latent", instructions=question.instructions,
                          max_tokens=question.max_tokens, purpose=question.purpose,
                          cycle_id=question.cycle_id)  # fmt: skip
        output, why = self.judged(await self._asked(self.model, request), question.schema, ())
        if output is None:
            raise ContractError(f"the model wrote no answer that can be used: {why or 'it was empty'}")
        return output

    async def _asked(self, model: Model, request: Request) -> Any:
        """Return the output of one request, which is recorded and counted. Raises: what the model raises."""
        sent = self.record.begin(request)
        async with ModelResponse(model, sent.request) as response:
            try:
                async for _ in response:
                    pass
            except BaseException as error:
                self.record.end(sent, response, error)
                raise
        self.record.end(sent, response)
        return response.output

    async def _thought(
        self, context: Iterable[Any], output: Mapping[str, Any] | None, kind: Kind, instructions: str | None
    ) -> Any:
        """Return the result that the model writes for one call. Raises: PermanentError when it cannot be used."""
        cycle_id, run_id = CALLED_FOR.get()  # the request counts for the run that made the call
        request = compose(context, output=output, kind=kind, instructions=instructions, max_tokens=self.max_tokens,
                          purpose=kind, cycle_id=cycle_id, run_id=run_id)  # fmt: skip
        result, why = self.judged(await self._asked(self.model, request), output, ())
        if result is None:
            raise PermanentError(f"the model wrote no result: {why or 'its answer was empty'}")
        return result

    def advise(self, request: Request) -> None:
        """Remember the messages of a request. An advisor that a call of this run or cycle asks may read them."""
        if self.advisors:
            frame = Frame(Allowance(0, 0), messages=[dict(message) for message in request.context],
                          advisors={str(advisor["id"]): advisor for advisor in self.advisors})  # fmt: skip
            self._frames[request.run_id or request.cycle_id] = frame

    async def _consulted(self, call: Call, tool: Mapping[str, Any], context: list[dict[str, Any]]) -> Any:
        """Carry out a call that asks an advisor, and store the advice in the record of the cycle."""
        advice = await self._delegates.consult(call, tool, context)
        self.record.keep(CALLED_FOR.get()[0], "advice", [{"id": call.params.get("advisor"), "advice": advice}])
        return advice

    def _frame(self) -> Frame | None:
        cycle_id, run_id = CALLED_FOR.get()
        return self._frames.get(run_id or cycle_id)

    def judged(
        self, output: Any, schema: Mapping[str, Any] | None, context: Sequence[Mapping[str, Any]]
    ) -> tuple[Any, str]:
        """Return an output with its references resolved, and a sentence about what is wrong with it ("" for nothing).

        Raises: PermanentError for a schema that cannot be used.
        """
        try:
            check = self._check_for(schema)
        except ConfigError as error:
            raise PermanentError(f"no answer can fit the schema that was asked for: {error}") from error
        return check.check(output, context)

    def _check_for(self, schema: Mapping[str, Any] | None) -> OutputCheck:
        """Return the check for a schema; the last `_MOST_SCHEMAS` are remembered."""
        key = msgspec.json.encode(schema)
        if (check := self._checks.get(key)) is None:
            check = self._checks[key] = OutputCheck(schema)
        return check

    def past_of(self, session: str) -> Past:
        """Return the conversation of a session as it was composed before: only its new entries are then composed.

        The sessions that were composed longest ago are forgotten, until `_LARGEST_PASTS` characters are left.
        """
        past = self._pasts[session] = self._pasts.get(session) or Past()
        while len(self._pasts) > 1 and sum(past.chars for past in self._pasts.values()) > _LARGEST_PASTS:
            self._pasts.popitem(last=False)
        return past

    def why_anew(self, request: Request) -> str:
        """Return why a request does not begin with its session's last one; "" if it does, or for the first one."""
        last, self._last[request.session] = self._last.get(request.session), request
        if last is None:
            return ""
        if (request.instructions, request.preface) != (last.instructions, last.preface):
            return "instructions, files or skills have changed"
        if request.schema is not last.schema and request.schema != last.schema:
            return "tools have changed"
        if request.turns[: len(last.turns)] == last.turns:
            return ""
        is_summed_up = bool(request.turns) and bool(summary_in(request.turns[0].text))
        if is_summed_up and not (last.turns and request.turns[0] == last.turns[0]):
            return "the earlier part was summed up"
        return "it was reset or shortened, or an earlier part is shown as the transcript keeps it"

    async def additions_of(self, session: str, run: RunContext | None) -> Additions:
        """Return what the requests of a run have told and the transcript does not say, perhaps those of an earlier
        process, or of a planner that this one replaces. Raises: what the memory raises."""
        is_elsewhere = run is not None and run.number > 1 and session not in self._pasts
        if self._rows is not None and (is_elsewhere or not self._has_loaded):
            self._has_loaded = True
            rows = {run_id: convert(row, Additions, strict=False) for run_id, row in (await self._rows.list()).items()}
            for run_id in list(rows)[:-_MOST_ADDITIONS]:  # ids of runs sort by time
                self._rows.drop(run_id)
            self.additions.update({run_id: row for run_id, row in rows.items() if run_id not in self.additions})
        return Additions() if run is None else self.additions.get(run.id) or Additions()

    def write(self, run_id: str | None, additions: Additions) -> None:
        """Write what the requests of a run have told, before the last of them is sent."""
        if run_id is None:
            return
        self.additions[run_id] = additions
        if self._rows is not None:
            with suppress(SparError, ValueError):  # it is too large for a row: then a killed process has not told it
                self._rows.keep(run_id, masked(msgspec.to_builtins(additions)))

    def forget(self, run_id: str | None, cycle_id: str) -> None:
        """Delete what the requests of a run have told, with the end of this cycle, whose entry says it."""
        if self._rows is not None and run_id is not None:
            self._rows.drop(run_id, cycle_id=cycle_id)

    def faults_of(self, run_id: str | None) -> AnswerFaults:
        """Return the faults of a run's last answers, which are remembered for `_MOST_RUNS` runs; new ones for None."""
        if run_id is None:
            return AnswerFaults()
        faults = self._faults[run_id] = self._faults.get(run_id) or AnswerFaults()
        return faults

    def snapshot(self) -> dict[str, Any]:
        """Return the record of requests, and the state of the prompts and the models."""
        snapshot = self.record.snapshot()
        if prompts := self.prompts.snapshot():
            snapshot["prompt"] = prompts
        if callable(of_model := getattr(self.model, "snapshot", None)):
            snapshot["model"] = of_model()
        return snapshot

    def attach(self, host: Host) -> None:
        """Use the clock, the events and the records of an agent from now on, for the models as well."""
        self.host = host
        self.record.attach(host)
        self.prompts.attach(host)
        self._pasts.clear()
        self.additions.clear()
        self._rows, self._has_loaded = host.rows("additions"), False
        for model in (self.model, self.compaction_model):
            if callable(attach := getattr(model, "attach", None)):
                attach(host)
        self.models.attach()

    async def __aenter__(self) -> Self:
        """Begin to load the models in the background: neither the start nor the first message waits for that."""
        await self._users.enter(self._open)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._users.leave(self._close)

    async def _open(self) -> None:
        for model in (self.model, self.compaction_model):
            if callable(load := getattr(model, "load", None)):
                self._loading.add(asyncio.get_running_loop().create_task(_loaded(load), name="loading of a model"))

    async def _close(self) -> None:
        loading, self._loading = self._loading, set()
        for task in loading:
            task.cancel()
        await asyncio.gather(*loading, return_exceptions=True)
        for model in (self.model, self.compaction_model):
            if callable(close := getattr(model, "aclose", None)):
                await close()


async def _loaded(load: Callable[[], Awaitable[None]]) -> None:
    with suppress(Exception):  # the first request raises the same error
        await load()
