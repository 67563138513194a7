"""Place of a new message in its session."""

from __future__ import annotations

from itertools import chain, islice
from typing import Final, Literal

from msgspec import Struct

from spar import facts
from spar.data.reply import End
from spar.data.text import one_line
from spar.facts import Fact, MessagePlace
from spar.state.apply import SessionState
from spar.types import Perception, QueueMode, replace

#: The queue of a message, by its mode and by whether its session has a current or waiting run.
PLACES: Final[dict[tuple[QueueMode, bool], MessagePlace]] = {
    ("followup", False): "queue",
    ("followup", True): "queue",
    ("steer", False): "queue",
    ("steer", True): "steer",
    ("collect", False): "queue",
    ("collect", True): "collect",
    ("interrupt", False): "queue",
    ("interrupt", True): "front",
}
#: The most waiting messages for `runs.cap` = "auto": many where each waits its turn, few where people want it at once.
USUAL_CAP: Final[dict[QueueMode, int]] = {"followup": 1000, "steer": 20, "collect": 20, "interrupt": 20}
#: Characters in the gist of a dropped message.
_GIST: Final = 160


class RoomRules(Struct, frozen=True):
    """Rules about the room of a session: the most messages that wait, and which go beyond (`runs.cap`, `runs.drop`)."""

    cap: int | Literal["auto"] = "auto"
    drop: Literal["old", "new", "summarize"] = "summarize"


def place(state: SessionState, run: str, mode: QueueMode, room: RoomRules) -> list[Fact]:
    """Return the facts about a message that was accepted as this run: what makes room for it, and where it waits.

    It may wait already, as one that another process accepted does before its mode is known.
    """
    key, following = state.key, list[Fact]()
    cap = USUAL_CAP[mode] if room.cap == "auto" else room.cap
    waiting, is_at_work = len(state.waiting) - (run in state.waiting), bool(state.run or state.interrupted_runs)
    excess = waiting + len(state.steers) - (run in state.steers) - cap + 1
    superseded = state.interrupting if mode == "interrupt" and state.interrupting != run else ""
    if excess > 0:
        if room.drop == "new":
            return [facts.MessageDropped(session=key, run=run), _ended(key, run, cap, "it was not taken")]
        is_summed_up = room.drop == "summarize"
        what = "what it said is summed up for the next run" if is_summed_up else "it went"
        going = list(islice((other for other in chain(state.waiting, state.steers) if other != run), excess))
        for other in going:
            summary = gist(state.runs[other].message) if is_summed_up else None
            following += [facts.MessageDropped(session=key, run=other, gist=summary), _ended(key, other, cap, what)]
        if superseded in going:
            superseded = ""
        steers = list(islice((steer for steer in state.steers if steer != run), max(0, excess - waiting), None))
        waiting = max(0, waiting - excess)
        if not (waiting or is_at_work):
            following += [facts.MessagePlaced(session=key, run=other, place="queue") for other in steers]
            waiting += len(steers)
    if superseded:
        following.append(facts.RunFinished(session=key, run=superseded, end=End("error", "superseded")))
        waiting -= 1
    is_busy = is_at_work or waiting > 0
    queue = PLACES[mode, is_busy]
    outcome: Literal["", "queued", "interrupting"] = "queued" if is_busy else ""
    if queue == "front" and is_at_work:
        outcome = "interrupting"
    following.append(facts.MessagePlaced(session=key, run=run, place=queue, is_interrupting=mode == "interrupt",
                                         outcome=outcome))  # fmt: skip
    return following


def gist(message: Perception) -> Perception:
    """Return the gist of a dropped message."""
    return replace(message, content=one_line(message.text, _GIST), attributes={}, evidence=())


def _ended(key: str, run: str, cap: int, what: str) -> Fact:
    error = f"dropped: {cap} messages of its session waited (runs.cap), {what}"
    return facts.RunFinished(session=key, run=run, end=End("error", error))


def run_before(state: SessionState) -> str:
    """Return the run that a session works on, or the first that was interrupted; "" for none."""
    if state.run or not state.interrupted_runs:
        return state.run
    pieces = chain(state.interrupted.values(), state.suspects.values())
    return next((piece.run for piece in pieces if piece.run), "")
