"""One cycle of a model's planning: its request, made smaller and sent again where it is too long, and its answer.

The request is composed anew (`planning.prompt.observations`, `planning.prompt.request`), made to fit
(`planning.prompt.token_budget`) and told as `ModelRequested`. What is wrong with an answer is told to the model in the
run's next request, a few times; a provider that asks to be left alone defers the run.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

from planning.llm.deltas import DeltaPublisher
from planning.llm.response import ModelResponse
from planning.llm.state import PlannerState, digest
from planning.ports import Request, TextDelta
from planning.prompt.advisors import CONSULT
from planning.prompt.call_results import call_shown
from planning.prompt.history import conversation
from planning.prompt.observations import nonexistent, observe, query_of
from planning.prompt.plans.deadlock import circle
from planning.prompt.plans.kept import carried_out, planned, undecided
from planning.prompt.plans.versions import is_meta, meta_of, versioned
from planning.prompt.prompts import EMPTY, UNVERIFIED
from planning.prompt.schema import compose_schema
from planning.prompt.token_budget import fit
from planning.prompt.tool_specs import read_tool_specs
from spar.checks import shorten
from spar.data.blackboard import Board, message_of
from spar.data.paths import ValueTooLargeError, marked
from spar.data.reply import is_silent
from spar.errors import PermanentError, TransientError
from spar.events import ErrorOccurred
from spar.ports.budgets import BudgetError
from spar.ports.trust import is_tainted, was_misled
from spar.protocols import Context
from spar.records.transcript import Entry
from spar.types import Action, ActionResult, Call, CallResult, Experience, Fault, Perception, Trust, replace, utcnow

#: Requests of one cycle that are made again because they were too long.
MOST_OVERFLOWS: Final = 3
#: Of a request that was too long, the share that is tried next where nobody says how much can be read.
_SHRUNK: Final = 0.7
#: Of what can be read, the share that a conversation must take to be worth summing up before it has to be.
_WORTH: Final = 0.2
#: Seconds until a run goes on whose provider did not say when it may.
_WAIT: Final = 10.0
#: Seconds until a run whose calls wait for people is looked at again, unless they answer before.
_LOOK_AGAIN: Final = 30.0
_GOAL: Final = 500  # characters
_TOO_SOON: Final = (
    "The last output referred to what the calls of the same answer bring, before it was there: it was not taken. "
    "Give the output again once you see what it is to say."
)


class PlanningTurn:
    """One cycle of a planner by a model: what is `settled` without a request, else requests and their answers."""

    def __init__(self, planner: PlannerState, perceptions: Sequence[Perception], context: Context) -> None:
        self._planner, self._host, self._perceptions, self._context = planner, planner.host, perceptions, context
        self._run = run = context.run
        #: What came of the run's cycles in which anything was called.
        self._steps: Sequence[ActionResult] = [each for each in run.results if each.results] if run is not None else ()
        self._results: list[CallResult] = [each for one in self._steps for each in one.results]
        self._known_ids = {each.call.id for each in self._results}
        self._run_id = run.id if run is not None else None
        self._faults = planner.faults_of(self._run_id)
        self._tools: Mapping[str, Any] = self._host.tools() if self._host is not None else {}
        self._output = (run.output if run is not None else None) or planner.output
        self._deltas = DeltaPublisher(self._publish, self._run_id)
        self._entries: Sequence[Entry] = ()
        self._experiences: Sequence[Experience] = ()
        self._trust: Trust = "trusted"
        self._task, self._digest, self._unread, self._calls = "", "", "", 0
        self._ids: dict[str, str] = {}
        self._room = planner.room
        self._attempt = 0
        self._too_long: Exception | None = None  # why the last request has to be a smaller one

    def settled(self) -> Action | None:
        """Return what is decided without a request; None where the model has to be asked."""
        return self._waiting() or self._awaited()

    async def answer(self, request: Request) -> AsyncGenerator[Call | Action]:
        """Send one request, and hand on what comes: calls, then the action that says the rest.

        Of a request that was too long nothing comes: see `smaller`.
        """
        planner = self._planner
        failure: Exception | None = None
        self._attempt += 1
        sent = planner.record(request, self._attempt)
        self._digest = sent.digest
        planner.advise(request)
        try:
            async with ModelResponse(planner.model, request) as response:
                try:
                    async for item in self._lazily(response) if planner.plan_mode == "lazy" else response:
                        if isinstance(item, TextDelta):
                            self._deltas.tell(item.text)
                        elif (call := self._call(item)) is not None:
                            if not self._calls:  # how far it is to be trusted is said before the first call begins
                                yield self._action()
                            self._calls += 1
                            yield call
                except BaseException as error:
                    self._deltas.take_back()
                    if self._calls or response.usage is not None or wait_of(error) is None:
                        planner.account(sent, response.usage, response.chars)
                    raise  # whoever asks to be left alone was asked nothing, and a run may wait for that as it likes
                planner.account(sent, response.usage, response.chars)
            planner.room = self._room  # so much it did read
            if self._run is not None:
                self._faults.heard = len(self._run.said)
            if (action := self._decided(response)) is not None:
                yield action
        except Exception as error:
            failure = error
        self._too_long = failure if getattr(failure, "kind", "") == "overflow" and not self._calls else None
        if failure is not None and self._too_long is None:
            yield self._deferred(failure)

    async def _lazily(self, response: ModelResponse) -> AsyncIterator[dict[str, Any] | TextDelta]:
        """The calls of a plan once all of it is there; none of one that goes round in a circle."""
        number = self._run.number if self._run is not None else 1
        calls: list[dict[str, Any]] = []
        async for item in response:
            if isinstance(item, TextDelta):
                yield item
            else:
                calls.append({"_id": f"{number}.{len(calls) + 1}", **item})
        if ring := circle(calls, Board(self._messages()).has):
            self._unread = f"calls of the plan wait for one another: {', '.join(ring)}"
            return
        for call in carried_out(calls, read_tool_specs(self._tools, (), self._planner.activities)):
            yield call

    def _messages(self) -> Sequence[dict[str, Any]]:
        """Return the messages that calls of this run can read."""
        return self._run.messages if self._run is not None else ()

    def _awaited(self) -> Action | None:
        """The output that an earlier answer gave with references to its own calls, now that these have ended.

        None where there is none, where it does not fit, or something was said since: then the model is asked.
        """
        faults, run = self._faults, self._run
        output, faults.output = faults.output, None
        if output is None or run is None or len(run.said) != faults.heard:
            return None
        if not self._steps:
            faults.notice = _TOO_SOON
            return None
        last = self._steps[-1]
        found, problem = (None, UNVERIFIED) if last.errors else self._planner.judged(
            output, self._output, run.messages
        )  # fmt: skip
        if problem or found is None:
            faults.notice = f"The last output could not be used: {problem or 'it refers to nothing'}."
            return None
        self._trust = self._trust_so_far()
        self._speak(found, "")
        return self._action(output=found, reason="the output of the last answer, with the results that it refers to")

    def _waiting(self) -> Action | None:
        """Return the action that defers the run while its open calls wait for people, and nobody has said anything.

        The model has nothing new to go by; the actor goes on with the calls as soon as they are answered.
        """
        run = self._run
        if run is None or not self._steps or len(run.said) != self._faults.heard or self._has_noticed():
            return None
        reasons = {each.reason for each in self._steps[-1].results}
        if "parked" not in reasons or reasons - {"parked", "dep_failed"}:
            return None
        self._trust = self._trust_so_far()
        return self._action(deferred="its calls wait for people's answers", next_look=_LOOK_AGAIN)

    def _has_noticed(self) -> bool:
        """Return whether there is anything in this cycle that the run's messages did not say."""
        run, noticed = self._run, self._context.noticed
        said = {each.id for each in (run.message, *run.said) if each is not None} if run is not None else set()
        told = {part.id for each in self._perceptions for part in (each, *each.evidence) if part.id in said}
        added = set() if noticed is None else {each.id for each in self._perceptions} - {each.id for each in noticed}
        return any(
            each.id not in added and not told & {each.id, *(part.id for part in each.evidence)}
            for each in self._perceptions
        )

    def _trust_so_far(self) -> Trust:
        """Return the trust of a decision without a request: that of the steps that it follows from."""
        run, last = self._run, self._steps[-1].action
        is_untrusted = (run is not None and run.trust == "untrusted") or self._is_misled()
        return "untrusted" if is_untrusted or (last is not None and last.trust == "untrusted") else "trusted"

    # -- the request

    def _standing(self) -> list[dict[str, Any]]:
        """Return the messages that stand in each request of a run: advisors, the plan so far, the meta."""
        planner, messages = self._planner, [dict(each) for each in self._planner.advisors]
        if planner.meta is not None:
            messages.append(message_of("meta", dict(planner.meta)))
        if not planner.plan_mode or self._run is None:
            return messages
        messages.append({"type": "plan", "mode": planner.plan_mode, "plan": {"calls": []}})
        if not self._steps:
            return messages
        results = self._steps[-1].results
        return planned(messages, [call_shown(each.call.to_wire()) for each in results], results)

    def _versioned(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages with the meta that the last answer made, in the place of the one it was made from."""
        found = self._faults.meta
        if found is None or meta_of(messages) is None:
            return messages
        return [*(each for each in messages if not is_meta(each)), dict(found)]

    def _kept(self, response: ModelResponse) -> None:
        """Keep what an answer that counts said of the next version, and what its advisors said."""
        planner, context = self._planner, [dict(each) for each in response.request.context]
        planner.keep(self._context.cycle_id, "advice", response.advisors)
        if meta_of(context) is None:
            return
        now = self._context.clock.now() if self._context.clock is not None else utcnow()
        made = versioned(context, response.meta, now.isoformat())
        self._faults.meta = next(each for each in made if is_meta(each))
        planner.keep(self._context.cycle_id, "meta", meta_of(made))

    async def request(self) -> Request:
        """Return the request as it is first sent; before that the conversation is summed up, if it takes too much."""
        host, planner = self._host, self._planner
        if host is not None and host.transcripts is not None and self._run is not None:
            self._entries = await host.transcripts.read(self._context.session)
        self._experiences = await self._recalled()
        request = self._composed()
        if planner.room is None:
            return request
        if planner.estimator.of(request) > planner.threshold * planner.room:
            spoken = sum(planner.estimator.tokens(turn.text) for turn in request.turns)
            if spoken > _WORTH * planner.room and await self._compacted("threshold", planner.room):
                request = self._composed()
        return fit(request, planner.room, planner.estimator, self._steps)

    async def smaller(self, request: Request) -> Request | None:
        """Return another request in the place of the last, if that was too long.

        Raises: PermanentError when nothing can be left out any more, or that was tried often enough.
        """
        planner, failure = self._planner, self._too_long
        if failure is None:
            return None
        planner.counts["overflows"] += 1
        if self._attempt <= MOST_OVERFLOWS:
            room = int(_SHRUNK * min(planner.estimator.of(request), self._room or 10**9))
            if not await self._compacted("overflow", room):
                self._room = room
            made = fit(self._composed(), self._room, planner.estimator, self._steps)
            if digest(made) != digest(request):
                return made
        raise PermanentError(
            f"the request is too long however much is left out of it: {Fault.of(failure).message}; take a model that "
            "reads more, say less in the instructions, or go on in another session"
        ) from failure

    async def _compacted(self, reason: Literal["overflow", "threshold"], room: int) -> bool:
        """Have the conversation summed up, by a request of at most `room` tokens; whether there is less of it now."""
        host, planner = self._host, self._planner
        if host is None or host.transcripts is None or self._run is None:
            return False
        is_done = await planner.compaction.run(
            host, self._context, self._entries, reason, estimator=planner.estimator, room=room
        )
        if is_done:
            self._entries = await host.transcripts.read(self._context.session)
        return is_done

    async def _recalled(self) -> Sequence[Experience]:
        """Return the matching experiences from before this run, the same for each of its requests.

        A memory that fails is no reason not to plan.
        """
        recall, most = getattr(self._context.memory, "recall", None), self._planner.recall
        run, query = self._run, query_of(self._perceptions, self._context)
        if recall is None or not most or not query.strip():
            return ()
        try:
            found = await recall(query, most + (run.number if run is not None else 0))
            if run is not None and run.message is not None:
                began = run.message.at
                found = [each for each in found if each.at < began]
            return tuple(found[:most])
        except Exception as error:
            self._planner.counts["unrecalled"] += 1
            self._report(error, "memory")
            return ()

    def _composed(self) -> Request:
        planner, run = self._planner, self._run
        heard = [each.id for each in (run.message, *run.said) if each is not None] if run is not None else []
        talk = conversation(
            self._entries, run_id=self._run_id, heard=heard, past=planner.past_of(self._context.session)
        )
        told = observe(self._perceptions, self._context, tools=self._tools, experiences=self._experiences,
                     notices=self._notices())  # fmt: skip
        self._task = told.task
        self._trust = "untrusted" if "untrusted" in (told.trust, talk.trust) or self._is_misled() else "trusted"
        messages = self._versioned([*self._standing(), *told.messages])
        make = partial(
            planner.composer.compose,
            messages,
            activities=planner.activities,
            output=self._output,
            turns=talk.turns,
            instructions=planner.instructions,
            results=run.results[-1].results if run is not None and run.results else (),
            steps=self._steps,
            max_tokens=planner.max_tokens,
            purpose="plan",
            cycle_id=self._context.cycle_id,
            run_id=self._run_id,
        )
        try:
            return make(tools=self._offered())
        except (TypeError, ValueError):
            if not self._left_out():
                raise
            return make(tools=self._offered())

    def _offered(self) -> dict[str, Any]:
        return {name: tool for name, tool in self._tools.items() if name != CONSULT}

    def _is_misled(self) -> bool:
        """Return whether this run was planned from text from outside so far, or has brought any."""
        ticks = self._run.results if self._run is not None else ()
        return was_misled(ticks) or is_tainted((*self._results, *self._context.known), self._tools)

    def _left_out(self) -> bool:
        """Do without the tools that no schema can be made of; whether there are any. One tool's fault is not all's."""
        known = len(self._tools)
        usable: dict[str, Any] = {}
        for name, tool in self._tools.items():
            try:
                compose_schema({name: tool})
            except (TypeError, ValueError) as error:
                self._report(error, name)
            else:
                usable[name] = tool
        self._tools = usable
        return len(usable) < known

    def _notices(self) -> list[str]:
        """Return the agent's own notices: names of tools that do not exist, faults of the last answer."""
        names = nonexistent(self._results, self._tools)
        told = [f"There is no tool named {shorten(name)}, and there will be none: do without it." for name in names]
        return [*told, self._faults.notice] if self._faults.notice else told

    # -- the answer

    def _call(self, wire: Mapping[str, Any]) -> Call | None:
        """A call as it is handed on; None, and a word to the model about it, when it cannot be read."""
        if "_output" in wire and self._planner.plan_mode != "lazy" and (why := undecided(wire)):
            wire = {**wire, "_bad": why}
        try:
            call = Call.from_wire({**wire, "_task": self._task} if self._task else wire)
        except ValueError as error:
            self._unread = self._unread or f"a call cannot be read: {error}"
            return None
        if call.id in self._known_ids:  # a name that an earlier call of this run has
            self._ids[call.id] = f"{call.id}.{self._run.number if self._run is not None else 1}"
        if not self._ids:
            return call
        after = tuple(self._ids.get(each, each) for each in call.after)
        return replace(call, id=self._ids.get(call.id, call.id), after=after)

    def _decided(self, response: ModelResponse) -> Action | None:
        """Return the action that the complete answer decides on; None for nothing to do.

        Raises: PermanentError when answers keep being of no use.
        """
        output, problem, notice = response.output, self._unread or response.problem, ""
        if isinstance(output, str) and (not output.strip() or is_silent(output)):
            output = output.strip() or None
            problem = problem if output is None else ""
        elif output is not None and self._calls and _refers(output):  # what it refers to is not there yet
            if self._run is None:
                notice = _TOO_SOON
            else:
                self._faults.output = output
            output = None
        elif output is not None:
            context = self._run.messages if self._run is not None else ()
            output, problem = self._planner.judged(output, self._output, context)
        if not problem and response.remark and output is not None and self._run is not None:
            problem = "" if self._faults.misfits else response.remark  # told once; what stands then, stands
        if problem:
            self._deltas.take_back()
            return self._misfit(problem, response)
        if response.remark and not notice:
            notice = f"The last answer was not taken as a whole: {response.remark}."
        self._speak(output, response.text)
        if output is None and not self._calls:
            return self._empty()
        self._faults.accept(notice)
        self._kept(response)
        model = response.usage.model if response.usage is not None else ""
        return self._action(output=output, reason=f"{model or 'the model'} was asked (request {self._digest})")

    def _speak(self, output: Any, shown: str) -> None:
        """See to it that what people have seen in the end is the answer: no thought on the way, nothing of silence."""
        silent = not isinstance(output, str) or is_silent(output)
        said = "" if silent else output
        if shown.strip() != said.strip():
            self._deltas.take_back()
            self._deltas.tell(said)
        self._deltas.end(is_silent=silent)

    def _misfit(self, problem: str, response: ModelResponse) -> Action:
        faults = self._faults
        is_last = faults.count_misfit()
        self._planner.counts["misfits"] += 1
        if self._run is None:
            raise TransientError(f"the model's answer cannot be used: {problem}")
        if is_last:
            raise PermanentError(f"the model's answer could not be used {faults.misfits} times in a row: {problem}")
        found = f"; it was {shorten(response.output, 500)}" if response.output is not None else ""
        faults.notice = f"The last answer could not be used: {problem}{found}. Answer again."
        return self._again(f"its answer could not be used: {problem}")

    def _empty(self) -> Action | None:
        faults = self._faults
        is_last = faults.count_empty()
        self._planner.counts["empty"] += 1
        if self._run is None:
            return None
        if is_last:
            raise PermanentError("the model gave an empty answer twice")
        faults.notice = f"The last answer was of no use: {EMPTY}."
        return self._again("its answer was empty")

    def _again(self, why: str) -> Action:
        """The run goes on at once: with the results of its calls, or, if there are none, with what it is told now."""
        if self._calls:
            return self._action(reason=f"{why} (request {self._digest})")
        return self._action(deferred=f"the model is asked again: {why}", next_look=0.0)

    def _deferred(self, error: Exception) -> Action:
        """The run waits, if this error is a matter of time. Raises: the error, if not."""
        wait = wait_of(error)
        if wait is None or self._run is None or self._calls:
            raise error
        self._planner.counts["deferred"] += 1
        return self._action(deferred=Fault.of(error).message, next_look=wait)

    def _action(self, **more: Any) -> Action:
        goal = self._run.goal[:_GOAL] if self._run is not None else ""
        return Action(goal=goal, run_id=self._run_id, trust=self._trust, **more)

    def _report(self, error: Exception, part: str) -> None:
        """Tell of what this cycle does without."""
        fault = Fault.of(error, part=part, phase="plan")
        self._publish(ErrorOccurred(cycle_id=self._context.cycle_id, phase="plan", error=fault, policy="continue"))

    def _publish(self, event: Any) -> None:
        if self._host is not None:
            self._host.events.publish(event)


def _refers(output: Any) -> bool:
    """Return whether an output refers to anything; of one that nobody can read this does not matter."""
    try:
        return bool(marked(output))
    except ValueTooLargeError:
        return False


def wait_of(error: BaseException) -> float | None:
    """Seconds after which what failed is to be tried again; None when waiting is of no use."""
    if not isinstance(error, TransientError):
        return None
    if isinstance(error, BudgetError):
        refusal = error.refusal
        if not refusal.limit or (refusal.asked is not None and refusal.asked > refusal.limit):
            return None  # there will never be enough
    elif error.retry_after is None and getattr(error, "kind", "") not in ("rate_limited", "overloaded"):
        return None
    return error.retry_after if error.retry_after is not None else _WAIT
