"""Planner by declarative rules: no model, no network, the same decision for the same perceptions.

Every rule that matches adds its calls to one action, for the most urgent perception first. A perception may be fused
from others: these are matched as well, and each rule fires once for all of them. A rule may fail for a perception, for
example where its template names a value that is not there. Then only this rule is left out for this perception, and
`Action.reason` and `snapshot()` say so; an action may consist of this reason alone.

The operator wrote the rules, so the action is trusted, even where the perceptions are not. A call that is given text of
an untrusted perception, by a template or by reading the output of such a call, is marked:
`meta["_trust"] = "untrusted"`.

Learning changes two things only: which of several tools a call takes, and whether a call is made that failed before in
the same situation. The memory is asked only where one of these may change, and a bounded number of times in a plan.
Approval and limits hold for these calls as for any other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple

from planning.rule_counts import RuleCounts
from planning.rules.conditions import MatchInput, sights
from planning.rules.cooldowns import Cooldowns
from planning.rules.firing import Draft, Firing, facts_of, fire, sentence_of
from planning.rules.parse import read_rules, rule_schema
from planning.rules.remembered import Episodes, PlanMemory
from planning.rules.rule import Rule
from planning.rules.templates import Facts
from planning.rules.tool_choice import has_failed
from planning.rules.verification import Verifications
from spar.clock import Clock, SystemClock
from spar.data.learning.situations import of_strangers, situation_of
from spar.ports.planners import RuleLook
from spar.protocols import Context, Host, WrittenCall
from spar.threads import OTHERS_TURN
from spar.types import Ability, Action, Perception

#: Perceptions in a row that are handled before other tasks of the event loop run.
INLINE_LIMIT = 64
#: Counts of a rule: how often it matched, fired, cooled down, failed, or left out a call.
COUNTS = ("matched", "fired", "cooled_down", "failed", "left_out")


class RulesPlanner:
    """PLAN by `[[rules]]`.

    Args: rules: the tables of the configuration; tools: the names of the tools, None when not known.
    Raises: ConfigError, with the `path` of the value, when a rule cannot be read.
    """

    def __init__(self, rules: Sequence[dict[str, Any]] = (), *, tools: Collection[str] | None = None) -> None:
        self.rules = read_rules(rules, tools)
        self._index = _Index(self.rules)
        self._open = frozenset(rule.number for rule in self.rules if rule.learn and rule.is_open)
        self._cooldowns = Cooldowns(self.rules)
        self._clock: Clock = SystemClock()
        self._tools: Callable[[], Mapping[str, Any]] = dict
        self._verifications = Verifications(self.rules)
        self._may_sense: Callable[[], bool] = lambda: True
        self._has_main = True  # whether this process has the session `main`, of which most rows are
        self._episodes = Episodes()

    @cached_property
    def _counts(self) -> RuleCounts:
        """Counts of its rules, which the first use makes."""
        return RuleCounts([rule.name for rule in self.rules], COUNTS)

    def attach(self, host: Host) -> None:
        """Use the clock, the tools and the memory of an agent from now on; to be called before the first plan."""
        self._clock, self._tools = host.clock, host.tools
        self._cooldowns.attach(host.rows("cooldown"))
        self._counts.attach(host.rows("rules"), host.clock)
        self._verifications.attach(host)
        self._may_sense = host.may_sense
        self._has_main = host.may_sense()

    async def __aenter__(self) -> RulesPlanner:
        """Load the verifications and the counts of earlier processes. Raises nothing: both are tried again later."""
        for load in (self._verifications.load, self._counts.write):
            with suppress(Exception):
                await load()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._verifications.close()
        with suppress(Exception):
            await self._counts.close()

    async def plan(self, perceptions: Sequence[Perception], context: Context | None = None) -> Action | None:
        """Return one action of all rules that match; None when there is nothing to do. No perception makes it raise."""
        context = context or Context(agent="", cycle_id="")
        clock = context.clock or self._clock
        draft = Draft(context.run.number if context.run else 1)
        plan = _Plan(context, clock, draft, PlanMemory(context.memory, self._episodes, clock, draft.tell))
        had_main, self._has_main = self._has_main, self._may_sense()
        if self._has_main and not had_main:  # another process has written rows of it since they were loaded
            self._cooldowns.has_loaded = False
            self._verifications.read_again()
        if not self._cooldowns.has_loaded:
            await self._load_cooldowns(clock, draft)
        if self._verifications.is_used and context.learning != "off":
            await self._verify(perceptions, draft)
        for number, perception in enumerate(sorted(perceptions, key=_urgency), start=1):
            await self._use_rules(perception, plan)
            if number % INLINE_LIMIT == 0:
                await OTHERS_TURN
        return draft.action(perceptions)

    @staticmethod
    def rule_schema() -> dict[str, Any]:
        """Return the JSON schema of one of the tables `[[rules]]`."""
        return rule_schema()

    def written_calls(self) -> Iterator[WrittenCall]:
        """Yield the calls of all rules as they are written, so that their tools can check them at the start."""
        for rule in self.rules:
            for number, call in enumerate(rule.calls):
                path = ("rules", rule.number, "calls", number, "params")
                yield WrittenCall(path, call.tools, call.literals, frozenset(call.params) - call.literals.keys())

    @property
    def reach(self) -> float:
        """Return the longest cooldown in seconds: older firings have no effect on a decision."""
        return max((rule.cooldown for rule in self.rules), default=0.0)

    def recall(self, rules: Collection[str], perceptions: Sequence[Perception], clock: Clock) -> None:
        """Begin the cooldowns of rules that fired for these perceptions, at the time of the clock."""
        resting = [rule for rule in self.rules if rule.cooldown and rule.name in rules]
        for match_input in (match_input for perception in perceptions for match_input in sights(perception)):
            perception = match_input.perception
            for rule in resting:
                if not _objection(rule, match_input)[0] and self._cooldowns.is_ready(rule, perception, clock):
                    self._cooldowns.begin(rule, perception, clock, "")

    @property
    def rule_names(self) -> list[str]:
        """Return the names of the rules, in their order."""
        return [rule.name for rule in self.rules]

    def explain(self, perceptions: Sequence[Perception]) -> Iterator[RuleLook]:
        """Yield what each rule says of each perception, the most urgent first; nothing is counted or begun."""
        for perception in sorted(perceptions, key=_urgency):
            looks: dict[str, tuple[int, RuleLook]] = {}  # of several parts, the one that meets most conditions counts
            for match_input in sights(perception):
                decided_by = ""
                for rule in self.rules:
                    why, met = _objection(rule, match_input)
                    if matches := not (why or decided_by):
                        why = f"it matches; once in {rule.cooldown:g} s per subject" if rule.cooldown else "it matches"
                        met += 1
                    if not why:
                        why = f"it matches, but rule {decided_by!r} before it decides alone (stop)"
                    if rule.name not in looks or met > looks[rule.name][0]:
                        looks[rule.name] = met, RuleLook(rule.name, perception.id, why, matches)
                    if matches and rule.stop:
                        decided_by = rule.name
            yield from (look for _, look in looks.values())

    def snapshot(self) -> dict[str, Any]:
        """Return the counts of each rule, and how many cooldowns and verifications there are."""
        return {
            "rules": self._counts.snapshot(),
            "cooldowns": len(self._cooldowns),
            "cooldowns_forgotten": self._cooldowns.forgotten,
            "to_verify": self._verifications.pending,
            "to_verify_forgotten": self._verifications.forgotten,
        }

    async def _use_rules(self, perception: Perception, plan: _Plan) -> None:
        """Let the rules fire that match a perception or a part that it was fused from."""
        used: set[int] = set()
        for match_input in sights(perception):
            await self._look_at(match_input, plan, used)

    async def _look_at(self, match_input: MatchInput, plan: _Plan, used: set[int]) -> None:
        """Let the rules fire that match one input, without those in `used`, which fired for another part of it."""
        perception, context = match_input.perception, plan.context
        for rule in self._index.candidates(perception):
            try:
                slots = rule.when.match(match_input)
                if slots is None or (rule.unless is not None and rule.unless.match(match_input) is not None):
                    continue
                if rule.number in used:
                    if rule.stop:
                        return
                    continue
                counts = self._counts.of(rule.name)
                counts["matched"] += 1
                if not self._cooldowns.is_ready(rule, perception, plan.clock):
                    counts["cooled_down"] += 1
                else:
                    firing = await self._fire(rule, facts_of(match_input, slots, context, plan.clock), plan)
                    counts["left_out"] += len(firing.left_out)
                    plan.draft.firings.append(firing)
                    counts["fired"] += 1
                    self._counts.happened(rule.name, plan.clock.now())
                    if firing.calls and context.learning != "off":
                        self._verifications.add(rule, perception, context.cycle_id)
                    self._cooldowns.begin(rule, perception, plan.clock, context.cycle_id)
                used.add(rule.number)
            except Exception as error:  # one odd perception must not block the others
                self._counts.of(rule.name)["failed"] += 1
                plan.draft.troubles.append(f"rule {rule.name!r} not used for {perception.id}: {sentence_of(error)}")
                continue
            if rule.stop:
                return

    async def _fire(self, rule: Rule, facts: Facts, plan: _Plan) -> Firing:
        """Return the decision of a rule; the memory is asked only where it may change the decision."""
        perception, context = facts.perception, plan.context
        key = situation_of(perception, rule.name)
        task = of_strangers(key) if perception.trust == "untrusted" else key
        is_open = rule.number in self._open
        remembered = None
        if (
            context.learning != "off"
            and context.memory is not None
            and rule.learn
            and (is_open or (context.abilities and _any_has_failed(rule, task, context.abilities)))
        ):
            remembered = await plan.memory.of(perception, key)
        return fire(rule, facts, context, task, self._tools() if is_open else None, remembered)

    async def _load_cooldowns(self, clock: Clock, draft: Draft) -> None:
        """Load the cooldowns of earlier processes. Without them the rules still work, and the next plan tries again."""
        try:
            await self._cooldowns.load(clock)
        except Exception as error:
            draft.tell(f"cooldowns of earlier processes cannot be read: {sentence_of(error)}")

    async def _verify(self, perceptions: Sequence[Perception], draft: Draft) -> None:
        """Let the perceptions confirm or refute the effects of rules that fired earlier."""
        try:
            await self._verifications.load()
        except Exception as error:
            draft.tell(f"what is to be verified cannot be read: {sentence_of(error)}")
        for number, perception in enumerate(perceptions, start=1):
            self._verifications.see(sights(perception))
            if number % INLINE_LIMIT == 0:
                await OTHERS_TURN


class _Plan(NamedTuple):
    """Values of one call of `plan`: its context and clock, the draft as it grows, what the memory says."""

    context: Context
    clock: Clock
    draft: Draft
    memory: PlanMemory


class _Index:
    """Index of rules by the literal kinds of their conditions, else by the literal sources, else under no key."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._by_kind: defaultdict[str | None, list[Rule]] = defaultdict(list)
        self._by_source: defaultdict[str | None, list[Rule]] = defaultdict(list)
        for rule in rules:
            index, names = (self._by_kind, rule.when.kinds) if rule.when.kinds else (self._by_source, rule.when.sources)
            for name in (None,) if names is None else names:
                index[name].append(rule)

    def candidates(self, perception: Perception) -> Sequence[Rule]:
        """Return the rules that may match a perception, in the order of the configuration."""
        by_kind, by_source = self._by_kind.get(perception.kind), self._by_source.get(perception.source)
        lists = (by_kind, by_source, self._by_source.get(None))
        filled = [rules for rules in lists if rules]
        if len(filled) < 2:
            return filled[0] if filled else ()
        return sorted((rule for rules in filled for rule in rules), key=lambda rule: rule.number)


def _objection(rule: Rule, match_input: MatchInput) -> tuple[str, int]:
    """Return the first reason why a rule does not match ("" if it matches), and how many conditions hold before."""
    objection, met = rule.when.objection(match_input)
    if objection or rule.unless is None or rule.unless.match(match_input) is None:
        return objection, met
    return f"unless holds: {', '.join(rule.unless.names)}", met


def _any_has_failed(rule: Rule, task: str, abilities: Mapping[str, Ability]) -> bool:
    """Return whether the first tool of any call of a rule has failed at this task."""
    for call in rule.calls:  # noqa: SIM110 - a generator costs more than this loop
        if has_failed(call.tools[0], task, abilities):
            return True
    return False


def _urgency(perception: Perception) -> float:
    """Return the key for sorting, the most important perception first; one without a number counts as 0."""
    importance = perception.importance
    is_number = isinstance(importance, (int, float)) and importance == importance
    return -importance if is_number else 0.0
