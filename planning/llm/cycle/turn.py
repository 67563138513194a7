"""One cycle of a planner by a model: its request is sent, and the answer becomes calls and an action.

An answer that cannot be used does not end the run: the next request says what was wrong with it, up to `MOST_MISFITS`
times in a row. If the provider asks to wait, the run is deferred: its next cycle begins later. The request is made by
`planning.llm.cycle.request`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from planning.llm.cycle.request import CycleRequest
from planning.llm.response import Item, Judgement, ModelResponse
from planning.llm.state import PlannerState
from planning.ports import Request, TextDelta, ThoughtDelta
from planning.prompt.observations import sensed
from planning.prompt.plans.deadlock import circle
from planning.prompt.plans.kept import carried_out, undecided
from planning.prompt.plans.versions import is_meta, meta_of, versioned
from planning.prompt.prompts import UNVERIFIED
from planning.prompt.tool_specs import read_tool_specs
from spar.checks import shorten
from spar.data.blackboard import Board
from spar.data.paths import ValueTooLargeError, marked
from spar.data.reply import is_silent, may_become_silent
from spar.errors import PermanentError, TransientError
from spar.events import AssistantDelta, Event, ReasoningDelta
from spar.ports.budgets import BudgetError
from spar.protocols import Context, RunContext
from spar.types import Action, Call, Fault, Learnt, Perception, Trust, replace, utcnow

#: Seconds until a deferred run goes on, where the provider did not say how long to wait.
_WAIT: Final = 10.0
#: Seconds until a run whose calls wait for people is looked at again, unless they answer before.
_LOOK_AGAIN: Final = 30.0
#: Most characters of an action's goal.
_GOAL: Final = 500
_TOO_SOON: Final = (
    "The last output referred to what the calls of the same answer bring, before it was there: it was not taken. "
    "Give the output again once you see what it is to say."
)


class PlanningTurn:
    """One cycle of a planner by a model: `settled` decides without a request where it can, `answer` asks the model.

    `cycle` makes the requests, of the values in `gathered`.
    """

    def __init__(self, planner: PlannerState, perceptions: Sequence[Perception], context: Context) -> None:
        self._planner, self._host = planner, planner.host
        self.cycle = CycleRequest(planner, perceptions, context)
        self._gathered = self.cycle.gathered
        self._run, self._faults = context.run, self._gathered.faults
        self._known_ids = {result.call.id for result in self._gathered.results}
        self._deltas = DeltaPublisher(self.cycle.publish, self._run)
        self._digest, self._unread, self._calls = "", "", 0  # of the request; why calls are unusable; calls yielded
        self._first_call = ""
        self._ids: dict[str, str] = {}  # new ids of calls, by ids that an earlier call of this run has already
        self._spoken = ""  # text that the model wrote beside its calls
        self._signed: tuple[dict[str, Any], ...] = ()  # parts of the answer that the provider wants back
        self._trust: Trust = "trusted"

    def settled(self) -> Action | None:
        """Return the action that needs no request; None where the model has to be asked."""
        return self._waiting() or self._awaited()

    async def answer(self, request: Request) -> AsyncGenerator[Call | Action]:
        """Send one request; yield an action that says whether its calls are trusted, the calls, the complete action.

        Nothing is yielded where the model refused the request as too long: `smaller` then makes another one.
        """
        planner, cycle, gathered = self._planner, self.cycle, self._gathered
        asked, cycle.attempt, self._trust = cycle.composed, cycle.attempt + 1, cycle.composed.trust
        failure: Exception | None = None
        sent = planner.record.begin(request, cycle.attempt)
        self._digest = sent.digest
        if asked.new:
            gathered.additions.add(asked.cycles, asked.new)
            if gathered.additions.has_texts:
                planner.write(gathered.run_id, gathered.additions)
        if self._host is not None and (why := planner.why_anew(request)):
            cost = f"begins anew, because {why}: about {sent.tokens} tokens are read in full"
            self._host.tell_problem(f"the conversation of {self._gathered.context.session}", cost, is_note=True)
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
                            if not self._calls:  # the actor must know the trust before it runs a call
                                self._deltas.text_ends()
                                yield self._action()
                            self._calls += 1
                            self._first_call = self._first_call or call.id
                            yield call
                except BaseException as error:
                    self._deltas.take_back()
                    self._deltas.forget_thoughts()
                    planner.record.end(sent, response, error)
                    raise
                planner.record.end(sent, response)
                planner.record.keep_settings(request.cycle_id, sent, response.asked)
            if response.asked is None or response.asked.model == cycle.model:
                planner.models.learn(cycle.model, cycle.room, gathered.options.thinking)  # it read so much
            if self._run is not None:
                self._faults.heard = len(self._run.said)
            if (action := self._decided(response)) is not None:
                yield action
        except Exception as error:
            failure = error
        cycle.too_long = failure if getattr(failure, "kind", "") == "overflow" and not self._calls else None
        if failure is not None and cycle.too_long is None:
            yield self._deferred(failure)

    async def _lazily(self, response: ModelResponse) -> AsyncIterator[Item]:
        """Yield the calls of a lazy plan once all are there; none where calls wait for one another in a circle."""
        number = self._run.number if self._run is not None else 1
        calls: list[dict[str, Any]] = []
        async for item in response:
            if isinstance(item, (TextDelta, ThoughtDelta)):
                yield item
            else:
                calls.append({"_id": f"{number}.{len(calls) + 1}", **item})
        if ring := circle(calls, Board(self._gathered.messages).has):
            self._unread = f"calls of the plan wait for one another: {', '.join(ring)}"
            return
        for call in carried_out(calls, read_tool_specs(self._gathered.tools, (), self._planner.activities)):
            yield call

    def _awaited(self) -> Action | None:
        """Return an action with the output of the last answer that referred to its own calls, which have ended now.

        Returns None where there is no such output, where it does not fit its schema, or where people have said
        something since: then the model is asked.
        """
        faults, run = self._faults, self._run
        output, faults.output = faults.output, None
        if output is None or run is None or len(run.said) != faults.heard:
            return None
        if not self._gathered.steps:
            faults.notice = _TOO_SOON
            return None
        last = self._gathered.steps[-1]
        value, problem = (None, UNVERIFIED) if last.errors else self._planner.judged(
            output, self._gathered.output, run.messages
        )  # fmt: skip
        if problem or value is None:
            faults.notice = f"The last output could not be used: {problem or 'it refers to nothing'}."
            return None
        self._trust = self._trust_so_far()
        self._speak(value, "")
        return self._action(output=value, reason="the output of the last answer, with the results that it refers to")

    def _waiting(self) -> Action | None:
        """Return the action that defers the run while its calls wait for the approval of people; else None.

        A request would show the model nothing new. The actor continues the calls as soon as people answer.
        """
        run, gathered = self._run, self._gathered
        if run is None or not gathered.steps or len(run.said) != self._faults.heard:
            return None
        if sensed(gathered.perceptions, gathered.context):
            return None
        reasons = {result.reason for result in gathered.steps[-1].results}
        if "parked" not in reasons or reasons - {"parked", "dep_failed"}:
            return None
        self._trust = self._trust_so_far()
        return self._action(deferred="its calls wait for people's answers", next_look=_LOOK_AGAIN)

    def _trust_so_far(self) -> Trust:
        """Return the trust of an action that needed no request: untrusted where anything before it in the run was."""
        run, last = self._run, self._gathered.steps[-1].action
        is_untrusted = (run is not None and run.trust == "untrusted") or self._gathered.is_misled
        return "untrusted" if is_untrusted or (last is not None and last.trust == "untrusted") else "trusted"

    def _keep_records(self, response: ModelResponse) -> None:
        """Note the advice of an answer that is used in the record of the cycle, and the next version of the `meta`."""
        planner = self._planner
        planner.record.keep(self._gathered.context.cycle_id, "advice", response.advisors)
        if meta_of(response.request.context) is None:
            return
        context = [dict(message) for message in response.request.context]
        now = self._gathered.context.clock.now() if self._gathered.context.clock is not None else utcnow()
        versioned_messages = versioned(context, response.meta, now.isoformat())
        self._faults.meta = next(message for message in versioned_messages if is_meta(message))
        planner.record.keep(self._gathered.context.cycle_id, "meta", meta_of(versioned_messages))

    # -- the answer

    def _call(self, wire: Mapping[str, Any]) -> Call | None:
        """Return a call from its form on the wire; None if it cannot be read, which the next request says."""
        if "_output" in wire and self._planner.plan_mode != "lazy" and (why := undecided(wire)):
            wire = {**wire, "_bad": why}
        if wire.get("_tool") in self._gathered.hidden:
            wire = {**wire, "_bad": "this tool is not offered in this step"}
        try:
            call = Call.from_wire({**wire, "_task": task} if (task := self.cycle.composed.task) else wire)
        except ValueError as error:
            self._unread = self._unread or f"a call cannot be read: {error}"
            return None
        if call.id in self._known_ids:  # an earlier call of this run has the same id
            self._ids[call.id] = f"{call.id}.{self._run.number if self._run is not None else 1}"
        if not self._ids:
            return call
        after = tuple(self._ids.get(name, name) for name in call.after)
        return replace(call, id=self._ids.get(call.id, call.id), after=after)

    def _decided(self, response: ModelResponse) -> Action | None:
        """Return the action for a complete answer; None for nothing to do.

        Raises: PermanentError when too many answers in a row could not be used; TransientError for such an answer
        outside of a run, since only a run asks again.
        """
        output, notice = response.output, ""
        if self._calls and output is None and not is_silent(response.text):
            self._spoken = response.text.strip()
        if output is not None and self._calls and _refers(output):  # its calls have not ended yet
            if self._run is None:
                notice = _TOO_SOON
            else:
                self._faults.output = output
            output = None
        is_asked_again = self._run is not None
        judgement = self._faults.judge(response, output, self._checked, "" if output is not None else self._unread,
                                       is_asked_again=is_asked_again)  # fmt: skip
        if judgement.kind == "misfit":
            self._deltas.take_back()
            return self._misfit(judgement, response)
        output = judgement.output
        self._speak(output, response.text)
        if judgement.kind != "used":
            self._planner.record.counts["empty"] += 1
            if self._run is None:
                return None
            if judgement.is_last:
                raise PermanentError("the model gave an empty answer twice")
            return self._again("its answer was empty", f"The last answer was of no use: {judgement.why}.")
        if response.remark and not notice:
            notice = f"The last answer was not taken as a whole: {response.remark}."
        self._faults.notice = notice
        self._signed = tuple(dict(part) for part in response.signed)
        self._keep_records(response)
        additions = self._gathered.additions
        if output is not None and additions.has_texts and additions.are_of(self.cycle.composed.cycles):
            self._planner.forget(self._gathered.run_id, self._gathered.context.cycle_id)
        model = response.usage.model if response.usage is not None else ""
        return self._action(output=output, reason=f"{model or 'the model'} was asked (request {self._digest})")

    def _checked(self, output: Any) -> tuple[Any, str]:
        """Return an output as the run has it, and what is wrong with it. Nothing is demanded of a silent one."""
        if isinstance(output, str) and is_silent(output):
            return output.strip(), ""
        return self._planner.judged(output, self._gathered.output, self._gathered.messages)

    def _speak(self, output: Any, shown: str) -> None:
        """Show people the final answer. Text that was shown before and is not the answer is taken back."""
        silent = not isinstance(output, str) or is_silent(output)
        text = "" if silent else output
        if shown.strip() != text.strip():
            self._deltas.take_back()
            self._deltas.tell(text)
        self._deltas.end(is_silent=silent)

    def _misfit(self, judgement: Judgement, response: ModelResponse) -> Action:
        """Return the action that asks the model again after an answer that cannot be used.

        Raises: PermanentError after more than `MOST_MISFITS` in a row; TransientError outside of a run.
        """
        faults, problem = self._faults, judgement.why
        self._planner.record.counts["misfits"] += 1
        if self._run is None:
            raise TransientError(f"the model's answer cannot be used: {problem}")
        if judgement.is_last:
            raise PermanentError(f"the model's answer could not be used {faults.misfits} times in a row: {problem}")
        shown_answer = f"; it was {shorten(response.output, 500)}" if response.output is not None else ""
        notice = f"The last answer could not be used: {problem}{shown_answer}. Answer again."
        return self._again(f"its answer could not be used: {problem}", notice)

    def _again(self, why: str, notice: str) -> Action:
        """Return the action with which the run asks again: after the calls of this answer, or at once if it has none
        (the run is deferred for 0 seconds). The next request has the notice."""
        self._faults.notice = notice
        if self._calls:
            return self._action(reason=f"{why} (request {self._digest})")
        return self._action(deferred=f"the model is asked again: {why}", next_look=0.0)

    def _deferred(self, error: Exception) -> Action:
        """Return the action that defers the run after an error that may pass. Raises: any other error."""
        wait = wait_of(error)
        if wait is None or self._run is None or self._calls:
            raise error
        self._planner.record.counts["deferred"] += 1
        return self._action(deferred=Fault.of(error).message, next_look=wait)

    def _action(self, **more: Any) -> Action:
        goal = self._run.goal[:_GOAL] if self._run is not None else ""
        additions = (*self.cycle.composed.earlier, *self.cycle.composed.new) if self._digest else None
        more |= {"goal": goal, "run_id": self._gathered.run_id, "trust": self._trust, "said": self._spoken}
        return Action(learnt=self._decisions(), additions=additions, signed=self._signed, **more)

    def _decisions(self) -> tuple[Learnt, ...]:
        """Return which experiences the model was shown before it made calls. It does not say which of them it used."""
        if not self._first_call:
            return ()
        ids = list(dict.fromkeys(self.cycle.composed.recalled))
        shown_ids = ids or [experience.id for experience in self._gathered.unshown]
        if not shown_ids:
            return ()
        number = f"{len(shown_ids)} experience{'s'[: len(shown_ids) != 1]}"
        why = f"the model {'was' if ids else 'would have been'} shown {number}"
        return (Learnt(why, self._first_call, tuple(shown_ids), is_used=bool(ids)),)


def _refers(output: Any) -> bool:
    """Return whether an output holds references; False for one that is too large to look through."""
    try:
        return bool(marked(output))
    except ValueTooLargeError:
        return False


def wait_of(error: BaseException) -> float | None:
    """Return the seconds after which the model may be asked again after an error; None when waiting is of no use."""
    if not isinstance(error, TransientError):
        return None
    if isinstance(error, BudgetError):
        refusal = error.refusal
        if not refusal.limit or (refusal.asked is not None and refusal.asked > refusal.limit):
            return None  # the budget will never be large enough
    elif error.retry_after is None and getattr(error, "kind", "") not in ("rate_limited", "overloaded"):
        return None
    return error.retry_after if error.retry_after is not None else _WAIT


class DeltaPublisher:
    """Publisher of one request's answer as `AssistantDelta`s, and of its thoughts as `ReasoningDelta`s if the run wants
    them. Without a run (None) nothing is published.

    A model answers `NO_REPLY` to say nothing to people. Text that may still become this word is held back, so that
    people never see a part of it. Where an answer cannot be used, an event takes back the text that was shown. The text
    ends with the model's first call.
    """

    __slots__ = ("_has_thought", "_held", "_publish", "_run", "shown")

    def __init__(self, publish: Callable[[Event], object], run: RunContext | None) -> None:
        self._publish, self._run = publish, run
        self._held: str | None = ""
        self._has_thought = False
        #: Whether people see any text of the answer now.
        self.shown = False

    def tell(self, text: str) -> None:
        """Publish a further piece of the text."""
        if self._held is None:
            self._show(text)
            return
        self._held += text
        if not may_become_silent(self._held):
            text, self._held = self._held, None
            self._show(text)

    def think(self, thought: ThoughtDelta) -> None:
        """Publish a further thought, if the run wants thoughts."""
        run = self._run
        if run is None or run.reasoning == "off" or not (thought.text or (thought.reset and self._has_thought)):
            return
        self._has_thought = True
        self._publish(ReasoningDelta(run_id=run.id, text=thought.text, request=run.number, reset=thought.reset))

    def text_ends(self) -> None:
        """Publish that the text ends here, because calls follow."""
        if self.shown and self._run is not None:
            self._publish(AssistantDelta(run_id=self._run.id, text="", ends=True))

    def end(self, *, is_silent: bool) -> None:
        """End the answer: publish the text that was held back, unless the answer is silent."""
        text, self._held = self._held, None
        if text and text.strip() and not is_silent:
            self._show(text)

    def take_back(self) -> None:
        """Publish that the text so far is void, and begin anew."""
        if self.shown and self._run is not None:
            self._publish(AssistantDelta(run_id=self._run.id, text="", reset=True))
        self._held, self.shown = "", False

    def forget_thoughts(self) -> None:
        """Publish that the thoughts so far are void, because the answer failed."""
        self.think(ThoughtDelta("", reset=True))
        self._has_thought = False

    def _show(self, text: str) -> None:
        if text and self._run is not None:
            self.shown = True
            self._publish(AssistantDelta(run_id=self._run.id, text=text))
