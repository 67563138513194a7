"""The inbox of one session: perceptions that were pushed, and messages, by what becomes of them.

A message that comes while its session pursues a run is dealt with by its mode. What that means is the table `PLACES`;
what goes when too many wait is `runs.drop`. Who is told, and what a run is, is no matter of this file.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal

from spar.data.text import one_line
from spar.ports.trust import least_trust
from spar.types import Perception, QueueMode, replace

if TYPE_CHECKING:
    from spar.runs.run import Run

Place = Literal["queue", "front", "steer", "collect"]

#: Where a message goes, by its mode and by whether its session has a run, under way or about to be.
PLACES: Final[dict[tuple[QueueMode, bool], Place]] = {
    ("followup", False): "queue",
    ("followup", True): "queue",
    ("steer", False): "queue",
    ("steer", True): "steer",
    ("collect", False): "queue",
    ("collect", True): "collect",
    ("interrupt", False): "queue",
    ("interrupt", True): "front",
}
#: Messages that may wait where `runs.cap` says "auto": of a mode whose messages become part of something else few, of
#: one where each gets an answer of its own as many as there is room for.
USUAL_CAP: Final[dict[QueueMode, int]] = {"followup": 1000, "steer": 20, "collect": 20, "interrupt": 20}
#: Characters of a dropped message that its summary keeps, and how many summaries are kept.
_SUMMARY, _SUMMARIES = 160, 50


class Inbox:
    """Of one session. Empty ones are many, so nothing is made before it is needed.

    `pushed`, `runs` and `steers` are false while nothing of their kind waits; `quiet_until` is when collected messages
    become a run (monotonic seconds, 0 while none were), `waiting` how many perceptions and messages wait: every cycle
    asks, so that it is kept and not counted.
    """

    __slots__ = ("_interrupting", "accepted", "dropped", "pushed", "quiet_until", "runs", "steers", "waiting")

    def __init__(self) -> None:
        self.pushed: deque[tuple[Perception, float]] | None = None  # each with when it came (monotonic seconds)
        self.runs: deque[Run] | None = None
        self.steers: deque[Run] | None = None
        self.dropped: list[Perception] | None = None
        self._interrupting: Run | None = None  # waits, and makes way for a newer one
        #: Of those that were pushed, how many had been accepted for each sensor, by source.
        self.accepted: dict[str, int] | None = None
        self.quiet_until = 0.0
        self.waiting = 0

    # -- what comes

    def push(self, perception: Perception, now: float) -> None:
        if self.pushed is None:
            self.pushed = deque()
        self.pushed.append((perception, now))
        self.waiting += 1

    def add(self, run: Run, place: Place, now: float, quiet: float, *, is_interrupting: bool = False) -> None:
        """Have a message wait.

        Args: quiet: seconds without a further one until collected ones become a run; is_interrupting: whether a newer
            message of its kind takes its place.
        """
        run.queued_at = now
        self.waiting += 1
        if place == "steer":
            if self.steers is None:
                self.steers = deque()
            self.steers.append(run)
            return
        if self.runs is None:
            self.runs = deque()
        run.is_collected = place == "collect"
        if run.is_collected:
            self.quiet_until = now + quiet
        if is_interrupting:
            self._interrupting = run
        if place == "front":
            self.runs.appendleft(run)
        else:
            self.runs.append(run)

    def note_accepted(self, source: str) -> None:
        """Note that what was pushed last had been accepted for a sensor."""
        if self.accepted is None:
            self.accepted = {}
        self.accepted[source] = self.accepted.get(source, 0) + 1

    # -- what goes

    def take_pushed(self) -> list[Perception]:
        taken = [perception for perception, _ in self.pushed or ()]
        if self.pushed:
            self.pushed.clear()
            self.accepted = None
        self.waiting -= len(taken)
        return taken

    def next_run(self, now: float) -> tuple[Run, list[Run]] | None:
        """The run that begins now, and those that become part of it; None when none does yet."""
        if not self.runs or self.wait(now) > 0:
            return None
        first = self._taken(self.runs)
        others: list[Run] = []
        # Who says something with other rights is heard by himself.
        while first.is_collected and self.runs and self._belongs(self.runs[0], first):
            others.append(self._taken(self.runs))
        return first, others

    def take_steers(self) -> list[Run]:
        taken = list(self.steers) if self.steers else []
        self.steers = None
        self.waiting -= len(taken)
        return taken

    def put_back(self, steers: Sequence[Run]) -> None:
        """Have those that came too late wait: each becomes a run of its own."""
        if self.runs is None:
            self.runs = deque()
        self.runs.extend(steers)
        self.waiting += len(steers)

    def drop(self, run: Run) -> bool:
        """Take a message out that waits; False if it does not."""
        for waiting in (self.runs, self.steers):
            if waiting and run in waiting:
                waiting.remove(run)
                self._forget(run)
                return True
        return False

    def _taken(self, queue: deque[Run]) -> Run:
        run = queue.popleft()
        self._forget(run)
        return run

    def _forget(self, run: Run) -> None:
        """A message waits no more."""
        self.waiting -= 1
        if self._interrupting is run:
            self._interrupting = None

    def take_superseded(self) -> Run | None:
        """Take out the interrupting message that waits, if one does: a newer one has the word."""
        run = self._interrupting
        return run if run is not None and self.drop(run) else None

    def make_room(self, cap: int, *, is_summed_up: bool) -> list[Run]:
        """Take the oldest messages out until there is room for one more; what they said is summed up, if asked."""
        gone: list[Run] = []
        while len(self.runs or ()) + len(self.steers or ()) >= cap:
            source = self.runs or self.steers
            if not source:
                break
            gone.append(self._taken(source))
        if is_summed_up and gone:
            self.dropped = [*(self.dropped or ()), *(gist(run.message) for run in gone)][-_SUMMARIES:]
        return gone

    def take_dropped(self) -> list[Perception]:
        """The messages that were dropped and are to be summed up, in short, the last of them; given once."""
        taken, self.dropped = self.dropped or [], None
        return taken

    # -- what is there

    def wait(self, now: float) -> float:
        """Seconds until the next run may begin: collected messages wait until nobody says more."""
        return max(0.0, self.quiet_until - now) if self.runs and self.runs[0].is_collected else 0.0

    @property
    def oldest(self) -> float | None:
        """Since when what came first waits (monotonic seconds); None when nothing does. From any thread."""
        found: list[float] = []
        with contextlib.suppress(IndexError):  # another thread takes out what was there
            if self.pushed:
                found.append(self.pushed[0][1])
            if self.steers:
                found.append(self.steers[0].queued_at)
            if self.runs:
                found.append(self.runs[0].queued_at)
                found.append(self.runs[1].queued_at)  # one that interrupts stands before those that came earlier
        return min(found, default=None)

    @property
    def messages(self) -> int:
        return len(self.runs or ()) + len(self.steers or ())

    @property
    def contents(self) -> tuple[list[Perception], list[Run]]:
        """Return what was handed over and waits."""
        return [perception for perception, _ in self.pushed or ()], [*(self.steers or ()), *(self.runs or ())]

    @staticmethod
    def _belongs(run: Run, first: Run) -> bool:
        return run.is_collected and run.message.trust == first.message.trust


def gist(message: Perception) -> Perception:
    """Return what is kept of a message that was dropped."""
    return replace(message, content=one_line(message.text, _SUMMARY), attributes={}, evidence=())


def collected(first: Perception, others: Iterable[Perception]) -> Perception:
    """Messages that came while their session was busy, as one."""
    parts = [first, *others]
    if len(parts) == 1:
        return first
    blocks = [f"---\nQueued #{number}\n{part.text}" for number, part in enumerate(parts, 1)]
    text = "\n".join(["[Queued messages while agent was busy]", *blocks])
    return replace(first, content=text, evidence=tuple(parts))


def overflow(dropped: Sequence[Perception], session: str, new_id: Callable[[], str]) -> Perception:
    """Return what is told of messages that were dropped; it is trusted as little as the least trusted of them."""
    lines = [f"- {each.text}" for each in dropped]
    text = "\n".join([f"[Queue overflow] Dropped {len(lines)} messages due to cap.", *lines])
    trust = least_trust(dropped)
    return Perception(text, source="runs", kind="message.dropped", id=new_id(), session=session, trust=trust)
