"""Loop of requests, usable without an agent: a model is asked, its calls are carried out, until it gives an output.

    answered = await Requests(model, tools=[fetch, save]).run([{"type": "input", "input": …}], output=schema)
    answered.output, answered.reason, answered.errors

A run of this loop has steps; each makes one request. Calls start while the answer is still being written; errors of a
step are in the next request. An agent does not use this loop: its planner makes one request in each cycle, with the
same parts of this folder. The loop itself does not retry, take another model after an error or count money: a `Model`
that stands for several models may do that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from planning.llm.delegates import CONSULTATION, FRAME, Allowance, Definitions, Delegates, Frame
from planning.llm.steps import Answered, LoopSettings, RequestRun
from planning.ports import Kind, Model
from planning.prompt.request import read_messages
from planning.prompt.tool_specs import executor_type
from spar.clock import Clock, SystemClock
from spar.errors import ConfigError, PermanentError


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
        self._settings = LoopSettings(model, clock or SystemClock(), verify_output, approve, confirm, instructions)
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
        return await RequestRun(
            self._settings, self._executor_for(messages), messages, output, frame, advisors=advisors
        ).run()

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
        answered = await RequestRun(
            self._settings, executor, messages, output, frame, kind=kind, instructions=instructions
        ).run()
        if outer is not None and answered.usage is not None:
            outer.took(answered.usage)
        if answered.reason != "output":
            last = f": {answered.errors[-1]['error']['message']}" if answered.errors else ""
            raise PermanentError(f"it was asked of a model and came to no output ({answered.reason}){last}")
        return answered.output

    def _make(self, tools: Iterable[Any] = ()) -> Any:
        return executor_type()([*self._tools, *tools], activities=self._activities, clock=self._settings.clock)

    def _executor_for(self, messages: Iterable[dict[str, Any]]) -> Any:
        """Return the executor, or another one that also knows the tools in these messages."""
        if not self._is_own:
            return self.executor
        tool_messages = [message for message in messages if message.get("type") == "tool"]
        named = [message for message in tool_messages if not isinstance(message.get("tool"), str)]
        return self._make(named) if named else self.executor
