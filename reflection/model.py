"""A reflector that also asks a model, after cycles that taught something; what the rules say stands in any case.

    [plan]
    use = "llm"
    options = { model = "openai:gpt-5" }

    [reflect]
    use = "model"
    options = { within = 10.0, requests = 12 }

The planner lends its model, and with it providers, timeouts, breakers, budgets and the record of requests. The model is
asked in the reflect phase of the cycle, for at most `within` seconds: what it adds is written in the transaction that
ends the cycle, with all that the rules have found. A process that is killed meanwhile has lost neither; its cycle is
reflected on again. Where no answer comes that can be used, the reflection is that of the rules, and says why.

It is asked when a call failed, when one worked that was known not to, when an environment or a person has said how
earlier steps went, and when a run or an episode of several steps is over. The same matter is not asked about again
within an hour, and what was said of it holds for a day: it stands in a row of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping
from hashlib import blake2b
from typing import Annotated, Any, Final

import msgspec
from annotated_types import Ge, Gt, Le, Lt
from msgspec import Struct

from reflection.advice import Advice, AdviceError, added, apart, mended, read
from reflection.lessons import task_of, tasks_of
from reflection.question import INSTRUCTIONS, Matter, open_calls, question, schema, trust_of
from reflection.reflect import Reflect, incident_of, key_of
from spar.clock import Clock
from spar.data.bounded import SharedDict
from spar.errors import ContractError, SparError
from spar.events import ErrorOccurred
from spar.protocols import Ask, Context, Host, Lent, ModelQuestion, ModuleRows
from spar.records.abilities import ENOUGH_TRIALS, known_of
from spar.types import ActionResult, Advised, Fault, Reflection, Trust, replace

#: Seconds within which the same matter is not asked about again, and for which an answer holds.
HOUR: Final = 3600.0
HOLDS: Final = 24 * HOUR
#: Matters that are remembered.
MOST_MATTERS: Final = 500
#: Of the requests of an hour, the part that one session may have.
_SHARE: Final = 0.5
#: The ability of a tool up to which it is a surprise that it worked.
_UNLIKELY: Final = 0.2
#: Tokens of an answer.
_ANSWER: Final = 1_000
#: Seconds of the phase that are left for what comes after the answer.
_LEFT: Final = 1.0


class Thought(Struct):
    """Matter of a session that a model was asked about, by its name, when (seconds since 1970), and the answer; None:
    none could be used."""

    name: str
    session: str
    at: float
    answer: dict[str, Any] | None = None


class ModelReflect(Reflect):
    """The standard reflector, which also asks the planner's model.

    Args: task_prior, discount, half_life, look_again: as for `Reflect`; within: the seconds that an answer may take,
    and the cycle with it; requests: how many there may be in an hour, of which one session may have half.
    """

    def __init__(
        self,
        *,
        task_prior: Annotated[float, Gt(0), Lt(1)] = 0.5,
        discount: Annotated[float, Ge(0.5), Lt(1)] = 0.975,
        half_life: Annotated[float, Gt(0)] = 30.0,
        look_again: Annotated[float, Gt(0), Lt(3600)] = 5.0,
        within: Annotated[float, Gt(0), Le(60)] = 10.0,
        requests: Annotated[int, Ge(1), Le(1000)] = 12,
    ) -> None:
        super().__init__(task_prior=task_prior, discount=discount, half_life=half_life, look_again=look_again)
        self.within, self.requests = within, requests
        self._ask: Ask | None = None
        self._host: Host | None = None
        self._thoughts: SharedDict[str, Thought] = SharedDict(MOST_MATTERS)
        self._own_rows: ModuleRows | None = None
        self._knows_thoughts = True
        self._left: set[asyncio.Future[Any]] = set()

    def borrow(self, lent: Lent) -> None:
        """Ask the model that the planner lends, in the place of the one that was lent before."""
        self._ask = lent.ask

    def attach(self, host: Host) -> None:
        """Remember in the agent's memory what was asked."""
        super().attach(host)
        self._host, self._own_rows, self._knows_thoughts = host, host.rows("advice"), False

    async def reflect(self, result: ActionResult, context: Context | None = None) -> Reflection:
        """Reflect on a result, by rules and then by a model. Never raises for any `ActionResult`."""
        reflection = await super().reflect(result, context)
        host, ask = self._host, self._ask
        if context is None or host is None or ask is None or context.learning == "off":
            return reflection
        matter = self._matter(reflection, result, context)
        return reflection if matter is None else await self._thought_over(reflection, matter, context, host, ask)

    # -- whether there is anything to ask

    def _matter(self, reflection: Reflection, result: ActionResult, context: Context) -> Matter | None:
        """Return the matter that the cycle taught something about; None for an uneventful one."""
        action = result.action
        acted = bool(result.results) or result.fault is not None
        has_own = acted or (action is not None and (bool(action.calls) or action.output is not None))
        sequences = reflection.experiences[1:] if has_own else reflection.experiences
        if not reflection.experiences:
            return None
        matter = Matter(
            "",
            key_of(result, tasks_of(result)),
            result,
            failures=reflection.failures,
            words=reflection.feedback,
            sequence=sequences[-1] if sequences else None,
            incident=incident_of(action),
        )
        has_failed = bool(open_calls(matter)) or result.fault is not None
        reasons = {
            "a call failed": has_failed,
            "a call worked that was known not to": self._is_surprising(reflection, result, context),
            "somebody said how it went": bool(matter.words),
            "several steps are over": bool(sequences),
        }
        why = ", ".join(reason for reason, is_so in reasons.items() if is_so)
        about = 0 if has_failed or not sequences else len(reflection.experiences) - 1
        return replace(matter, why=why, about=about) if why else None

    def _is_surprising(self, reflection: Reflection, result: ActionResult, context: Context) -> bool:
        for call in reflection.successes:
            known = known_of(call.tool, task_of(call, result.action), context.abilities)
            if known is not None and known.trials >= ENOUGH_TRIALS and known.estimate <= _UNLIKELY:
                return True
        return False

    # -- asking

    async def _thought_over(
        self, reflection: Reflection, matter: Matter, context: Context, host: Host, ask: Ask
    ) -> Reflection:
        await self._take_up(context.cycle_id)
        tools = host.tools()
        is_trusted = reflection.experiences[matter.about].trust == "trusted"
        trust: Trust = trust_of(matter, tools) if is_trusted else "untrusted"
        name, now = _name_of(matter, trust, context.session), host.clock.now().timestamp()
        known = self._thoughts.get(context.session, name)
        if known is not None and now - known.at < (HOUR if known.answer is None else HOLDS):
            if known.answer is None:
                return reflection
            try:
                return with_advice(reflection, read(known.answer, matter, tools), matter, trust, host.clock)
            except AdviceError:  # its tool is not there any more
                return reflection
        if not self._may_ask(context.session, now):
            return _told(reflection, "limited", "the requests of this hour are used up", context, host)
        thought = Thought(name, context.session, now)
        self._think(thought, context.cycle_id)  # it counts, whatever comes of it
        came, why, advice = await self._asked(matter, tools, trust, context, host, ask)
        if advice is not None:
            thought.answer = msgspec.to_builtins(advice)
            self._think(thought, context.cycle_id)
            reflection = with_advice(reflection, advice, matter, trust, host.clock)
        return _told(reflection, came, why, context, host)

    async def _asked(
        self, matter: Matter, tools: Mapping[str, Any], trust: Trust, context: Context, host: Host, ask: Ask
    ) -> tuple[Advised, str, Advice | None]:
        """Return what came of asking, why, and the advice if it can be used."""
        data = {"type": "data", "kind": "cycle", "data": {**question(matter, tools), "trust": trust}}
        seconds = self.within
        if context.deadline is not None:
            seconds = min(seconds, context.deadline - host.clock.monotonic() - _LEFT)
        if seconds <= 0:
            return "late", "the phase has no time left to ask", None
        asked = ModelQuestion(INSTRUCTIONS, (data,), schema(matter), _ANSWER, "reflect", context.cycle_id)
        try:
            advice = read(await self._in_time(ask(asked), seconds), matter, tools)
        except AdviceError as error:
            return "malformed", str(error), None
        except TimeoutError:
            return "late", f"no answer came within {seconds:g} s", None
        except ContractError as error:
            return "malformed", Fault.of(error).message, None
        except SparError as error:  # no model can be asked: it rests, or there is nothing left of a budget
            return "unanswered", Fault.of(error).message, None
        except Exception as error:
            return "failed", Fault.of(error).message, None
        return ("nothing" if advice.is_empty else "added"), matter.why, advice

    async def _in_time(self, work: Awaitable[Any], seconds: float) -> Any:
        """Await an answer, and leave it behind when its time is over, even if it ignores that. Raises: TimeoutError."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait([task], timeout=seconds)
            if not task.done():
                raise TimeoutError
            return task.result()
        finally:
            if not task.done():
                self._left.add(task)
                task.add_done_callback(self._gone)
                task.cancel()

    def _gone(self, task: asyncio.Future[Any]) -> None:
        self._left.discard(task)
        if not task.cancelled():
            task.exception()  # nobody waits for it any more

    def _may_ask(self, session: str, now: float) -> bool:
        """Return whether there is a request left in this hour, for all and for the session."""
        last = [each for each in self._thoughts.values() if 0 <= now - each.at < HOUR]
        own = sum(each.session == session for each in last)
        return len(last) < self.requests and own < max(1, int(self.requests * _SHARE))

    # -- rows

    async def _take_up(self, cycle_id: str) -> None:
        """Take up what earlier processes asked, once."""
        if self._knows_thoughts or self._own_rows is None:
            return
        try:
            rows = await self._own_rows.list()
        except Exception as error:  # it is tried again with the next matter
            fault = Fault.of(error, part="reflect", phase="reflect")
            self._publish(ErrorOccurred(cycle_id=cycle_id, phase="reflect", error=fault, policy="continue"))
            return
        if self._knows_thoughts:
            return
        self._knows_thoughts = True
        found: list[Thought] = []
        for name, row in rows.items():
            try:
                found.append(msgspec.convert(row, Thought))
            except msgspec.ValidationError:
                self._own_rows.drop(name)
        for thought in sorted(found, key=lambda each: each.at):
            self._put(thought)

    def _think(self, thought: Thought, cycle_id: str) -> None:
        """Remember what was asked and said, with the cycle's end."""
        if self._own_rows is not None:
            self._own_rows.keep(thought.name, msgspec.to_builtins(thought), cycle_id=cycle_id)
        self._put(thought, cycle_id)

    def _put(self, thought: Thought, cycle_id: str = "") -> None:
        gone = self._thoughts.put(thought.session, thought.name, thought)
        if gone is not None and self._own_rows is not None:
            self._own_rows.drop(gone.name, cycle_id=cycle_id)


def with_advice(reflection: Reflection, advice: Advice, matter: Matter, trust: Trust, clock: Clock) -> Reflection:
    """Return a reflection with an advice. One that follows from text of strangers changes nothing that is trusted: it
    is an experience of its own."""
    if advice.is_empty:
        return reflection
    experiences = list(reflection.experiences)
    about = matter.about
    if experiences[about].trust == "trusted" and trust == "untrusted":
        found = apart(experiences[about], advice, clock.new_id())
        return reflection if found is None else replace(reflection, experiences=(*experiences, found))
    experiences[about] = added(experiences[about], advice, matter)
    return replace(reflection, experiences=experiences, failures=mended(reflection.failures, advice, matter))


def _told(reflection: Reflection, came: Advised, why: str, context: Context, host: Host) -> Reflection:
    """Return the reflection with a note of what came of asking, and have the cycle's record say so."""
    host.note(context.cycle_id, lambda: {"kind": "advice", "came": came, "why": why})
    return replace(reflection, advised=came)


def _name_of(matter: Matter, trust: str, session: str) -> str:
    """Return the name by which the same matter is known again: of one session, situation, trust and way to fail."""
    failed = sorted({(item.call.tool, failure.kind) for item, failure in open_calls(matter).values()})
    said = sorted({(word.by, word.success) for word in matter.words}) if not failed else []
    ended = None if matter.sequence is None or failed else (matter.sequence.key, matter.sequence.success)
    told = json.dumps([session, matter.key, trust, failed, said, ended])
    return blake2b(told.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
