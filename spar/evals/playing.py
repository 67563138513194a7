"""Playing of cases: each trial has an agent, a store and tools of its own, so trials can run side by side.

The agent is the one that the configuration describes, with its planner, its limits and its prompt files. It has the
tools of the case instead of its own, and no sensors, rules, channels, notifiers and plug-ins.

A tool of a case answers as the case says, and a scripted planner plays a past conversation again.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from spar.agent.agent import build_agent
from spar.config.lines import dotted, refusal
from spar.config.tables.settings import Part
from spar.errors import ConfigError, PermanentError, SparError, leaves
from spar.evals.cases import AnsweringTool, EvalCase, PastCall, ToolAnswer
from spar.evals.conditions import fits
from spar.events import (
    ApprovalRequested,
    CallFailed,
    CallSkipped,
    CompactionCompleted,
    HealthAlert,
    ModelAnswered,
    ModelStateChanged,
)
from spar.parts.registry import default_registry
from spar.records.runs import RunStatus
from spar.threads import Tasks
from spar.types import Action, Call, Experience

if TYPE_CHECKING:
    from spar.config.tables.settings import Loaded


class CallMade(Struct, frozen=True):
    """Call that the model made; `status` is "ok", "failed" or "denied"."""

    tool: str
    params: Mapping[str, Any]
    status: str


class StandIn:
    """Tool of a case, which answers and does nothing. Each call of it is added to `calls`."""

    def __init__(self, name: str, tool: AnsweringTool, calls: list[CallMade]) -> None:
        self.name, self._answers, self._calls = name, tool.answers, calls
        self._given: Counter[int] = Counter()
        self.effect, self.approval, self.timeout = tool.effect, tool.approval, 60.0
        self.brings_untrusted, self.safe_with_untrusted = tool.brings_untrusted, tool.safe_with_untrusted
        properties = {
            key: {"type": "string", "description": value} if isinstance(value, str) else value
            for key, value in tool.params.items()
        }
        self.schema = {
            "type": "object",
            "description": tool.description,
            "properties": {"_tool": {"const": name}, **properties},
            "required": ["_tool", *(key for key in properties if key not in tool.optional)],
        }

    async def __call__(self, **params: Any) -> Any:
        """Return the first answer that fits. Raises: PermanentError with the message of the case."""
        number, answer = next(
            ((number, answer) for number, answer in enumerate(self._answers) if self._fits(number, answer, params)),
            (-1, ToolAnswer(error=f"{self.name} knows nothing about these parameters")),
        )
        self._given[number] += 1
        self._calls.append(CallMade(self.name, params, "failed" if answer.error else "ok"))
        if answer.error:
            raise PermanentError(answer.error)
        return answer.result

    def _fits(self, number: int, answer: ToolAnswer, params: Mapping[str, Any]) -> bool:
        return (not answer.times or self._given[number] < answer.times) and fits(params, answer.when)


def past_of(case: EvalCase) -> tuple[list[str], list[Action], list[StandIn]]:
    """Return the past conversation: the messages of the user, what was planned of them in order, and the tools, which
    give their results in order."""
    messages: list[str] = []
    actions: list[Action] = []
    calls: list[PastCall] = []
    for turn in case.history:
        for number in range(1, turn.repeat + 1):
            user, agent = (text.replace("{n}", str(number)) for text in (turn.user, turn.agent))
            messages.append(user)
            if turn.calls:
                actions.append(Action(calls=[Call(call.tool, call.params) for call in turn.calls]))
            actions.append(Action(output=agent))
            calls += turn.calls
    tools = []
    for name in dict.fromkeys(call.tool for call in calls):
        own = [call for call in calls if call.tool == name]
        params: dict[str, Any] = {key: {} for call in own for key in call.params}
        answers = tuple(ToolAnswer(result=call.result, error=call.error, times=1) for call in own)
        tool = AnsweringTool(description=name, params=params, optional=tuple(params), answers=answers,
                             safe_with_untrusted=True)  # fmt: skip
        tools.append(StandIn(name, tool, []))
    return messages, actions, tools


#: Function that returns the configuration with further settings, by their dotted keys. Raises: ConfigError.
Configure = Callable[[Mapping[str, Any]], "Loaded"]

#: Seconds that a run waits for a provider that wants to be asked later, and that an agent has to stop.
_PATIENCE, _STOP = 30.0, 5.0
#: Seconds of rest of all models from which on no trial can go on; a provider that cannot be reached rests for 30.
_AWAY = 25.0


#: Registry of parts, one for each folder: to read the entry points takes longer than a trial.
_registry = functools.cache(default_registry)


class Trial(Struct):
    """One play of a case.

    `calls` are those that the model made, `asked` the tools that asked for approval, `statuses` those of the runs.
    `steps` counts the requests without those for summaries; `cost` is in millionths, as far as prices are known.
    `seconds` were taken from the first message on. `error` says why it ended early, "" if it did not.
    """

    case: EvalCase
    calls: list[CallMade] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    statuses: list[RunStatus] = field(default_factory=list)
    steps: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost: int = 0
    compactions: int = 0
    seconds: float = 0.0
    error: str = ""

    @property
    def tokens(self) -> int:
        """Return the tokens read and written."""
        return self.input_tokens + self.output_tokens


class ModelAwayError(SparError):
    """Error of a model that cannot be asked at all."""


def check(cases: Iterable[EvalCase], configure: Configure) -> None:
    """Check that the configuration has a planner with a model, and that it takes the settings of all cases.

    Raises: ConfigError.
    """
    checked: list[Mapping[str, Any]] = []
    for case in cases:
        if case.settings in checked:
            continue
        checked.append(case.settings)
        try:
            loaded = configure(case.settings)
            if loaded.settings.plan.use == "rules":
                where = loaded.origin(("plan", "use"))
                sentence = (
                    f"plan.use = {loaded.settings.plan.use!r} ({where}): cases are for a planner that asks a model"
                )
                raise ConfigError(f"{sentence}; name a configuration that has one with -c")
            _build(on_trial(loaded, "unused"), ())
        except ConfigError as error:
            if not case.settings or not error.path:
                raise
            sentences = (f"{dotted(problem.path)}{problem.tail}" for problem in refusal(error).problems)
            raise ConfigError(f"case {case.name!r}, settings: {'; '.join(sentences)}") from None


def on_trial(loaded: Loaded, folder: str) -> Loaded:
    """Return a configuration of which only the planner and the limits are left, and whose store lies in a folder."""
    settings, usual = loaded.settings, type(loaded.settings)()
    bare = replace(
        settings, sensors=(), rules=(), tools=(), channels=(), notifiers=(), plugins=(), attachments=(),
        act=usual.act, reflect=usual.reflect, sessions=usual.sessions, tracing=usual.tracing,
        memory=replace(settings.memory, use="sqlite",
                       options={"url": f"sqlite:///{folder}/memory.db", "durability": "off", "ballast": 0}),
        approval=replace(settings.approval, rules=()),
        agent=replace(settings.agent, loop_interval="off", min_interval=0.0),
        runs=replace(settings.runs, patience=_PATIENCE),
        service=replace(settings.service, state_dir=folder),
    )  # fmt: skip
    return replace(loaded, settings=bare)


async def play_all(cases: Sequence[EvalCase], *configurations: Configure, repeat: int = 1, at_once: int = 4,
                   progress: Callable[[Trial], None] = lambda trial: None) -> list[list[Trial]]:  # fmt: skip
    """Return the trials of each configuration, in the order of the cases. Those of a case follow one another, so that
    a provider that is busy for a while is busy for all configurations.

    Args: repeat: trials of each case; at_once: most at the same time; progress: is called with each that has ended.
    Raises: ConfigError; ModelAwayError, after which no further trial begins.
    """
    slots, away = asyncio.Semaphore(at_once), list[ModelAwayError]()

    async def one(case: EvalCase, configure: Configure) -> Trial:
        async with slots:
            trial = Trial(case)
            if not away:
                try:
                    await play(trial, configure)
                    progress(trial)
                except ModelAwayError as error:  # trials under way notice it by themselves
                    away.append(error)
        return trial

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [[group.create_task(one(case, configure)) for configure in configurations]
                     for case in cases for _ in range(repeat)]  # fmt: skip
    except BaseExceptionGroup as error:
        raise next(leaves(error)) from None
    if away:
        raise away[0]
    return [[task.result() for task in of_one] for of_one in zip(*tasks, strict=True)]


async def play(trial: Trial, configure: Configure) -> None:
    """Play the case of a trial. Raises: ConfigError; ModelAwayError when no model can be asked."""
    case = trial.case
    with TemporaryDirectory(prefix="spar-eval-", ignore_cleanup_errors=True) as folder:
        loaded = on_trial(configure(case.settings), folder)
        try:
            async with asyncio.timeout(case.timeout):
                await _replay(case, loaded)
                await _play(trial, loaded)
        except TimeoutError:
            trial.error = f"did not end within {case.timeout:g} s"


async def _replay(case: EvalCase, loaded: Loaded) -> None:
    """Write the past conversation of a case into the store: a planner without a model has it once more."""
    messages, actions, tools = past_of(case)
    if not messages:
        return
    settings = loaded.settings
    planner = Part(use="spar.testing:ScriptedPlanner", options={"script": actions})
    settings = replace(settings, plan=planner, approval=replace(settings.approval, untrusted="auto"))
    async with _running(_build(replace(loaded, settings=settings), tools)) as agent:
        for message in messages:
            await agent.wait((await agent.submit(message)).run_id, None)


def _build(loaded: Loaded, tools: Sequence[Any]) -> Any:
    return build_agent(loaded, registry=_registry(str(loaded.folder)), tools=tools)


@asynccontextmanager
async def _running(agent: Any) -> AsyncIterator[Any]:
    """Start an agent, and stop it at the end."""
    try:
        await agent.start()
        yield agent
    finally:
        await agent.stop(_STOP)


async def _play(trial: Trial, loaded: Loaded) -> None:
    case = trial.case
    agent = _build(loaded, [StandIn(name, tool, trial.calls) for name, tool in case.tools.items()])
    listener = _Listener(trial, agent)
    async with _running(agent):
        for past in case.experiences:
            await agent.memory.store(Experience(**asdict(past), trust="trusted"))
        began = agent.clock.monotonic()
        for message in case.messages:
            run_id = (await agent.submit(message.text, session=message.session)).run_id
            ending = asyncio.ensure_future(agent.wait(run_id, None))
            try:
                await asyncio.wait([ending, listener.away], return_when=asyncio.FIRST_COMPLETED)
                if listener.away.done():
                    raise ModelAwayError(listener.away.result())
                trial.statuses.append(ending.result())
            except BaseException:
                ending.cancel()
                await agent.abort(run_id)  # its request is broken off, so that the agent can stop
                raise
            finally:
                trial.seconds = agent.clock.monotonic() - began


class _Listener:
    """Listener to the events of a trial, which counts, and answers questions for approval.

    Attributes: away: a future of the reason for which no model can be asked.
    """

    def __init__(self, trial: Trial, agent: Any) -> None:
        self._trial, self._agent = trial, agent
        self._tasks = Tasks()
        self._rests: dict[str, float] = {}
        self.away: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        for kind, receive in (
            (ModelAnswered, self._answered), (ModelStateChanged, self._rested), (HealthAlert, self._alerted),
            (CallFailed, self._not_run), (CallSkipped, self._not_run), (CompactionCompleted, self._compacted),
            (ApprovalRequested, self._asked),
        ):  # fmt: skip
            agent.events.subscribe(kind, receive)

    def _answered(self, event: ModelAnswered) -> None:
        trial = self._trial
        trial.steps += event.purpose != "compaction" and not event.error
        trial.input_tokens += event.input_tokens
        trial.cached_tokens += event.cached_tokens
        trial.output_tokens += event.output_tokens
        trial.cost += event.cost or 0

    def _rested(self, event: ModelStateChanged) -> None:
        self._rests[event.model] = event.retry_after or 0.0 if event.state == "open" else 0.0

    def _alerted(self, event: HealthAlert) -> None:
        """Give up when no model can be asked for longer than a trial waits."""
        if event.kind == "provider" and min(self._rests.values(), default=0.0) >= _AWAY and not self.away.done():
            self.away.set_result(event.message)

    def _not_run(self, event: CallFailed | CallSkipped) -> None:
        """Add a call that never reached its tool: its parameters are wrong, or it was denied."""
        result = event.result
        if (not result.attempts and result.status == "failed") or result.status == "denied":
            self._trial.calls.append(CallMade(result.call.tool, result.call.params, result.status))

    def _compacted(self, event: CompactionCompleted) -> None:
        self._trial.compactions += event.completed

    def _asked(self, event: ApprovalRequested) -> None:
        self._trial.asked.append(event.call.tool)
        self._tasks.start(self._decide(event.call))

    async def _decide(self, call: Call) -> None:
        tool = self._trial.case.tools[call.tool]
        for row in self._agent.approvals.list():
            if row.call.id == call.id:
                await self._agent.approvals.decide(row.id, tool.decision, reason=tool.reason, by="spar eval")
