"""Loop of requests, usable without an agent: a model is asked, its calls are carried out, until it gives an output.

    answered = await Requests(model, tools=[fetch, save]).run([{"type": "input", "input": …}], output=schema)
    answered.output, answered.reason, answered.errors

A run of this loop has steps; each is one request and the calls of its answer. Calls start while the answer is still
being written. The calls, results and errors of a step go into the messages of the next request; `Answered.reason` says
how a run ended. An agent does not use this loop: its planner makes one request in each cycle, with the same parts of
this folder. The loop itself does not retry, take another model after an error or count money: a `Model` that stands for
several models may do that.

A step makes no progress if it repeats the calls of an earlier step with the same results, or if it neither calls nor
answers. After two such steps in a row the run is stuck. The actor has a different guard against repetition: it judges
single calls of an agent's run and warns the planner first. This one judges whole steps of a program's request, which
has no run and may make no calls.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from hashlib import blake2b
from typing import Any, Final, Literal

from msgspec import Struct

from planning.llm.delegates import CONSULTATION, FRAME, Allowance, Definitions, Delegates, Frame
from planning.llm.response import AnswerFaults, ModelResponse, was_refused
from planning.output_check import OutputCheck
from planning.ports import Kind, Model, TextDelta, ThoughtDelta, Usage
from planning.prompt.advisors import CONSULT, read_advisors
from planning.prompt.plans.deadlock import circle
from planning.prompt.plans.kept import carried_out, objection, planned, undecided
from planning.prompt.plans.versions import versioned
from planning.prompt.prompts import UNVERIFIED
from planning.prompt.request import Composer, PlainMessages, plan_mode, read_messages
from planning.prompt.shorten import to_json
from planning.prompt.tool_specs import executor_type, read_tool_specs
from spar.clock import Clock, SystemClock
from spar.data.blackboard import Board
from spar.data.json_safe import plain
from spar.errors import ConfigError, PermanentError
from spar.types import Action, ActionResult, CallResult, replace

MOST_IDLE: Final = 2
_VARYING = frozenset({"_id", "_reasoningForCall"})


class Progress:
    """Memory of the steps of one run: a digest for each step."""

    __slots__ = ("_idle", "_seen")

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._idle = 0

    def is_stuck(self, results: Iterable[CallResult] = (), planned: Iterable[Any] = ()) -> bool:
        """Add a step and return whether it is the second one in a row without progress.

        Args: results: the results of its calls; planned: calls that it only planned.
        """
        outcomes: list[Any] = [
            [_without_varying(result.call.to_wire()), result.status, result.output, _fault(result)]
            for result in results
        ]
        outcomes += [_without_varying(call) for call in planned]
        text = "\n".join(sorted(map(to_json, plain(outcomes))))
        digest = blake2b(text.encode(), digest_size=16).digest() if outcomes else b""
        self._idle = self._idle + 1 if not outcomes or digest in self._seen else 0
        self._seen.add(digest)
        return self._idle >= MOST_IDLE


def _without_varying(call: Any) -> Any:
    return {key: value for key, value in call.items() if key not in _VARYING} if isinstance(call, dict) else call


def _fault(result: CallResult) -> Any:
    return None if result.fault is None else [result.fault.kind, result.fault.message]


#: How a run ended. `output`: with an output; `no_progress`: two steps in a row brought nothing new; `empty`: two empty
#: answers; `invalid_output`: answers that could not be used; `max_requests`, `max_calls`: at a limit; `stopped`: a hook
#: ended it; `broken`: the model raised (only in the `so_far` of that error).
Reason = Literal["output", "no_progress", "empty", "invalid_output", "max_requests", "max_calls", "stopped", "broken"]

_TOO_MANY: Final = "no more calls are allowed in this run: the answer was read no further, 1 was not carried out"


class Answered(Struct, frozen=True):
    """Result of a run of requests.

    `errors` are the errors of the last step, each `{"call": wire, "error": {"kind", "message"}}` with `call` None where
    it is about no call. `context` holds all messages at the end, `advice` the answers of advisors.
    """

    output: Any = None
    reason: Reason = "output"
    errors: tuple[dict[str, Any], ...] = ()
    context: tuple[dict[str, Any], ...] = ()
    advice: tuple[dict[str, Any], ...] = ()
    requests: int = 0
    usage: Usage | None = None


class Requests:
    """Runs requests against `model` until there is an output.

    Args:
        model: see `planning.ports`.
        tools, activities: as for an executor: tools, and functions by the names of the tools that they carry out. A run
            also knows the tools in the messages of its context.
        definitions: saved requests for calls that are delegated: `{path: {"context": […], "schema": …}}`, or a function
            (async or not) of the path. The delegated request has the same tools.
        verify_output: whether an output is asked for again, once, where calls of the same answer have failed.
        approve: `approve(calls)` is called before a lazy plan is carried out and returns True, False or a `Verdict`
            (with a reason); None: a plan is carried out unless one of its calls needs approval.
        confirm: `confirm(call)` is called for each call that needs approval.
        executor: carries out the calls, with tools and activities of its own; None: an executor is made from the
            installed package that has one (entry point `executor` of the group `spar.actors`).
        instructions: the text that the model reads first; None: the usual one.
        max_requests, max_calls: limits of one run, all delegated calls included.

    Raises: ConfigError for tools that cannot be used.
    """

    def __init__(
        self,
        model: Model,
        *,
        tools: Iterable[Any] = (),
        activities: Mapping[str, Any] | None = None,
        definitions: Definitions | None = None,
        verify_output: bool = True,
        approve: Callable[[list[dict[str, Any]]], Any] | None = None,
        confirm: Callable[..., Any] | None = None,
        executor: Any = None,
        instructions: str | None = None,
        max_requests: int = 40,
        max_calls: int = 200,
        clock: Clock | None = None,
    ) -> None:
        self.model, self.clock, self.verify_output = model, clock or SystemClock(), verify_output
        self.approve, self.confirm, self.instructions = approve, confirm, instructions
        self.composer = Composer()
        for name, limit in (("max_requests", max_requests), ("max_calls", max_calls)):
            if type(limit) is not int or limit < 1:
                raise ConfigError(f"{name} is {limit!r}, expected a number above 0", path=(name,))
        self._limits = (max_requests, max_calls)
        self._tools, given = [CONSULTATION, *tools], dict(activities or {})
        if executor is not None and (len(self._tools) > 1 or given):
            raise ConfigError("tools and activities belong to the executor that was given: leave them out here")
        self._activities = {**Delegates(self._ask, definitions, FRAME.get).activities, **given}
        self.executor = executor if executor is not None else self._make()
        self._is_own = executor is None
        #: An executor without tools, for requests that write one result and may call nothing.
        self._no_tools = executor_type()()

    async def __aenter__(self) -> Requests:
        if self._is_own:
            await self.executor.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._is_own:
            await self.executor.__aexit__(*exc)

    async def run(
        self,
        context: Iterable[Any] = (),
        output: Mapping[str, Any] | None = None,
        *,
        advisors: Iterable[Mapping[str, Any]] = (),
    ) -> Answered:
        """Ask until there is an output that fits the schema `output` (None: any but null), or until the run gives up.

        Args: context: wire messages, which are not changed; advisors: more advisors than the context has.
        Raises: what the model raises, with the results so far as its attribute `so_far` (an `Answered`), so that the
            caller may go on from there; ConfigError, TypeError or ValueError for arguments that cannot be used.
        """
        messages = read_messages(context)
        frame = Frame(Allowance(*self._limits))
        return await RequestRun(self, self._executor_for(messages), messages, output, frame, advisors=advisors).run()

    async def _ask(
        self, context: Iterable[Any], output: Mapping[str, Any] | None, kind: Kind, instructions: str | None
    ) -> Any:
        """Return the output of a run inside the current one. A run of kind "latent", which writes the result of one
        call, can make no calls.

        Raises: PermanentError when there is no output.
        """
        outer = FRAME.get()
        frame = outer.inner() if outer is not None else Frame(Allowance(*self._limits))
        messages = read_messages(context)
        executor = self._no_tools if kind == "latent" else self._executor_for(messages)
        run = RequestRun(self, executor, messages, output, frame, kind=kind, instructions=instructions)
        answered = await run.run()
        if outer is not None and answered.usage is not None:
            outer.took(answered.usage)
        if answered.reason != "output":
            last = f": {answered.errors[-1]['error']['message']}" if answered.errors else ""
            raise PermanentError(f"it was asked of a model and came to no output ({answered.reason}){last}")
        return answered.output

    def _make(self, tools: Iterable[Any] = ()) -> Any:
        return executor_type()([*self._tools, *tools], activities=self._activities, clock=self.clock)

    def _executor_for(self, messages: Iterable[dict[str, Any]]) -> Any:
        """Return the executor, or another one that also knows the tools in these messages."""
        if not self._is_own:
            return self.executor
        tool_messages = [message for message in messages if message.get("type") == "tool"]
        named = [message for message in tool_messages if not isinstance(message.get("tool"), str)]
        return self._make(named) if named else self.executor


class RequestRun:
    """One run of requests; its method `run` is called once.

    Args: loop: has the settings that all its runs share; executor: carries out the calls; messages: the context, to
        which each step adds its results and errors; output: the schema of the output; frame: state of this run for its
        nested runs, with the requests and calls that are left; kind: "main", or "delegate" or "latent" for a nested run
        that answers a call.
    """

    def __init__(
        self,
        loop: Requests,
        executor: Any,
        messages: PlainMessages,
        output: Mapping[str, Any] | None,
        frame: Frame,
        *,
        advisors: Iterable[Mapping[str, Any]] = (),
        kind: Kind = "main",
        instructions: str | None = None,
    ) -> None:
        self._loop, self._output, self._frame, self._kind = loop, output, frame, kind
        self._instructions = loop.instructions if instructions is None and kind == "main" else instructions
        self.messages = frame.messages = messages
        self._advisors = list(advisors)
        frame.advisors = {str(advisor["id"]): advisor for advisor in read_advisors(self.messages, self._advisors)}
        self._executor = executor
        catalog = executor.tools
        self._tools = {name: catalog[name] for name in catalog if name != CONSULT}
        self._activities = getattr(catalog, "activities", {})
        self._check = OutputCheck(output)
        self._progress = Progress()
        self._last: ActionResult | None = None  # results of the step before
        self._results: list[ActionResult] = []  # results of all steps
        self._failed: tuple[dict[str, Any], ...] = ()  # errors of the last calls
        self._objections: list[dict[str, Any]] = []  # errors of this step that are about no call
        self._number = 0
        self._faults = AnswerFaults()
        self._was_held = False  # whether an output was asked for again because calls had failed
        self._left_out = False  # whether a call came after the last one that was allowed
        self._broken: Exception | None = None

    async def run(self) -> Answered:
        token = FRAME.set(self._frame)
        try:
            while self._frame.allowance.take("requests"):
                self._number += 1
                if (answered := await self._step()) is not None:
                    return answered
            return self._answered("max_requests")
        except Exception as error:
            with suppress(AttributeError, TypeError):  # some exceptions take no attribute
                error.so_far = self._answered("broken")  # type: ignore[attr-defined]
            raise
        finally:
            FRAME.reset(token)

    # -- a step

    async def _step(self) -> Answered | None:
        """Make one request and carry out its calls; return the result of the run, None where the run continues."""
        self._left_out, self._objections = False, []
        request = self._loop.composer.compose(
            self.messages,
            tools=self._tools,
            activities=self._activities,
            output=self._output,
            advisors=self._advisors,
            kind=self._kind,
            instructions=self._instructions,
            results=self._last.results if self._last is not None else (),
            steps=self._results,
            purpose=self._kind,
        )
        is_lazy = plan_mode(self.messages) == "lazy"
        async with ModelResponse(self._loop.model, request) as response:
            try:
                result = await self._carry_out(
                    self._planned(response) if is_lazy else self._calls(response, is_lazy=False)
                )
            finally:
                if response.usage is not None:
                    self._frame.took(response.usage)
                if self._broken is not None and was_refused(response, self._broken):
                    self._number -= 1
                    self._frame.allowance.requests += 1
        self._keep(response, result)
        if self._broken is not None:
            raise self._broken
        if result is not None and result.fault is not None:
            self._object(result.fault.kind, result.fault.message)
            return self._answered("stopped")
        return self._decide(response, result)

    async def _calls(self, response: ModelResponse, *, is_lazy: bool) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the calls as they come, each with an id, until no more are allowed."""
        try:
            async for item in response:
                if isinstance(item, (TextDelta, ThoughtDelta)):
                    continue
                if item.get("_id") is None:
                    item["_id"] = f"{self._number}.{len(response.calls)}"
                if not self._frame.allowance.take("calls"):
                    self._left_out = True
                    return
                if not is_lazy and (why := undecided(item)):
                    item["_bad"] = why
                yield item
        except Exception as error:
            self._broken = error
            raise

    async def _planned(self, response: ModelResponse) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the calls of a lazy plan once all of them are there and the plan is approved."""
        async with aclosing(self._calls(response, is_lazy=True)) as coming:
            calls = [call async for call in coming]
        if not calls:
            return
        self._replace(planned(self.messages, calls))
        if ring := circle(calls, Board(self._data()).has):
            closing = next((call for call in reversed(calls) if str(call.get("_id")) == ring[-1]), None)
            self._object("cycle", f"calls of the plan wait for one another: {', '.join(ring)}", closing)
            return
        if self._loop.approve is None and (asking := self._asking(calls)):
            why = f"it needs approval, and nobody is there to approve a plan: {', '.join(asking)}"
            self._object("plan_denied", why)
            return
        if self._loop.approve is not None:
            try:
                verdict = self._loop.approve([dict(call) for call in calls])
                why = objection(await verdict if inspect.isawaitable(verdict) else verdict)
            except Exception as error:
                why = f"the plan was not approved: the approver failed: {type(error).__name__}: {error}"
            if why:
                self._object("plan_denied", why)
                return
        for call in carried_out(calls, read_tool_specs(self._tools, self.messages, self._activities)):
            yield call

    def _asking(self, calls: Iterable[dict[str, Any]]) -> list[str]:
        """Return the tools of a plan's calls that need approval, each once."""
        terms = {name: getattr(entry, "terms", None) for name, entry in self._tools.items()}
        named = dict.fromkeys(str(call.get("_tool")) for call in calls)
        return [name for name in named if getattr(terms.get(name), "approval", "auto") != "auto"]

    async def _carry_out(self, calls: AsyncGenerator[dict[str, Any], None]) -> ActionResult | None:
        """Execute the calls as they come; None when there are none."""
        async with aclosing(calls) as stream:
            first = await anext(stream, None)
            if first is None:
                return None
            result: ActionResult = await self._executor.run(
                _all(first, stream), context=self._data(), confirm=self._loop.confirm
            )
            return result

    def _keep(self, response: ModelResponse, result: ActionResult | None) -> None:
        """Add the results of a step, its advice, plan and `meta` to the context."""
        self._last = result
        frame = self._frame
        frame.advice += [advice for advice in response.advisors if str(advice.get("id")) in frame.advisors]
        if result is not None:
            if response.output is None and response.text.strip():
                action = result.action or Action()
                result = replace(result, action=replace(action, said=response.text.strip()))
            self._results.append(result)
            self.messages += read_messages(result.messages)
            self._failed = tuple(result.errors)
            self._replace(planned(self.messages, response.calls, result.results))
        if self._broken is None:
            self._replace(versioned(self.messages, response.meta, self._loop.clock.now().isoformat()))

    # -- the end of a step

    def _decide(self, response: ModelResponse, result: ActionResult | None) -> Answered | None:
        """Return the result of the run; None where the model is asked again."""
        if self._left_out:
            self._object("max_calls", _TOO_MANY)
        if response.output is not None and not response.problem and self._is_held(result):
            self.messages.append(_error_message("unverified", UNVERIFIED))
            return None
        judgement = self._faults.judge(response, response.output, self._checked)
        if judgement.kind == "misfit":
            is_unread = judgement.why in (response.problem, response.remark)
            self._object("bad_solution" if is_unread else "invalid_output", judgement.why)
            return self._answered("invalid_output") if judgement.is_last else None
        if judgement.kind == "empty":
            self._object("empty", judgement.why)
            return self._answered("empty") if judgement.is_last else None
        if response.remark:
            self._object("bad_solution", response.remark)
            self._failed = (*self._failed, self._objections.pop())
        if judgement.output is not None:
            return self._answered("output", judgement.output)
        if self._left_out:
            return self._answered("max_calls")
        is_stuck = self._progress.is_stuck(result.results if result else (), () if result else response.calls)
        if is_stuck or judgement.is_last:
            return self._answered("no_progress")
        if judgement.kind == "idle":
            self._object("idle", judgement.why)
        return None

    def _is_held(self, result: ActionResult | None) -> bool:
        """Return whether an output is asked for again, once in a run, because calls of the same answer have failed."""
        has_failed = bool(self._objections) or (result is not None and bool(result.errors))
        if not has_failed or self._was_held or not self._loop.verify_output:
            return False
        self._was_held = True
        return True

    def _checked(self, output: Any) -> tuple[Any, str]:
        value, wrong = self._check.check(output, self._data())
        return value, wrong or ("the output is null by way of a reference" if value is None else "")

    # -- errors, messages and the result

    def _object(self, kind: str, why: str, call: dict[str, Any] | None = None) -> None:
        """Add an error for the next request, and for `Answered.errors`; `call` is the call that it is about, if any."""
        (message,) = read_messages([_error_message(kind, why, call)])
        self.messages.append(message)
        self._objections.append(message["data"])

    def _replace(self, messages: list[dict[str, Any]]) -> None:
        self.messages[:] = messages  # in place: the frame has the same list

    def _data(self) -> list[dict[str, Any]]:
        """Return the messages that calls can refer to."""
        return [
            message
            for message in self.messages
            if isinstance(message.get("type"), str) and message["type"] not in _SPOKEN
        ]

    def _answered(self, reason: Reason, output: Any = None) -> Answered:
        frame = self._frame
        return Answered(
            output,
            reason,
            (*self._failed, *self._objections),
            tuple(self.messages),
            tuple(frame.advice),
            self._number,
            frame.usage,
        )


_SPOKEN = ("text", "tool", "advisor")


def _error_message(kind: str, why: str, call: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "data", "kind": "error", "data": {"call": call, "error": {"kind": kind, "message": why}}}


async def _all(
    first: dict[str, Any], rest: AsyncGenerator[dict[str, Any], None]
) -> AsyncGenerator[dict[str, Any], None]:
    yield first
    async for item in rest:
        yield item
