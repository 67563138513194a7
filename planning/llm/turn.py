"""One cycle of a model's planning: what the answer to its request decides.

The request (`planning.llm.cycle_request`) is told as `ModelRequested`. What is wrong with an answer is told to the
model in the run's next request, a few times; a provider that asks to be left alone defers the run.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final

from planning.llm.cycle_request import CycleRequest
from planning.llm.deltas import DeltaPublisher
from planning.llm.response import Item, ModelResponse
from planning.llm.state import PlannerState
from planning.ports import Request, TextDelta, ThoughtDelta
from planning.prompt.plans.deadlock import circle
from planning.prompt.plans.kept import carried_out, undecided
from planning.prompt.plans.versions import is_meta, meta_of, versioned
from planning.prompt.prompts import EMPTY, UNVERIFIED
from planning.prompt.tool_specs import read_tool_specs
from spar.checks import shorten
from spar.data.blackboard import Board
from spar.data.paths import ValueTooLargeError, marked
from spar.data.reply import is_silent
from spar.errors import PermanentError, TransientError
from spar.ports.budgets import BudgetError
from spar.protocols import Context
from spar.types import Action, Call, Fault, Learnt, Perception, Trust, replace, utcnow

#: Seconds until a run goes on whose provider did not say when it may.
_WAIT: Final = 10.0
#: Seconds until a run whose calls wait for people is looked at again, unless they answer before.
_LOOK_AGAIN: Final = 30.0
_GOAL: Final = 500  # characters
_TOO_SOON: Final = (
    "The last output referred to what the calls of the same answer bring, before it was there: it was not taken. "
    "Give the output again once you see what it is to say."
)


class PlanningTurn(CycleRequest):
    """One cycle of a planner by a model: what is `settled` without a request, else requests and their answers."""

    def __init__(self, planner: PlannerState, perceptions: Sequence[Perception], context: Context) -> None:
        super().__init__(planner, perceptions, context)
        self._known_ids = {each.call.id for each in self._results}
        self._deltas = DeltaPublisher(self._publish, self._run)
        self._digest, self._unread, self._calls = "", "", 0
        self._first_call = ""
        self._ids: dict[str, str] = {}
        self._said = ""  # beside the calls

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
        sent = planner.record.begin(request, self._attempt)
        self._digest = sent.digest
        planner.advise(request)
        try:
            async with ModelResponse(planner.model, sent.request) as response:
                try:
                    async for item in self._lazily(response) if planner.plan_mode == "lazy" else response:
                        if isinstance(item, TextDelta):
                            self._deltas.tell(item.text)
                        elif isinstance(item, ThoughtDelta):
                            self._deltas.think(item)
                        elif (call := self._call(item)) is not None:
                            if not self._calls:  # how far it is to be trusted is said before the first call begins
                                self._deltas.text_ends()
                                yield self._action()
                            self._calls += 1
                            self._first_call = self._first_call or call.id
                            yield call
                except BaseException as error:
                    self._deltas.take_back()
                    self._deltas.forget_thoughts()
                    if self._calls or response.usage is not None or wait_of(error) is None:
                        planner.record.count(sent, response.usage, response.chars)
                    planner.record.end(sent, response.usage, error)
                    raise  # whoever asks to be left alone was asked nothing, and a run may wait for that as it likes
                planner.record.count(sent, response.usage, response.chars)
                planner.record.end(sent, response.usage)
                planner.record.keep_settings(request.cycle_id, sent, response.asked)
            if response.asked is None or response.asked.model == self._in_turn:
                planner.models.learn(self._in_turn, self._room, self._options.thinking)  # so much it did read
            if self._run is not None:
                self._faults.heard = len(self._run.said)
            if (action := self._decided(response)) is not None:
                yield action
        except Exception as error:
            failure = error
        self._too_long = failure if getattr(failure, "kind", "") == "overflow" and not self._calls else None
        if failure is not None and self._too_long is None:
            yield self._deferred(failure)

    async def _lazily(self, response: ModelResponse) -> AsyncIterator[Item]:
        """The calls of a plan once all of it is there; none of one that goes round in a circle."""
        number = self._run.number if self._run is not None else 1
        calls: list[dict[str, Any]] = []
        async for item in response:
            if isinstance(item, (TextDelta, ThoughtDelta)):
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

    def _kept(self, response: ModelResponse) -> None:
        """Keep what an answer that counts said of the next version, and what its advisors said."""
        planner, context = self._planner, [dict(each) for each in response.request.context]
        planner.record.keep(self._context.cycle_id, "advice", response.advisors)
        if meta_of(context) is None:
            return
        now = self._context.clock.now() if self._context.clock is not None else utcnow()
        made = versioned(context, response.meta, now.isoformat())
        self._faults.meta = next(each for each in made if is_meta(each))
        planner.record.keep(self._context.cycle_id, "meta", meta_of(made))

    # -- the answer

    def _call(self, wire: Mapping[str, Any]) -> Call | None:
        """A call as it is handed on; None, and a word to the model about it, when it cannot be read."""
        if "_output" in wire and self._planner.plan_mode != "lazy" and (why := undecided(wire)):
            wire = {**wire, "_bad": why}
        if wire.get("_tool") in self._hidden:
            wire = {**wire, "_bad": "this tool is not offered in this step"}
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
        if self._calls and output is None and not is_silent(response.text):
            self._said = response.text.strip()
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
        """Leave people with the answer alone: take back thoughts on the way, and text of an answer that is silent."""
        silent = not isinstance(output, str) or is_silent(output)
        said = "" if silent else output
        if shown.strip() != said.strip():
            self._deltas.take_back()
            self._deltas.tell(said)
        self._deltas.end(is_silent=silent)

    def _misfit(self, problem: str, response: ModelResponse) -> Action:
        faults = self._faults
        is_last = faults.count_misfit()
        self._planner.record.counts["misfits"] += 1
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
        self._planner.record.counts["empty"] += 1
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
        self._planner.record.counts["deferred"] += 1
        return self._action(deferred=Fault.of(error).message, next_look=wait)

    def _action(self, **more: Any) -> Action:
        goal = self._run.goal[:_GOAL] if self._run is not None else ""
        learnt = tuple(self._learnt())
        return Action(goal=goal, run_id=self._run_id, trust=self._trust, said=self._said, learnt=learnt, **more)

    def _learnt(self) -> Iterator[Learnt]:
        """Yield what the model was shown of what was learnt, if calls came of it: nobody knows what it went by."""
        shown = self._experiences or self._unshown
        if self._first_call and shown:
            is_used = bool(self._experiences)
            number = f"{len(shown)} experience{'s'[: len(shown) != 1]}"
            why = f"the model was shown {number}" if is_used else f"the model would have been shown {number}"
            yield Learnt(why, self._first_call, tuple(each.id for each in shown), is_used=is_used)


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
