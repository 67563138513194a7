"""Verification of rules: a rule with `verify` looks later whether its effect has lasted; pure but for rows and a timer.

    verify = { within = 600 }                                    # the same must not come again
    verify = { within = 60, when = { kind = "service.up" }, is_good = true }

A firing of such a rule is pending until a perception of the same thing (its incident, else its subject) matches `when`,
or until the time is over. Then the agent gets one `Feedback` about the cycle in which the rule fired; before that the
calls of this cycle count neither as success nor as failure. An untrusted perception decides nothing about a firing that
a trusted one caused. Pending firings are kept in rows and survive a restart. A firing whose time ended while no process
was running is dropped without feedback, because nobody knows how it went.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from msgspec import Struct, to_builtins

from planning.rules.conditions import MatchInput
from planning.rules.rule import Rule, Verify
from spar.clock import Clock, SystemClock, Timer
from spar.data.bounded import SharedDict
from spar.decoding import converted
from spar.protocols import Host, ModuleRows
from spar.types import Feedback, Perception, Trust

#: Pending firings; beyond it the oldest one of the session with the most is dropped without feedback, and counted.
MOST_PENDING = 1_000
#: Characters of a subject or incident that are compared.
_LONGEST = 300


class Pending(Struct):
    """Firing of a rule that is to be verified; `at` is the time of its perception, `due` the end of the wait, both in
    seconds since 1970."""

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
        """Return the thing that the firing is about: its incident, else its subject, which may be ""."""
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
        self._has_loaded, self._is_shared = True, False
        self._may_sense: Callable[[], bool] = lambda: True
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
        """Use the clock, the rows and the feedback of an agent from now on."""
        self._clock, self._judge = host.clock, host.judge
        self._rows, self._has_loaded = host.rows("verify"), False
        self._is_shared, self._may_sense = host.acquire is not None, host.may_sense

    def read_again(self) -> None:
        """Have the rows loaded again: this process has taken the session `main` over from another one."""
        self._has_loaded = False

    def _is_elsewhere(self, pending: Pending) -> bool:
        """Return whether another process sees what a firing in the session `main` leads to."""
        return self._is_shared and pending.session == "main" and not self._may_sense()

    async def load(self) -> None:
        """Load the pending firings of earlier processes, once. Raises: what the memory raises."""
        if self._rows is None or self._has_loaded:
            return
        rows = await self._rows.list()
        if self._has_loaded:
            return
        self._has_loaded = True
        now = self._clock.now().timestamp()
        for key, row in rows.items():
            if (pending := converted(row, Pending)) is None:
                self._rows.drop(key)
            elif pending.rule in self._of and pending.due > now:
                if not self._is_shared or (pending.session == "main" and self._may_sense()):
                    self._put(pending)
            elif self._pending.get(pending.session, key) is None:
                self._rows.drop(key)
        self._set_timer(min((pending.due for pending in self._pending.values()), default=float("inf")))

    def close(self) -> None:
        """Stop the timer; pending firings stay in their rows."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timed = None, float("inf")

    def add(self, rule: Rule, perception: Perception, cycle_id: str) -> None:
        """Add a firing of a rule as pending, if the rule has `verify`."""
        verify = self._of.get(rule.name)
        if verify is None or not cycle_id:
            return
        at, due = perception.at.timestamp(), self._clock.now().timestamp() + verify.within
        about, trust, session = _things(perception), perception.trust, perception.session
        pending = Pending(rule.name, cycle_id, perception.id, at, due, **about, trust=trust, session=session)
        if self._rows is not None:
            self._rows.keep(pending.key, to_builtins(pending), cycle_id=cycle_id)
        self._put(pending)
        self._set_timer(pending.due)

    def see(self, inputs: Iterable[MatchInput]) -> None:
        """Give feedback about the pending firings that these inputs match."""
        if not self._pending:
            return
        for match_input in inputs:
            for thing in dict.fromkeys((*_things(match_input.perception).items(), ("subject", ""))):
                for pending in list(self._about.get(thing, {}).values()):
                    self._match(pending, match_input)

    def _match(self, pending: Pending, match_input: MatchInput) -> None:
        """Give feedback about a pending firing, if an input matches it."""
        perception, verify = match_input.perception, self._of[pending.rule]
        if perception.id == pending.perception_id or perception.at.timestamp() < pending.at:
            return
        if perception.trust == "untrusted" and pending.trust == "trusted":
            return
        if verify.when.match(match_input) is not None:
            what = "what was hoped for came" if verify.is_good else "it came again"
            self._say(pending, verify.is_good, f"rule {pending.rule!r}: {what}")

    def _expire(self) -> None:
        """Give feedback about the pending firings whose time is over."""
        self._timer, self._timed = None, float("inf")
        now = self._clock.now().timestamp()
        for pending in [pending for pending in self._pending.values() if pending.due <= now]:
            verify = self._of[pending.rule]
            what = "what was hoped for did not come" if verify.is_good else "it did not come again"
            self._say(pending, not verify.is_good, f"rule {pending.rule!r}: {what} within {verify.within:g} s")
        self._set_timer(min((pending.due for pending in self._pending.values()), default=float("inf")))

    def _say(self, pending: Pending, success: bool, why: str) -> None:
        """Give the agent the feedback about a firing; its row is dropped once the agent has kept that."""
        self._take_out(pending)
        if self._is_elsewhere(pending):
            return
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
        """Set the timer to a time in seconds since 1970, unless it goes off earlier."""
        if first >= self._timed:
            return
        self.close()
        self._timed = first
        wait = max(0.0, first - self._clock.now().timestamp())
        self._timer = self._clock.call_at(self._clock.monotonic() + wait, self._expire)


def _things(perception: Perception) -> dict[str, str]:
    """Return the subject and the incident of a perception as they are compared, each "" if there is none."""
    incident = perception.attributes.get("incident")
    return {
        "subject": (perception.subject or "")[:_LONGEST],
        "incident": incident[:_LONGEST] if isinstance(incident, str) else "",
    }


def _unheard(word: Feedback, done: Callable[[], None]) -> None:
    """Drop the feedback of a planner without an agent."""
    done()
