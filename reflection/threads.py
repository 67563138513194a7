"""Threads of steps: the calls that later feedback may be about, and the experience of a whole thread; pure."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct, field

from spar.data.text import safe_line
from spar.types import Experience, TriedCall, Trust

#: Bound of the tools that the line of a sequence names.
_SHOWN = 12


class Step(Struct):
    """Calls of one cycle. `tasks` are the tasks of the calls; `is_open` while no feedback on it has come.

    `said` is the last feedback on it; `cases` are the experiences that its decisions used; `number` orders all steps.
    """

    cycle_id: str
    key: str
    situation: str
    session: str
    trust: Trust
    calls: list[TriedCall]
    tasks: list[str]
    run_id: str = ""
    task: str = ""
    cases: list[str] = field(default_factory=list)
    is_open: bool = False
    said: bool | None = None
    number: int = 0


class Thread(Struct):
    """Steps of one session that belong together. For an episode, `name` is the name that the environment gives it,
    `place` is where it goes on, and `total` is its reward so far."""

    id: str
    place: str = ""
    steps: list[Step] = field(default_factory=list)
    total: float = 0.0
    is_over: bool = False
    is_cut: bool = False
    is_told: bool = False  # the result of a call carried the last reward
    name: str = ""
    session: str = ""

    @property
    def run_id(self) -> str:
        """Return the id that experiences store: that of the run, or the name of the episode."""
        return self.name or self.id


def sequence_of(thread: Thread, success: bool, at: datetime) -> Experience:
    """Return the experience of a whole run or episode: the situation of its first step, and all calls in order."""
    first = thread.steps[0]
    calls = [call for step in thread.steps for call in step.calls]
    names = [call.tool for call in calls]
    shown = " → ".join(names[:_SHOWN]) + (f" → and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    trust: Trust = "untrusted" if any(step.trust == "untrusted" for step in thread.steps) else "trusted"
    ended = "worked" if success else "did not work"
    return Experience(
        situation=first.situation,
        action=safe_line(shown),
        outcome=f"{'ok' if success else 'failed'}: {len(calls)} calls in {len(thread.steps)} steps",
        success=success,
        task=first.task,
        lesson=safe_line(f"for {first.task}: {shown} {ended}" if first.task else f"{shown} {ended}"),
        at=at,
        session=first.session,
        trust=trust,
        origin=thread.steps[-1].cycle_id,
        key=first.key,
        run_id=thread.run_id,
        calls=tuple(calls),
        score=min(1.0, max(0.0, thread.total)) if thread.place else float(success),
    )
