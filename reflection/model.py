"""Reflector that also asks a model, after cycles that taught something. The findings of the rules stand in any case.

    [plan]
    use = "llm"
    options = { model = "openai:gpt-5" }

    [reflect]
    use = "model"
    options = { within = 10.0, requests = 12 }

The planner lends its model, and with it the providers, timeouts, breakers, budgets and the record of requests. The
model is asked in the reflect phase of the cycle, for at most `within` seconds. Its advice is written in the
transaction that ends the cycle, together with the findings of the rules. A process that is killed before that loses
neither, because its cycle is reflected on again. Without a usable answer, the reflection is that of the rules and says
why.

The model is asked when a call failed, when a call worked that usually fails, when an environment or a person gave
feedback on earlier steps, and when a run or an episode of several steps is over. The same matter is not asked about
again within an hour, and an answer holds for a day; both are stored in a row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Annotated, Any, Final

import msgspec
from annotated_types import Ge, Gt, Le, Lt
from msgspec import Struct

from reflection.advice import Advice, AdviceError, added, apart, mended, read
from reflection.lessons import Outcome, judge
from reflection.question import INSTRUCTIONS, Matter, open_calls, question, schema, trust_of
from reflection.reflect import Reflect, incident_of
from spar.clock import Clock
from spar.data.bounded import SharedDict
from spar.data.learning.abilities import ENOUGH_TRIALS, known_of
from spar.decoding import converted
from spar.errors import ContractError, SparError
from spar.protocols import Ask, Context, Host, Lent, ModelQuestion, ModuleRows
from spar.threads import BoundedCalls
from spar.types import ActionResult, Advised, Fault, Reflection, Trust, replace

#: Seconds within which the same matter is not asked about again, and for which an answer holds.
HOUR: Final = 3600.0
HOLDS: Final = 24 * HOUR
#: Matters that are stored.
MOST_MATTERS: Final = 500
#: Share of an hour's requests that one session may use.
_SHARE: Final = 0.5
#: Ability of a tool up to which a success is a surprise.
_UNLIKELY: Final = 0.2
#: Bound of an answer, in tokens.
_ANSWER: Final = 1_000
#: Seconds of the phase that are left for the work after the answer.
_LEFT: Final = 1.0


class Thought(Struct):
    """Matter of a session that a model was asked about.

    `name` is the name of the matter, `at` the time in seconds since 1970. `answer` is None when no answer could be
    used.
    """

    name: str
    session: str
    at: float
    answer: dict[str, Any] | None = None


class ModelReflect(Reflect):
    """The standard reflector, which also asks the planner's model.

    Args: task_prior, discount, half_life, look_again: as for `Reflect`; within: the most seconds to wait for an
    answer, within the cycle; requests: the most requests in an hour, of which one session may use half.
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
        self._calls = BoundedCalls()

    def borrow(self, lent: Lent) -> None:
        """Use the model that the planner lends, in place of an earlier one."""
        self._ask = lent.ask

    def attach(self, host: Host) -> None:
        """Store the matters and answers in the agent's memory."""
        super().attach(host)
        self._host, self._own_rows = host, host.rows("advice")
        self._unread.append(self._own_rows)

    async def reflect(self, result: ActionResult, context: Context | None = None) -> Reflection:
        """Reflect on a result, by rules and then with the model. Never raises for any `ActionResult`."""
        reflection = await super().reflect(result, context)
        host, ask = self._host, self._ask
        if context is None or host is None or ask is None or context.learning == "off":
            return reflection
        matter = self._matter(reflection, result, context)
        return reflection if matter is None else await self._with_thought(reflection, matter, context, host, ask)

    # -- the matter

    def _matter(self, reflection: Reflection, result: ActionResult, context: Context) -> Matter | None:
        """Return the matter that the cycle taught something about; None for an uneventful cycle."""
        action = result.action
        acted = bool(result.results) or result.fault is not None
        has_own = acted or (action is not None and (bool(action.calls) or action.output is not None))
        sequences = reflection.experiences[1:] if has_own else reflection.experiences
        if not reflection.experiences:
            return None
        outcome = judge(result)
        matter = Matter("", outcome.key, result, failures=reflection.failures, words=reflection.feedback,
                        sequence=sequences[-1] if sequences else None, incident=incident_of(action))  # fmt: skip
        has_failed = bool(open_calls(matter)) or result.fault is not None
        reasons = {
            "a call failed": has_failed,
            "a call worked that was known not to": self._is_surprising(outcome, result, context),
            "somebody said how it went": bool(matter.words),
            "several steps are over": bool(sequences),
        }
        why = ", ".join(reason for reason, is_so in reasons.items() if is_so)
        about = 0 if has_failed or not sequences else len(reflection.experiences) - 1
        return replace(matter, why=why, about=about) if why else None

    def _is_surprising(self, outcome: Outcome, result: ActionResult, context: Context) -> bool:
        worked = {item.call.id for item in outcome.worked}
        for item, task in zip(result.results, outcome.tasks, strict=True):
            known = known_of(item.call.tool, task, context.abilities) if item.call.id in worked else None
            if known is not None and known.trials >= ENOUGH_TRIALS and known.estimate <= _UNLIKELY:
                return True
        return False

    # -- asking

    async def _with_thought(
        self, reflection: Reflection, matter: Matter, context: Context, host: Host, ask: Ask
    ) -> Reflection:
        await self._load_thoughts(context.cycle_id)
        tools = host.tools()
        is_trusted = reflection.experiences[matter.about].trust == "trusted"
        trust: Trust = trust_of(matter, tools) if is_trusted else "untrusted"
        name, now = _name_of(matter, trust, context.session), host.clock.now().timestamp()
        known = self._thoughts.get(context.session, name)
        if known is not None and now - known.at < (HOUR if known.answer is None else HOLDS):
            with suppress(AdviceError):  # the tool of the stored answer no longer exists
                if known.answer is not None:
                    return with_advice(reflection, read(known.answer, matter, tools), matter, trust, host.clock)
            return reflection
        if not self._may_ask(context.session, now):
            return _with_note(reflection, "limited", "the requests of this hour are used up", context, host)
        thought = Thought(name, context.session, now)
        self._store(thought, context.cycle_id)  # the request counts even if no answer comes
        came, why, advice = await self._ask_model(matter, tools, trust, context, host, ask)
        if advice is not None:
            thought.answer = msgspec.to_builtins(advice)
            self._store(thought, context.cycle_id)
            reflection = with_advice(reflection, advice, matter, trust, host.clock)
        return _with_note(reflection, came, why, context, host)

    async def _ask_model(
        self, matter: Matter, tools: Mapping[str, Any], trust: Trust, context: Context, host: Host, ask: Ask
    ) -> tuple[Advised, str, Advice | None]:
        """Ask the model; return how that ended, why, and the advice if it can be used."""
        data = {"type": "data", "kind": "cycle", "data": {**question(matter, tools), "trust": trust}}
        seconds = self.within
        if context.deadline is not None:
            seconds = min(seconds, context.deadline - host.clock.monotonic() - _LEFT)
        if seconds <= 0:
            return "late", "the phase has no time left to ask", None
        model_question = ModelQuestion(INSTRUCTIONS, (data,), schema(matter), _ANSWER, "reflect", context.cycle_id)
        try:
            # One that ignores its cancellation is not waited for.
            advice = read(await self._calls.make(ask(model_question), seconds, grace=0.0), matter, tools)
        except TimeoutError:
            return "late", f"no answer came within {seconds:g} s", None
        except (AdviceError, ContractError) as error:
            return "malformed", Fault.of(error).message, None
        except Exception as error:  # a SparError: no model can be asked, its breaker is open or a budget is used up
            return "unanswered" if isinstance(error, SparError) else "failed", Fault.of(error).message, None
        return ("nothing" if advice.is_empty else "added"), matter.why, advice

    def _may_ask(self, session: str, now: float) -> bool:
        """Return whether a request is left in this hour, for the agent and for the session."""
        recent = [thought for thought in self._thoughts.values() if 0 <= now - thought.at < HOUR]
        of_session = sum(thought.session == session for thought in recent)
        return len(recent) < self.requests and of_session < max(1, int(self.requests * _SHARE))

    # -- rows

    async def _load_thoughts(self, cycle_id: str) -> None:
        """Load the thoughts of earlier processes, once."""
        stored, rows = await self._read_once(self._own_rows, cycle_id), self._own_rows
        thoughts = {name: converted(row, Thought) for name, row in (stored or {}).items()}
        for thought in sorted(filter(None, thoughts.values()), key=lambda thought: thought.at):
            self._put(thought)
        for name, known in thoughts.items():
            if known is None and rows is not None:
                rows.drop(name)

    def _store(self, thought: Thought, cycle_id: str) -> None:
        """Store a thought together with the cycle's end."""
        if self._own_rows is not None:
            self._own_rows.keep(thought.name, msgspec.to_builtins(thought), cycle_id=cycle_id)
        self._put(thought, cycle_id)

    def _put(self, thought: Thought, cycle_id: str = "") -> None:
        gone = self._thoughts.put(thought.session, thought.name, thought)
        if gone is not None and self._own_rows is not None:
            self._own_rows.drop(gone.name, cycle_id=cycle_id)


def with_advice(reflection: Reflection, advice: Advice, matter: Matter, trust: Trust, clock: Clock) -> Reflection:
    """Return a reflection with an advice. Advice that follows from untrusted text changes no trusted experience; it
    becomes a separate one."""
    if advice.is_empty:
        return reflection
    experiences = list(reflection.experiences)
    about = matter.about
    if experiences[about].trust == "trusted" and trust == "untrusted":
        lesson = apart(experiences[about], advice, clock.new_id())
        return reflection if lesson is None else replace(reflection, experiences=(*experiences, lesson))
    experiences[about] = added(experiences[about], advice, matter)
    return replace(reflection, experiences=experiences, failures=mended(reflection.failures, advice, matter))


def _with_note(reflection: Reflection, came: Advised, why: str, context: Context, host: Host) -> Reflection:
    """Return the reflection with the outcome of asking, and note that outcome in the cycle's record."""
    host.note(context.cycle_id, lambda: {"kind": "advice", "came": came, "why": why})
    return replace(reflection, advised=came)


def _name_of(matter: Matter, trust: str, session: str) -> str:
    """Return the name of a matter; equal matters get the same name. It covers session, situation, trust and the kinds
    of the failures, or the feedback and the end of the sequence."""
    failed = sorted({(item.call.tool, failure.kind) for item, failure in open_calls(matter).values()})
    feedback = sorted({(word.by, word.success) for word in matter.words}) if not failed else []
    ended = None if matter.sequence is None or failed else (matter.sequence.key, matter.sequence.success)
    parts = json.dumps([session, matter.key, trust, failed, feedback, ended])
    return blake2b(parts.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
