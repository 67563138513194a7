"""Declarative rules make the plan: no model, no network, the same decision for the same perceptions.

Every rule that matches adds its calls to one action, most urgent perception first. What a perception was fused from is
looked at as well, each rule used once for all of it. A rule that cannot be used for one perception (a template names
what that perception lacks) is left out for it alone, the next rules are asked, and `Action.reason` and `snapshot()` say
so: one odd perception never keeps the others waiting. When that is all there is to say, the action has no calls. Only
the cooldowns are kept from one plan to the next. Rules are read by `planning.rules.parse`, asked by
`planning.rules.conditions`, and each decides by `planning.rules.firing`.

The operator wrote the rules, so the action is trusted, whoever was noticed. A call that is given text of an untrusted
perception, by a template or by reading what such a call wrote, says so: `meta["_trust"] = "untrusted"`.

What was learnt changes decisions where a rule leaves one: which of several tools is called, and that a call is not made
which failed before in the same situation. The memory is asked only then, a bounded number of times in a plan. The rule
decides that something is called, and the terms of its tools, taint and approval hold for each call as for any other.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct, field

from planning.cases.evidence import cases_of
from planning.cases.recalled import Recalled, recalled_at
from planning.cases.sequences import KnownSequence, sequence_of
from planning.cases.situations import Situation, situation
from planning.dataflow import colliding
from planning.rules.conditions import MatchInput, sights
from planning.rules.firing import Firing, Remembered, facts_of, fire
from planning.rules.parse import Rule, read_rules, rule_schema
from planning.rules.templates import Facts
from planning.rules.tool_choice import has_failed
from planning.rules.verification import Verifications
from spar.clock import Clock, SystemClock
from spar.data.bounded import SharedDict
from spar.protocols import Context, Host, ModuleRows, WrittenCall
from spar.records.abilities import of_strangers, situation_of
from spar.threads import OTHERS_TURN
from spar.types import Ability, Action, Call, Experience, Learnt, Perception, replace

#: Subjects whose cooldown is remembered; beyond it the oldest is forgotten and counted.
COOLDOWN_LIMIT = 10_000
REASON_LIMIT = 2_000
#: Perceptions in a row, before others get their turn.
INLINE_LIMIT = 64
#: Situations of one plan that are recalled; what is left is decided by ability alone, and said.
RECALL_LIMIT = 32
#: Episodes whose sequence of calls is gone on with.
EPISODE_LIMIT = 256
_TROUBLE_LIMIT = 200


class RulesPlanner:
    """PLAN by `[[rules]]`.

    Args: rules: the tables as they stand in the configuration; tools: the names that exist, None when not known.
    Raises: ConfigError, with the `path` of the value, when a rule cannot be read.
    """

    def __init__(self, rules: Sequence[dict[str, Any]] = (), *, tools: Collection[str] | None = None) -> None:
        self.rules = read_rules(rules, tools)
        self._index = _Index(self.rules)
        self._counts: dict[str, Counter[str]] = {rule.name: Counter() for rule in self.rules}
        self._fired: dict[tuple[int, str], float] = {}
        self._forgotten = 0
        self._clock: Clock = SystemClock()
        self._rows: ModuleRows | None = None  # by rule and subject, when it fired in seconds since 1970
        self._has_loaded = False
        self._open = frozenset(rule.number for rule in self.rules if rule.learn and rule.is_open)
        self._tools: Callable[[], Mapping[str, Any]] = dict
        self._verifications = Verifications(self.rules)
        #: Sources that were seen to go step by step, by session.
        self._stepwise: SharedDict[str, bool] = SharedDict(EPISODE_LIMIT)
        #: By session and episode its first step, and what it goes on with.
        self._episodes: SharedDict[str, tuple[int, KnownSequence | None]] = SharedDict(EPISODE_LIMIT)

    def attach(self, host: Host) -> None:
        """Remember cooldowns in the agent's memory; before the first plan."""
        self._clock, self._rows, self._has_loaded = host.clock, host.rows("cooldown"), False
        self._tools = host.tools
        self._verifications.attach(host)

    async def __aenter__(self) -> RulesPlanner:
        """Take up what earlier processes have to look at. Raises nothing: the first plan tries again."""
        with suppress(Exception):
            await self._verifications.load()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._verifications.close()

    async def plan(self, perceptions: Sequence[Perception], context: Context | None = None) -> Action | None:
        """One action of all rules that match, or None when there is nothing to do. Never raises for a perception."""
        context = context or Context(agent="", cycle_id="")
        clock = context.clock or self._clock
        draft = _Draft(context.run.number if context.run else 1)
        if self._rows is not None and not self._has_loaded:
            await self._load(self._rows, clock, draft)
        if self._verifications.is_used and context.learning != "off":
            await self._verify(perceptions, draft)
        for number, perception in enumerate(sorted(perceptions, key=_urgency), start=1):
            await self._consider(perception, context, clock, draft)
            if number % INLINE_LIMIT == 0:
                await OTHERS_TURN
        return draft.action(perceptions)

    @staticmethod
    def rule_schema() -> dict[str, Any]:
        """Return the JSON schema of one of the tables `[[rules]]`."""
        return rule_schema()

    def written_calls(self) -> Iterator[WrittenCall]:
        """Return each call that a rule writes out, so that its tool can judge it before anything runs."""
        for rule in self.rules:
            for number, call in enumerate(rule.calls):
                path = ("rules", rule.number, "calls", number, "params")
                yield WrittenCall(path, call.tools, call.literals, frozenset(call.params.keys() - call.literals.keys()))

    def snapshot(self) -> dict[str, Any]:
        """Return how often each rule matched, was cooling down, failed, or left a call out, since construction."""
        names = ("matched", "cooled_down", "failed", "left_out")
        return {
            "rules": {rule: {name: counts[name] for name in names} for rule, counts in self._counts.items()},
            "cooldowns": len(self._fired),
            "cooldowns_forgotten": self._forgotten,
            "to_verify": self._verifications.pending,
            "to_verify_forgotten": self._verifications.forgotten,
        }

    async def _consider(self, perception: Perception, context: Context, clock: Clock, draft: _Draft) -> None:
        used: set[int] = set()
        for match_input in sights(perception):
            await self._look_at(match_input, context, clock, draft, used)

    async def _look_at(
        self, match_input: MatchInput, context: Context, clock: Clock, draft: _Draft, used: set[int]
    ) -> None:
        """Use the rules that match, but for those that were `used` for another part of the same perception."""
        perception = match_input.perception
        for rule in self._index.candidates(perception):
            try:
                slots = rule.when.match(match_input)
                if slots is None or (rule.unless is not None and rule.unless.match(match_input) is not None):
                    continue
                if rule.number in used:
                    if rule.stop:
                        return
                    continue
                counts = self._counts[rule.name]
                counts["matched"] += 1
                if not self._is_ready(rule, perception, clock):
                    counts["cooled_down"] += 1
                else:
                    firing = await self._fire(rule, facts_of(match_input, slots, context, clock), context, clock, draft)
                    counts["left_out"] += len(firing.left_out)
                    draft.firings.append(firing)
                    if firing.calls and context.learning != "off":
                        self._verifications.add(rule, perception, context.cycle_id)
                    self._cool(rule, perception, clock, context.cycle_id)
                used.add(rule.number)
            except Exception as error:  # whatever is odd about this perception must not block the others
                self._counts[rule.name]["failed"] += 1
                draft.troubles.append(f"rule {rule.name!r} not used for {perception.id}: {_sentence(error)}")
                continue
            if rule.stop:
                return

    async def _fire(self, rule: Rule, facts: Facts, context: Context, clock: Clock, draft: _Draft) -> Firing:
        """Return the decision of a rule, by what is remembered where that may change it."""
        perception, abilities = facts.perception, context.abilities
        key = situation_of(perception, rule.name)
        task = of_strangers(key) if perception.trust == "untrusted" else key
        is_open = rule.number in self._open
        remembered = None
        if (
            context.learning != "off"
            and context.memory is not None
            and rule.learn
            and (is_open or (abilities and _any_has_failed(rule, task, abilities)))
        ):
            remembered = await self._remembered(facts, key, context, clock, draft)
        return fire(rule, facts, context, task, self._tools() if is_open else None, remembered)

    async def _remembered(
        self, facts: Facts, key: str, context: Context, clock: Clock, draft: _Draft
    ) -> Remembered | None:
        """Return what is remembered of a situation; None where the memory cannot be asked, which the reason tells."""
        perception = facts.perception
        at = situation(perception, key, clock.now())
        of = (at.session, at.key, at.words)
        found = draft.recalled.get(of)
        if found is None:
            if draft.has_no_memory:
                return None
            if len(draft.recalled) >= RECALL_LIMIT:
                draft.tell(f"only {RECALL_LIMIT} situations were recalled, the others decided by ability alone")
                return None
            found = await recalled_at(context.memory, perception.text, at.key, at.session)
            draft.recalled[of] = found
        if found.trouble:
            draft.has_no_memory = True  # a memory that hangs is waited for once, not for each perception
            draft.tell(found.trouble)
            return None
        episode = perception.attributes.get("episode")
        if not isinstance(episode, str) or not self._has_steps(perception, found.experiences):
            return Remembered(cases_of(found.experiences, at, found.nearness), at)
        return await self._stepped(facts, found.experiences, at, episode, context, draft)

    def _has_steps(self, perception: Perception, experiences: Sequence[Experience]) -> bool:
        """Return whether an environment is acted in step by step, as far as is known; in others one call is all."""
        step = perception.attributes.get("step")
        session, source = perception.session, perception.source
        if isinstance(step, int) and step > 0:
            self._stepwise.put(session, source, True)
        return self._stepwise.get(session, source) is not None or any(len(each.calls) > 1 for each in experiences)

    async def _stepped(
        self,
        facts: Facts,
        experiences: Sequence[Experience],
        at: Situation,
        episode: str,
        context: Context,
        draft: _Draft,
    ) -> Remembered:
        """Return what is remembered of a step in an environment: with it the next call of a sequence that worked.

        A sequence is looked for where an episode begins, by the situation of its first step.
        """
        told = facts.perception.attributes.get("step")
        step = told if isinstance(told, int) else 0
        known = self._episodes.get(at.session, episode)
        if known is None:
            more = await recalled_at(context.memory, facts.perception.text, at.key, at.session, success=True)
            if more.trouble:
                draft.tell(more.trouble)
            found = sequence_of([*experiences, *more.experiences], at)
            known = step, found
            self._episodes.put(at.session, episode, known)
        began, sequence = known
        cases = cases_of((each for each in experiences if len(each.calls) == 1), at)
        place = step - began
        if sequence is None or not 0 <= place < len(sequence.calls):
            return Remembered(cases, at, f"{episode}|{step}")
        return Remembered(cases, at, f"{episode}|{step}", sequence.calls[place], sequence.experience_id)

    async def _verify(self, perceptions: Sequence[Perception], draft: _Draft) -> None:
        """Look whether what is perceived says how earlier firings went."""
        try:
            await self._verifications.load()
        except Exception as error:
            draft.tell(f"what is to be verified cannot be read: {_sentence(error)}")
        for number, perception in enumerate(perceptions, start=1):
            self._verifications.see(sights(perception))
            if number % INLINE_LIMIT == 0:
                await OTHERS_TURN

    def _is_ready(self, rule: Rule, perception: Perception, clock: Clock) -> bool:
        if not rule.cooldown:
            return True
        last = self._fired.get((rule.number, _subject(perception)))
        return last is None or clock.monotonic() - last >= rule.cooldown

    def _cool(self, rule: Rule, perception: Perception, clock: Clock, cycle_id: str) -> None:
        if not rule.cooldown:
            return
        key = (rule.number, _subject(perception))
        self._fired.pop(key, None)  # so that the order of the dictionary is the order of firing
        self._fired[key] = clock.monotonic()
        if self._rows is not None:
            self._rows.keep(self._row_of(key), clock.now().timestamp(), cycle_id=cycle_id)
        if len(self._fired) > COOLDOWN_LIMIT:
            oldest = next(iter(self._fired))
            del self._fired[oldest]
            self._forgotten += 1
            if self._rows is not None:
                self._rows.drop(self._row_of(oldest), cycle_id=cycle_id)

    def _row_of(self, key: tuple[int, str]) -> str:
        number, subject = key
        return json.dumps([self.rules[number].name, subject])

    async def _load(self, rows: ModuleRows, clock: Clock, draft: _Draft) -> None:
        """Take over the cooldowns of earlier processes; a rule is known by its name. What is over is dropped."""
        try:
            found = await rows.list()
        except Exception as error:  # the rules still work; it is tried again with the next plan
            draft.troubles.append(f"cooldowns of earlier processes cannot be read: {_sentence(error)}")
            return
        self._has_loaded = True
        now, monotonic = clock.now().timestamp(), clock.monotonic()
        by_name = {rule.name: rule for rule in self.rules}
        former: dict[tuple[int, str], float] = {}
        for key, at in sorted(found.items(), key=_fired_at):
            name, subject = json.loads(key)
            rule = by_name.get(name)
            age = max(now - _fired_at((key, at)), 0.0)
            if rule is None or age >= rule.cooldown:
                rows.drop(key)
            else:
                former[rule.number, subject] = monotonic - age
        self._fired = {**former, **self._fired}


class _Index:
    """Which rules can concern a perception at all: by literal kind, else by literal source, else every time."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._by_kind: defaultdict[str, list[Rule]] = defaultdict(list)
        self._by_source: defaultdict[str, list[Rule]] = defaultdict(list)
        self._others: list[Rule] = []
        for rule in rules:
            if rule.when.kinds is not None:
                for kind in rule.when.kinds:
                    self._by_kind[kind].append(rule)
            elif rule.when.sources is not None:
                for source in rule.when.sources:
                    self._by_source[source].append(rule)
            else:
                self._others.append(rule)

    def candidates(self, perception: Perception) -> Sequence[Rule]:
        """Rules in the order of the configuration."""
        lists = (self._by_kind.get(perception.kind), self._by_source.get(perception.source), self._others)
        found = [rules for rules in lists if rules]
        if len(found) < 2:
            return found[0] if found else ()
        return sorted((rule for rules in found for rule in rules), key=lambda rule: rule.number)


class _Draft(Struct):
    """The plan as it grows. `recalled`: what was remembered, by the session, name and words of a situation."""

    request: int = 1
    firings: list[Firing] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    recalled: dict[tuple[str, str, str], Recalled] = field(default_factory=dict)
    has_no_memory: bool = False

    def tell(self, trouble: str) -> None:
        """Say a trouble, once."""
        if trouble not in self.troubles:
            self.troubles.append(trouble)

    def action(self, perceptions: Sequence[Perception]) -> Action | None:
        """One action, or None when no rule asks for anything and nothing went wrong."""
        answers = [firing.answer for firing in self.firings if firing.answer is not None]
        texts = [answer.text for answer in answers if answer.text is not None]
        looks = [look for each in self.firings for look in (each.rule.next_look, each.look) if look is not None]
        learnt = tuple(each for firing in self.firings for each in firing.learnt)
        calls = tuple(self._calls())
        reason = self._reason()
        goal = next((firing.goal for firing in self.firings if firing.goal), "")
        left_out = any(firing.left_out for firing in self.firings)
        if not (calls or answers or looks or goal or left_out or self.troubles):
            return None
        return Action(
            calls=calls,
            goal=goal,
            perceptions=tuple(perceptions),
            reason=reason,
            output="\n".join(texts) if texts else None,
            next_look=min(looks, default=None),
            trust="trusted",
            answers=tuple(answers) if calls else (),
            learnt=learnt,
        )

    def _calls(self) -> Iterator[Call]:
        """The calls in order. Firings that write the same places get an instance each: none reads another's results.

        All calls of a firing are of its instance, so what one reads there is what the other one wrote. The data of a
        run lasts: its later requests name their instances differently, or they would find what the earlier ones left.
        """
        apart = colliding([firing.writes for firing in self.firings])
        request = "" if self.request == 1 else f"{self.request}."
        for number, firing in enumerate(self.firings):
            if number in apart:
                instance = f"{firing.rule.name}#{request}{number}"
                yield from (replace(call, instance=instance) for call in firing.calls)
            else:
                yield from firing.calls

    def _reason(self) -> str:
        used = Counter(firing.rule.name for firing in self.firings)
        sentences = [f"rule {name!r} matched" + (f" {n} times" if n > 1 else "") for name, n in used.items()]
        told = [*(text for firing in self.firings for text in firing.left_out), *self.troubles]
        learnt = [told_of(each) for firing in self.firings for each in firing.learnt]
        # What went wrong is told first: it must not be what is cut off.
        reason = "; ".join([*told, *sentences, *learnt])
        return reason if len(reason) <= REASON_LIMIT else f"{reason[: REASON_LIMIT - 1]}…"


def told_of(learnt: Learnt) -> str:
    """Return a decision that memory changed as a sentence."""
    instead = f" instead of {learnt.instead_of}" if learnt.instead_of else ""
    return f"{'by memory' if learnt.is_used else 'memory would have decided'}{instead}: {learnt.why}"


def _any_has_failed(rule: Rule, task: str, abilities: Mapping[str, Ability]) -> bool:
    for call in rule.calls:  # noqa: SIM110 - a generator costs more than the question
        if has_failed(call.tools[0], task, abilities):
            return True
    return False


def _urgency(perception: Perception) -> float:
    importance = perception.importance
    is_number = isinstance(importance, (int, float)) and importance == importance
    return -importance if is_number else 0.0


def _fired_at(row: tuple[str, Any]) -> float:
    at = row[1]
    return float(at) if isinstance(at, (int, float)) and at == at else 0.0


def _subject(perception: Perception) -> str:
    """Return the key of a cooldown; a long subject by its digest, so that memory stays bounded."""
    subject = perception.subject or ""
    if len(subject) <= 200:
        return subject
    return hashlib.blake2b(subject.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _sentence(error: Exception) -> str:
    text = str(error.args[0] if error.args else type(error).__name__)
    return text if len(text) <= _TROUBLE_LIMIT else f"{text[:_TROUBLE_LIMIT]}…"
