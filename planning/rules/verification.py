"""Verification of what rules did: a rule with `verify` looks later whether it lasted; pure but for rows and a timer.

    verify = { within = 600 }                                    # the same must not come again
    verify = { within = 60, when = { kind = "service.up" }, is_good = true }

A firing of such a rule is pending until a perception of the same thing (its incident, else its subject) matches `when`,
or the time is over; then one word (`Feedback`) goes to the agent, about the cycle in which the rule fired. Its calls
count for nothing before. A stranger has no say in what a trusted perception led to. Pending ones are rows of the
planner's own and survive a restart; those whose time ran out while no process looked are dropped without a word, as
nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from msgspec import Struct, ValidationError, convert, to_builtins

from planning.rules.conditions import MatchInput
from planning.rules.rule import Rule, Verify
from spar.clock import Clock, SystemClock, Timer
from spar.data.bounded import SharedDict
from spar.protocols import Host, ModuleRows
from spar.types import Feedback, Perception, Trust

#: Firings that are pending; beyond it the oldest of the session with most is forgotten without a word, and counted.
MOST_PENDING = 1_000
#: Characters of a subject that things are told apart by.
_LONGEST = 300


class Pending(Struct):
    """Firing of a rule that is looked at later; times in seconds since 1970. `at` is when its perception was."""

    rule: str
    cycle_id: str
    perception_id: str
    at: float
    due: float
    subject: str = ""
    incident: str = ""
    trust: Trust = "trusted"
    session: str = ""

    @property
    def key(self) -> str:
        return f"{self.cycle_id} {self.rule} {self.perception_id}"

    @property
    def about(self) -> tuple[str, str]:
        """Return the thing that it is about: its incident, its subject, or anything."""
        return ("incident", self.incident) if self.incident else ("subject", self.subject)


class Verifications:
    """The pending firings of one planner; `forgotten` counts those for which there was no room."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._of: dict[str, Verify] = {rule.name: rule.verify for rule in rules if rule.verify is not None}
        self._pending: SharedDict[str, Pending] = SharedDict(MOST_PENDING)
        self._about: dict[tuple[str, str], dict[str, Pending]] = {}
        self._rows: ModuleRows | None = None
        self._judge: Callable[[Feedback, Callable[[], None]], None] = _unheard
        self._clock: Clock = SystemClock()
        self._timer: Timer | None = None
        self._timed = float("inf")
        self._has_loaded = True
        self.forgotten = 0

    @property
    def is_used(self) -> bool:
        """Return whether any rule is verified."""
        return bool(self._of)

    @property
    def pending(self) -> int:
        """Return how many firings are pending."""
        return len(self._pending)

    def attach(self, host: Host) -> None:
        """Keep them in the agent's memory, and tell the agent."""
        self._clock, self._judge = host.clock, host.judge
        self._rows, self._has_loaded = host.rows("verify"), False

    async def load(self) -> None:
        """Take up those of earlier processes, once. Raises: what the memory raises."""
        if self._rows is None or self._has_loaded:
            return
        found = await self._rows.list()
        if self._has_loaded:
            return
        self._has_loaded = True
        now = self._clock.now().timestamp()
        for key, row in found.items():
            try:
                pending = convert(row, Pending)
            except ValidationError:
                self._rows.drop(key)
                continue
            if pending.rule in self._of and pending.due > now:
                self._put(pending)
            elif self._pending.get(pending.session, key) is None:
                self._rows.drop(key)
        self._set_timer(min((each.due for each in self._pending.values()), default=float("inf")))

    def close(self) -> None:
        """Look no more; what is pending stays in its rows."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timed = None, float("inf")

    def add(self, rule: Rule, perception: Perception, cycle_id: str) -> None:
        """A rule has fired, and its effects are to be looked at."""
        verify = self._of.get(rule.name)
        if verify is None or not cycle_id:
            return
        incident = perception.attributes.get("incident")
        pending = Pending(
            rule.name,
            cycle_id,
            perception.id,
            perception.at.timestamp(),
            self._clock.now().timestamp() + verify.within,
            (perception.subject or "")[:_LONGEST],
            incident[:_LONGEST] if isinstance(incident, str) else "",
            perception.trust,
            perception.session,
        )
        if self._rows is not None:
            self._rows.keep(pending.key, to_builtins(pending), cycle_id=cycle_id)
        self._put(pending)
        self._set_timer(pending.due)

    def see(self, inputs: Iterable[MatchInput]) -> None:
        """Look whether something that is perceived says how a firing went."""
        if not self._pending:
            return
        for match_input in inputs:
            perception = match_input.perception
            incident = perception.attributes.get("incident")
            things = [("subject", (perception.subject or "")[:_LONGEST]), ("subject", "")]
            if isinstance(incident, str) and incident:
                things.append(("incident", incident[:_LONGEST]))
            for thing in dict.fromkeys(things):
                for pending in list(self._about.get(thing, {}).values()):
                    self._match(pending, match_input)

    def _match(self, pending: Pending, match_input: MatchInput) -> None:
        perception, verify = match_input.perception, self._of[pending.rule]
        if perception.id == pending.perception_id or perception.at.timestamp() < pending.at:
            return
        if perception.trust == "untrusted" and pending.trust == "trusted":
            return
        if verify.when.match(match_input) is not None:
            what = "what was hoped for came" if verify.is_good else "it came again"
            self._say(pending, verify.is_good, f"rule {pending.rule!r}: {what}")

    def _expire(self) -> None:
        self._timer, self._timed = None, float("inf")
        now = self._clock.now().timestamp()
        for pending in [each for each in self._pending.values() if each.due <= now]:
            verify = self._of[pending.rule]
            what = "what was hoped for did not come" if verify.is_good else "it did not come again"
            self._say(pending, not verify.is_good, f"rule {pending.rule!r}: {what} within {verify.within:g} s")
        self._set_timer(min((each.due for each in self._pending.values()), default=float("inf")))

    def _say(self, pending: Pending, success: bool, why: str) -> None:
        """Tell the agent; the row goes when the word is kept."""
        self._take_out(pending)
        dropped = partial(self._drop_row, pending)
        self._judge(Feedback(pending.cycle_id, success, "verify", why), dropped)

    def _put(self, pending: Pending) -> None:
        self._about.setdefault(pending.about, {})[pending.key] = pending
        gone = self._pending.put(pending.session, pending.key, pending)
        if gone is not None:
            self.forgotten += 1
            self._take_out(gone)
            self._drop_row(gone)

    def _take_out(self, pending: Pending) -> None:
        self._pending.pop(pending.session, pending.key)
        if (others := self._about.get(pending.about)) is not None:
            others.pop(pending.key, None)
            if not others:
                del self._about[pending.about]

    def _drop_row(self, pending: Pending) -> None:
        if self._rows is not None:
            self._rows.drop(pending.key)

    def _set_timer(self, first: float) -> None:
        """Have the timer go off at a time, unless it does so earlier."""
        if first >= self._timed:
            return
        self.close()
        self._timed = first
        wait = max(0.0, first - self._clock.now().timestamp())
        self._timer = self._clock.call_at(self._clock.monotonic() + wait, self._expire)


def _unheard(word: Feedback, done: Callable[[], None]) -> None:
    """Take a word of a planner without an agent."""
    done()
