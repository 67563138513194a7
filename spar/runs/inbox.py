"""Inbox of one session: pushed perceptions, and messages in the queue of their mode.

`spar.decisions.place` decides the queue of a message by its mode. `runs.drop` decides which messages go if too many
wait. This module tells nobody, and knows nothing else about runs.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from spar.decisions.place import gist
from spar.facts.messages import MOST_GISTS, MessagePlace
from spar.ports.trust import least_trust
from spar.types import Perception, replace

if TYPE_CHECKING:
    from spar.runs.run import Run


class Inbox:
    """Inbox of one session. Most are empty, so each queue is created by its first entry.

    `pushed`, `runs` and `steers` are false while empty. `quiet_until` is when collected messages become a run
    (monotonic seconds; 0 without any). `waiting` is the number of waiting perceptions and messages; it is stored
    because every cycle reads it.
    """

    __slots__ = ("_interrupting", "accepted", "dropped", "pushed", "quiet_until", "runs", "steers", "waiting")

    def __init__(self) -> None:
        self.pushed: deque[tuple[Perception, float]] | None = None  # with the time of arrival (monotonic seconds)
        self.runs: deque[Run] | None = None
        self.steers: deque[Run] | None = None
        self.dropped: list[Perception] | None = None
        self._interrupting: Run | None = None  # waits, and is dropped for a newer one
        #: The number of waiting pushed perceptions that were accepted for each sensor, by source.
        self.accepted: dict[str, int] | None = None
        self.quiet_until = 0.0
        self.waiting = 0

    # -- adding

    def push(self, perception: Perception, now: float) -> None:
        """Queue a perception. Args: now: monotonic seconds."""
        if self.pushed is None:
            self.pushed = deque()
        self.pushed.append((perception, now))
        self.waiting += 1

    def add(self, run: Run, place: MessagePlace, now: float, quiet: float, *, is_interrupting: bool = False) -> None:
        """Queue a message.

        Args: now: monotonic seconds; quiet: seconds without a further message until collected ones become a run;
        is_interrupting: a newer interrupting message replaces it.
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
        """Count the perception that was pushed last as accepted for a sensor."""
        if self.accepted is None:
            self.accepted = {}
        self.accepted[source] = self.accepted.get(source, 0) + 1

    # -- taking

    def take_pushed(self) -> list[Perception]:
        """Return the pushed perceptions, and remove them."""
        perceptions = [perception for perception, _ in self.pushed or ()]
        if self.pushed:
            self.pushed.clear()
            self.accepted = None
        self.waiting -= len(perceptions)
        return perceptions

    def next_run(self, now: float) -> tuple[Run, list[Run]] | None:
        """Return the run to begin now, and those to merge into it; None if none may begin yet."""
        if not self.runs or self.wait(now) > 0:
            return None
        first = self._pop(self.runs)
        others: list[Run] = []
        # Messages of another trust are not merged.
        while first.is_collected and self.runs and self._belongs(self.runs[0], first):
            others.append(self._pop(self.runs))
        return first, others

    def take_steers(self) -> list[Run]:
        """Return the messages for the current run, and remove them."""
        runs = list(self.steers) if self.steers else []
        self.steers = None
        self.waiting -= len(runs)
        return runs

    def put_back(self, steers: Sequence[Run]) -> None:
        """Queue messages that came too late for their run as runs of their own."""
        if self.runs is None:
            self.runs = deque()
        self.runs.extend(steers)
        self.waiting += len(steers)

    def drop(self, run: Run) -> bool:
        """Remove a waiting message; return False if it does not wait."""
        for waiting in (self.runs, self.steers):
            if waiting and run in waiting:
                waiting.remove(run)
                self._forget(run)
                return True
        return False

    def _pop(self, queue: deque[Run]) -> Run:
        run = queue.popleft()
        self._forget(run)
        return run

    def _forget(self, run: Run) -> None:
        """Count a message as no longer waiting."""
        self.waiting -= 1
        if self._interrupting is run:
            self._interrupting = None

    def take_superseded(self) -> Run | None:
        """Remove and return the waiting interrupting message, because a newer one replaces it; None without one."""
        run = self._interrupting
        return run if run is not None and self.drop(run) else None

    def make_room(self, cap: int, *, is_summed_up: bool) -> list[Run]:
        """Remove and return the oldest messages until one more fits. Args: is_summed_up: keep a summary of each."""
        removed: list[Run] = []
        while len(self.runs or ()) + len(self.steers or ()) >= cap:
            source = self.runs or self.steers
            if not source:
                break
            removed.append(self._pop(source))
        if is_summed_up and removed:
            self.dropped = [*(self.dropped or ()), *(gist(run.message) for run in removed)][-MOST_GISTS:]
        return removed

    def take_dropped(self) -> list[Perception]:
        """Return the summaries of the last dropped messages, once."""
        summaries, self.dropped = self.dropped or [], None
        return summaries

    # -- reading

    def wait(self, now: float) -> float:
        """Return the seconds until the next run may begin: collected messages wait for a quiet time."""
        return max(0.0, self.quiet_until - now) if self.runs and self.runs[0].is_collected else 0.0

    @property
    def oldest(self) -> float | None:
        """Return when the oldest waiting entry came (monotonic seconds); None if empty. May be called from any
        thread."""
        times: list[float] = []
        with contextlib.suppress(IndexError):  # the session may take entries meanwhile
            if self.pushed:
                times.append(self.pushed[0][1])
            if self.steers:
                times.append(self.steers[0].queued_at)
            if self.runs:
                times.append(self.runs[0].queued_at)
                times.append(self.runs[1].queued_at)  # an interrupting message is first, though it came later
        return min(times, default=None)

    @property
    def messages(self) -> int:
        """Return how many messages wait."""
        return len(self.runs or ()) + len(self.steers or ())

    @property
    def contents(self) -> tuple[list[Perception], list[Run]]:
        """Return the waiting perceptions and messages."""
        return [perception for perception, _ in self.pushed or ()], [*(self.steers or ()), *(self.runs or ())]

    @staticmethod
    def _belongs(run: Run, first: Run) -> bool:
        """Return whether a run may be merged into the first one."""
        return run.is_collected and run.message.trust == first.message.trust


def collected(first: Perception, others: Iterable[Perception]) -> Perception:
    """Return one message that contains all collected ones."""
    parts = [first, *others]
    if len(parts) == 1:
        return first
    blocks = [f"---\nQueued #{number}\n{part.text}" for number, part in enumerate(parts, 1)]
    text = "\n".join(["[Queued messages while agent was busy]", *blocks])
    return replace(first, content=text, evidence=tuple(parts))


def overflow(dropped: Sequence[Perception], session: str, new_id: Callable[[], str]) -> Perception:
    """Return a message that summarizes dropped ones. Its trust is that of the least trusted of them."""
    lines = [f"- {message.text}" for message in dropped]
    text = "\n".join([f"[Queue overflow] Dropped {len(lines)} messages due to cap.", *lines])
    trust = least_trust(dropped)
    return Perception(text, source="runs", kind="message.dropped", id=new_id(), session=session, trust=trust)
