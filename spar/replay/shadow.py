"""Shadow: a second configuration decides beside a running service, on the same perceptions and without effects.

It has a thread and an event loop of its own. A cycle that has decided is offered to it by a bounded queue; when that is
full, the cycle is dropped and counted. So a shadow that hangs, raises or is slow touches no cycle of the service.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from copy import copy
from queue import Empty, Full, Queue
from typing import Any, Final

from msgspec.structs import asdict

from spar.config.tables.settings import Loaded
from spar.data.bounded import BoundedDict
from spar.errors import SparError
from spar.events import CycleRecorded, PhaseCompleted, PhaseStarted
from spar.observe.logs import get_logger
from spar.parts.factory import Parts
from spar.replay.again import AnswersOfRecord
from spar.replay.backtest import Backtest
from spar.replay.deciding import Decider
from spar.replay.tally import ShadowReport, ShadowState, Tally
from spar.replay.tape import History
from spar.types import CycleRecord, Perception, utcnow

log = get_logger("spar.shadow")

#: Cycles that may wait for the shadow; plans whose perceptions are remembered until they are made.
MOST_WAITING: Final = 1_000
#: Seconds after which a decision counts as stuck.
STUCK_AFTER: Final = 60.0
#: Most disagreements in a report.
_MOST_TOLD: Final = 100


class Shadow:
    """Second configuration beside a service.

    Args:
        loaded: decides; live: the configuration of the service, whose store is read.
        agent: the name of the agent.
    Raises: ConfigError for a configuration that cannot be used.
    """

    def __init__(self, loaded: Loaded, live: Loaded, agent: str) -> None:
        self._configuration = str(loaded.path or "the defaults")
        self._live, self._agent = live, agent
        self._queue: Queue[CycleRecord | None] = Queue(MOST_WAITING)
        self._noticed: BoundedDict[str, tuple[Perception, ...]] = BoundedDict(MOST_WAITING)
        self._lock = threading.Lock()  # held while the tally changes, and while it is read
        self._tally = Tally()
        self._dropped, self._began, self._failure = 0, 0.0, ""
        self._answers = AnswersOfRecord()
        self._decider = Decider(loaded, None, agent, answer_to=self._answers, rows=self._tally.rows)
        limits = live.settings.budgets.limits, loaded.settings.budgets.limits
        self._work = Backtest(self._decider, self._answers, Decider(live, None, agent), limits, self._tally)
        self._thread = threading.Thread(target=self._run, name="shadow", daemon=True)

    def attach(self, subscribe: Callable[[type[Any], Callable[[Any], None]], object]) -> None:
        """Listen to the events of an agent, and begin."""
        subscribe(PhaseStarted, self._plans)
        subscribe(PhaseCompleted, self._has_planned)
        subscribe(CycleRecorded, self._recorded)
        self._thread.start()

    def close(self) -> None:
        """Let the thread end after what it decides now; it is not waited for."""
        self._noticed.clear()
        with suppress(Empty):
            while True:
                self._queue.get_nowait()
        with suppress(Full):
            self._queue.put_nowait(None)

    @property
    def state(self) -> ShadowState:
        """Return its state, from any thread."""
        began, trouble = self._began, self._failure
        if not trouble and began and (seconds := time.monotonic() - began) > STUCK_AFTER:
            trouble = f"it decides about one cycle since {seconds:.0f} s"
        with self._lock:
            tally = self._tally
            agree = {"yes": tally.same, "no": tally.differs, "unknown": sum(tally.unknown.values())}
        return ShadowState(self._configuration, agree, self._dropped, trouble)

    def report(self) -> ShadowReport:
        """Return its report, from any thread."""
        state = asdict(self.state)
        with self._lock:
            tally = self._tally
            return ShadowReport(
                **state, waiting=self._queue.qsize(), calls=copy(tally.calls), asked=copy(tally.asked),
                refused=copy(tally.refused), rules={name: copy(of) for name, of in tally.rules.items()},
                unknown=dict(tally.unknown), disagreements=[copy(one) for one in tally.by_frequency[:_MOST_TOLD]],
            )  # fmt: skip

    # -- in the event loop of the service

    def _plans(self, event: PhaseStarted) -> None:
        if event.phase == "plan" and event.input:
            self._noticed[event.cycle_id] = tuple(event.input)

    def _has_planned(self, event: PhaseCompleted) -> None:
        """Offer a cycle that decided to do nothing, which leaves no record."""
        if event.phase == "plan" and (noticed := self._noticed.pop(event.cycle_id, ())) and event.output is None:
            phases = {"plan": event.duration}
            self._offer(CycleRecord(event.cycle_id, self._agent, event.session, utcnow(), event.duration, "idle",
                                    noticed, phases=phases))  # fmt: skip

    def _recorded(self, event: CycleRecorded) -> None:
        self._offer(event.record)

    def _offer(self, cycle: CycleRecord) -> None:
        try:
            self._queue.put_nowait(cycle)
        except Full:
            self._dropped += 1

    # -- in its own thread

    def _run(self) -> None:
        try:
            if (cycle := self._queue.get()) is not None:  # the store is open once a cycle has ended
                asyncio.run(self._decide(cycle))
        except BaseException as error:
            self._failure = f"it ended: {type(error).__name__}: {error}"
            log.warning("shadow ended", configuration=self._configuration, reason=str(error))

    async def _decide(self, cycle: CycleRecord | None) -> None:
        """Decide this cycle and those that follow, until the end."""
        history = History()
        async with AsyncExitStack() as opened:
            try:
                self._decider.remember(await opened.enter_async_context(Parts(self._live).memory(read_only=True)))
            except SparError as error:
                log.warning("shadow has no memory", configuration=self._configuration, reason=str(error))
            await opened.enter_async_context(self._decider)
            while cycle is not None:
                self._began = time.monotonic()
                one = await self._work.judge(history, cycle)
                with self._lock:
                    self._work.count(one)
                self._began = 0.0
                cycle = self._queue.get()  # nothing else runs in this loop
