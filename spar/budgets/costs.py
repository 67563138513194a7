"""Costs of requests to models, summed up on disk: for each day by model, session and rule.

Each day (UTC) has small rows of its own (`spar.ports.costs`), so that a request changes one row. The rule of a
request is the one whose calls its run has made; "" for none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from datetime import date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins

from spar.errors import SparError
from spar.ports.costs import MOST_DAYS, NAME, SINCE, Cost, CostKey, sums_in

if TYPE_CHECKING:
    from spar.attaching import Attaching, Services
    from spar.events import ModelAnswered
    from spar.protocols import ModuleRows

#: Days before those that are kept that are looked at when a new day begins; sums of one day, beyond which those of new
#: sessions are one.
LOOKED_AT, MOST_ROWS = 31, 500
OTHERS: Final = "other sessions"


def cost_of(event: ModelAnswered) -> Cost:
    """Return the cost of one request."""
    if not (event.input_tokens or event.output_tokens):
        return Cost(1, unmeasured=1)
    cached = min(event.cached_tokens, event.input_tokens)
    return Cost(1, event.input_tokens, cached, event.output_tokens, event.cost or 0, int(event.cost is None))


class CostRecord:
    """Record of the costs of one agent.

    Args:
        rows_of: Returns small rows of a name, None without a memory.
        now: Returns the time of day.
        about: Returns the session and the rule of a request.
        in_background: Runs work beside the agent's.
    """

    def __init__(self, rows_of: Callable[[str], ModuleRows | None], now: Callable[[], datetime],
                 about: Callable[[ModelAnswered], tuple[str, str]],
                 in_background: Callable[[Coroutine[Any, Any, None], str], object]) -> None:  # fmt: skip
        self._rows_of, self._now, self._about, self._in_background = rows_of, now, about, in_background
        self.mark: tuple[str, ...] = ()  # tells the sums of this process from those of others that record costs, too
        self._new: dict[date, dict[CostKey, Cost]] = {}  # not written yet
        self._is_writing = False
        self._day: date | None = None  # the last day that was written, and its sums
        self._sums: dict[CostKey, Cost] = {}
        self._since = ""  # the first day on which costs were recorded, as far as it is known

    async def begin(self) -> None:
        """Note since when costs are recorded, the first time. Raises: what the memory raises."""
        if (rows := self._rows_of(NAME)) is None:
            return
        if (since := (await rows.list()).get(SINCE)) is None:
            rows.keep(SINCE, since := self._now().isoformat())
        self._since = str(since)[:10]

    def take(self, event: ModelAnswered) -> None:
        """Add a request that has ended."""
        session, rule = self._about(event)
        key = CostKey(event.answered_by or event.model, session, rule)
        day = self._new.setdefault((event.at or self._now()).date(), {})
        if key not in day and len(day) >= MOST_ROWS:
            key = key._replace(session=OTHERS)
        day.setdefault(key, Cost()).add(cost_of(event))
        if not self._is_writing:
            self._is_writing = True
            self._in_background(self._write(), "saving of costs by")

    async def _write(self) -> None:
        """Add what is new to the rows. What the memory refuses is tried again with the next request."""
        try:
            while self._new:
                day = next(iter(self._new))
                rows = self._rows_of(f"{NAME} {day}")
                if rows is None:
                    self._new.clear()
                    return
                if self._day != day:
                    await self._trim(day)
                    self._day, self._sums = day, {} if self.mark else dict(sums_in(await rows.list()))
                for key, cost in self._new.pop(day).items():
                    if key not in self._sums and len(self._sums) >= MOST_ROWS:
                        key = key._replace(session=OTHERS)
                    self._sums.setdefault(key, Cost()).add(cost)
                    rows.keep(json.dumps((*key, *self.mark)), to_builtins(self._sums[key]))
        finally:
            self._is_writing = False

    async def _trim(self, day: date) -> None:
        """Delete the days that are too old when this one begins; before the first day there is none."""
        for back in range(MOST_DAYS, MOST_DAYS + LOOKED_AT):
            if (old := str(day - timedelta(days=back))) < self._since <= str(day):
                return
            if (rows := self._rows_of(f"{NAME} {old}")) is not None:
                for key in await rows.list():
                    rows.drop(key)


def attach(agent: Attaching) -> CostRecord:
    """Attach the record of costs to an agent."""
    from spar.events import ModelAnswered
    from spar.ports.nodes import nodes_of

    services = agent.services
    record = CostRecord(services.rows, agent.core.clock.now, partial(_asked_for, services), services.in_background)

    async def begin() -> None:
        if nodes_of(services.memory) is not None:
            record.mark = (agent.core.clock.new_id(),)
        try:
            await record.begin()
        except SparError as error:  # the agent works without the row
            agent.report(error)

    agent.on(ModelAnswered, record.take)
    agent.open(begin)
    return record


def _asked_for(services: Services, event: ModelAnswered) -> tuple[str, str]:
    """Return the session of a request to a model, and the rule whose calls its run has made; "" for none."""
    run, cycle = services.runs.find(event.run_id) if event.run_id else None, services.sessions.cycle(event.cycle_id)
    calls = [result.call for results in (run.results if run is not None else ()) for result in results.results]
    if cycle is not None and cycle.written_action is not None:
        calls += cycle.written_action.calls
    rules = {f"rule {name!r}": name for name in (str(rule.get("name", "")) for rule in services.core.settings.rules)}
    session = run.session if run is not None else cycle.session if cycle is not None else ""
    return session, next((rules[call.reason] for call in calls if call.reason in rules), "")
