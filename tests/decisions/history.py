"""A drawn history of a session without a process: commands come, cycles take the work, calls run, runs finish.

What follows is what the decisions return. What no decision returns is told in the order in which agents tell it: the
calls of a cycle, interruptions, answers of people.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, Literal, get_args

from spar import facts
from spar.data.reply import End
from spar.decisions.finish import Ending, Limits, consequence, ended_by_reset, finish, judge, retry
from spar.decisions.next_step import Turn, first_piece, next_step, piece_to_take, take
from spar.decisions.place import RoomRules, place
from spar.facts import Fact
from spar.records.journal import MOST_ATTEMPTS, Answer, Closing, DeadLetter, Doubt, Item, Unfinished
from spar.records.session import Reset
from spar.state.apply import SessionState, apply
from spar.state.work import CycleState
from spar.types import CALL_STATUSES, QUEUE_MODES, Action, Call, CallResult, CallStatus, Perception, replace

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
#: Statuses of calls that ended without an attempt, and of others.
NOT_STARTED: Final[tuple[CallStatus, ...]] = ("cancelled", "denied", "failed", "skipped")
ATTEMPTED: Final[tuple[CallStatus, ...]] = tuple(
    sorted({*CALL_STATUSES} - {*NOT_STARTED} | {"failed", "cancelled"}, key=str)
)


def doubt_of(id: str) -> Doubt:
    """Return a call in doubt."""
    cycle, _, call = id.rpartition("/")
    return Doubt(id, Call("look", id=call), cycle, at=START)


class History:
    """One drawn history of one session: its state, the facts so far, and what was sent. Facts are told together until
    `end` is called."""

    def __init__(self, draw: random.Random, session: str = "main", caps: tuple[Any, ...] = (2, 3, "auto")) -> None:
        self.draw, self.session = draw, session
        self.rooms = RoomRules(draw.choice(caps), draw.choice(("old", "new", "summarize")))
        self.state = SessionState(session)
        self.told: list[Fact] = []
        self.sent: list[str] = []
        self.pushed: list[str] = []
        self.cycles = 0
        self.attempts: dict[str, int] = {}

    def add(self, following: Iterable[Fact]) -> None:
        """Tell facts."""
        for fact in following:
            self.told.append(fact)
            if type(fact) is not facts.RunFinished:
                apply(self.state, fact)
                continue
            run = self.state.runs.get(fact.run)
            dropped = [self.state.piece(work) for work in run.pieces] if run is not None else []
            apply(self.state, fact)
            self.tell(facts.RunAnswered, run=fact.run, answer=None)
            for piece in dropped:
                if piece is not None and piece.cycle is not None:
                    self.tell(facts.CycleWritten, cycle=piece.work, closing=Closing("interrupted", done=piece.items))

    def tell(self, kind: type[Fact], **fields: object) -> None:
        """Tell one fact."""
        self.add([kind(session=self.session, **fields)])

    def end(self) -> None:
        """Note that the next facts are told apart from those before."""

    def chance(self, share: float) -> bool:
        """Return whether something happens that happens to this share."""
        return self.draw.random() < share

    # -- commands

    def submit(self) -> None:
        """Send a message."""
        run = f"{self.session}-run-{len(self.sent)}"
        self.sent.append(run)
        message = Perception(run, id=f"m-{run}", session=self.session, trust=self.draw.choice(("trusted", "untrusted")))
        item = Item(run, message, "run", self.session)
        self.tell(facts.WorkAccepted, item=item)
        self.tell(facts.MessageAccepted, item=item)
        self.add(place(self.state, run, self.draw.choice(QUEUE_MODES), self.rooms))

    def push(self) -> None:
        """Push a perception."""
        id = f"{self.session}-p-{len(self.pushed)}"
        self.pushed.append(id)
        perception = Perception("p", id=id, session=self.session)
        self.tell(facts.WorkAccepted, item=Item(id, perception, session=self.session))
        self.tell(facts.PerceptionAccepted, perception=perception)

    def abort(self) -> None:
        """End a run, perhaps one that is part of another."""
        if self.state.runs:
            self.add(finish(self.state, self.draw.choice(list(self.state.runs)), End("error", "aborted")))

    def reset(self) -> None:
        """End the conversation, and all its runs with it."""
        ended = ended_by_reset(self.state)
        for run in [run for run in ended.runs if not self.state.runs[run].into]:
            self.add(finish(self.state, run, End("error", "reset")))
        self.tell(facts.ConversationReset, reset=Reset("reset", self.session, 1, START), cut=ended.cut)

    def come_due(self) -> None:
        """End the wait of failed work."""
        for item in list(self.state.retries)[:1]:
            self.tell(facts.WorkHandedOut, work=item)

    def decide(self) -> None:
        """Answer for a call in doubt and for work that was put aside; let a detached call end."""
        for doubt in list(self.state.doubts)[:1]:
            answer = self.draw.choice(get_args(Answer))
            self.tell(facts.DoubtAnswered, doubt=replace(doubt_of(doubt), answer=answer))
            if answer == "again":
                self.hand_out_cycle(f"again/{doubt}")
        for item in list(self.state.put_aside)[:1]:
            if is_tried_again := self.chance(0.5):
                self.attempts.pop(item, None)
                self.tell(facts.WorkChanged, item=Item(item, Perception("p", id=item), session=self.session))
                self.tell(facts.WorkHandedOut, work=item)
            letter = DeadLetter(item, Item(item, Perception("p", id=item), session=self.session), START, "it failed")
            self.tell(facts.LetterAnswered, letter=letter, is_tried_again=is_tried_again)
        for detached in list(self.state.detached)[:1]:
            cycle, _, call = detached.partition("/")
            self.tell(facts.CallAttached, cycle=cycle, call=call)

    # -- cycles

    def hand_out_cycle(self, cycle: str, run: str = "", items: tuple[str, ...] = ()) -> None:
        """Hand out a cycle that is to be continued."""
        self.tell(facts.WorkHandedOut, work=cycle, run=run, cycle=Unfinished(cycle, self.session, items=items))

    def cycle(self) -> None:
        """Begin a cycle if there is work for one, carry out a plan in most, and close it."""
        self.cycles += 1
        cycle, state = f"{self.session}-cycle-{self.cycles}", self.state
        turn = Turn(may_begin=self.chance(0.8), quiet=0.0 if self.chance(0.8) else 1.0)
        piece = piece_to_take(state, turn)
        has_work = next_step(state, turn) in ("begin", "continue")
        before = len(self.told)
        if piece is None:
            self.add(take(state, cycle, turn, lambda: f"overflow-{self.cycles}"))
        else:
            self.tell(facts.WorkTaken, cycle=cycle, run=piece.run, work=piece.work, items=piece.items)
            if piece.run and not state.run:
                self.tell(facts.RunBegan, run=piece.run)
        assert has_work == (len(self.told) > before), "the next step says whether a cycle has work"
        self.end()
        if has_work:
            self._carry_out(cycle)

    def notice(self) -> None:
        """Have a sensor notice something, in a cycle that takes no other work."""
        if next_step(self.state, Turn()) == "rest":
            self.cycles += 1
            cycle = f"{self.session}-cycle-{self.cycles}"
            self.tell(facts.CycleOpened, cycle=cycle)
            self.end()
            self._act(cycle)
            self._close(cycle, "acting", "well")

    def _carry_out(self, cycle: str) -> None:
        """Plan, act, and close a cycle; or end it before that."""
        state = self.state
        assert (opened := state.cycle) is not None  # noqa: RUF018
        piece = opened.piece
        kind: Literal["", "item", "cycle"] = "" if piece is None else "cycle" if piece.cycle is not None else "item"
        ending = self.draw.choice(("well", "well", "well", "well", *get_args(Ending)))
        progress = self.draw.choice(("noticing", "planning", "acting", "acting", "acting"))
        if kind == "item" and self.chance(0.7):  # what failed once often fails again
            ending, progress = "failed", "planning"
        if progress == "acting":
            self.tell(facts.CycleOpened, cycle=cycle, run=state.run, items=opened.items)
            self.end()
            self._act(cycle)
        what = consequence(progress, ending, kind)
        if what == "again":
            self.tell(facts.CycleClosed, cycle=cycle, is_put_back=True)
            return
        self._close(cycle, progress, ending, opened.items if what == "done" else ())
        if what == "next start":
            items = [state.items[item] for item in opened.items if item in state.items]
            self.tell(facts.WorkLeft, items=opened.items)
            for item in items:
                self.tell(facts.WorkChanged, item=item)
            if progress == "acting" or (kind == "cycle" and progress != "noticing"):
                self.hand_out_cycle(cycle, state.run, opened.items)
            else:
                for item in opened.items:
                    run = item if item in state.runs else ""
                    self.tell(facts.WorkHandedOut, work=item, run=run, is_suspect=self.chance(0.3))
        elif what == "later":
            for item in opened.items:
                if item not in self.sent:
                    self.attempts[item] = self.attempts.get(item, 0) + 1
                    work = Item(item, Perception("p", id=item), session=self.session, attempts=self.attempts[item])
                    self.add([retry(work, START)])

    def _act(self, cycle: str) -> None:
        """Carry out some calls."""
        planned = ("1", "2", "3")[: self.draw.randint(0, 3)]
        is_streamed = self.chance(0.5)
        calls = tuple(Call("look", id=call) for call in planned)
        self.tell(facts.Planned, cycle=cycle, action=Action(() if is_streamed else calls, id=cycle))
        for call in planned:
            if is_streamed:
                self.tell(facts.CallsPlanned, cycle=cycle, calls=(Call("look", id=call),))
            self.end()
            match self.draw.choice(("attempt", "attempt", "not started", "parked", "detached", "left")):
                case "attempt":
                    self.tell(facts.AttemptStarted, cycle=cycle, call=call, attempt=1, effect="once")
                    self._end_call(cycle, call, (*ATTEMPTED, ""))
                case "not started":
                    self._end_call(cycle, call, NOT_STARTED)
                case "parked":  # one that cannot be stored until its answer is denied
                    self._end_call(cycle, call, ("skipped",), "parked")
                    self._end_call(cycle, call, ("", "denied"))
                case "detached":
                    self.tell(facts.AttemptStarted, cycle=cycle, call=call, attempt=1, effect="once")
                    self.tell(facts.CallDetached, cycle=cycle, action=Action((Call("look", id=call),)), effect="once")
                    self.tell(facts.CallEnded, cycle=cycle, result=CallResult(Call("look", id=call), "ok", "detached"))
                    self.end()
                    if self.chance(0.3):
                        status = self.draw.choice(("ok", "failed", "in_doubt"))
                        self.tell(facts.CallEnded, cycle=cycle, result=CallResult(Call("look", id=call), status))
                        self.tell(facts.CallAttached, cycle=cycle, call=call)
                        self.end()
        if self.state.run and self.chance(0.3):
            self.tell(facts.Spent, run=self.state.run, amounts={"requests": 1})

    def _end_call(self, cycle: str, call: str, statuses: Iterable[CallStatus | Literal[""]], reason: str = "") -> None:
        """End a call with one of these statuses; with "" it stays as it is."""
        self.end()
        if status := self.draw.choice(sorted(statuses)):
            self.tell(facts.CallEnded, cycle=cycle, result=CallResult(Call("look", id=call), status, reason))
            self.end()

    def _close(self, cycle: str, progress: str, ending: Ending, items: tuple[str, ...] = ()) -> None:
        """Close a cycle; its run goes on or finishes. Args: items: the work that is done with it."""
        state = self.state
        done = tuple(item for item in items if item not in self.sent)
        self.tell(facts.CycleWritten, cycle=cycle, closing=Closing("acted", done=done))
        run, current = state.run, state.cycle or CycleState(cycle)
        is_cut = ending in ("stopped", "broken", "called off")
        plan = "cut" if is_cut else "made" if progress == "acting" else "failed" if ending == "failed" else "deferred"
        fact = facts.CycleClosed(
            session=self.session, cycle=cycle, run=run, plan=plan, requests=1, calls=len(current.started),
            answers=self.chance(0.5), has_failed=self.chance(0.2),
            error="aborted" if ending == "called off" else "not now",
        )  # fmt: skip
        if is_cut and ending != "called off":
            fact = facts.CycleClosed(session=self.session, cycle=cycle, run=run, plan="cut")
        ended = judge(state.runs[run], fact, 0.0, Limits(patience=1.0)) if run else None
        self.add([fact])
        for id, end in current.ended.items():
            if end.status == "in_doubt" or (end.status == "timeout" and self.chance(0.5)):
                self.tell(facts.CallDoubted, doubt=doubt_of(f"{cycle}/{id}"))
        if ended is not None:
            self.add(finish(state, run, ended))

    # -- all together

    def step(self) -> None:
        """Play one command or cycle."""
        commands = (self.abort, self.come_due, self.decide, self.notice, self.push, self.push)
        rare = (self.reset,) if self.chance(0.2) else ()
        self.draw.choice((*commands, *rare, *(self.submit,) * 3, *(self.cycle,) * 6))()
        self.end()

    def check(self) -> None:
        """Check that each open run, and each perception that is not done, is in one place, and that few wait."""
        state = self.state
        pieces = list(state.pieces)
        places = [*state.waiting, *state.steers, *([state.run] if state.run else []),
                  *(run for run, value in state.runs.items() if value.into),
                  *(piece.run for piece in pieces if piece.run and piece.run != state.run)]  # fmt: skip
        assert len(places) == len(state.runs)
        assert state.runs.keys() == {*places}
        assert state.cycle is None or state.cycle.run in ("", state.run)
        if self.rooms.cap != "auto":
            assert len(state.waiting) + len(state.steers) <= max(self.rooms.cap, 1)
        homes = [*state.pushed, *state.retries, *state.put_aside,
                 *(piece.work for piece in pieces if piece.cycle is None and not piece.run)]  # fmt: skip
        assert len(homes) == len({*homes})
        of_pieces = [item for piece in pieces for item in piece.items]
        assert state.items.keys() == {*state.pushed, *state.runs, *state.retries, *of_pieces}
        assert all(state.items[retried].attempts < MOST_ATTEMPTS for retried in state.retries)
        assert state.interrupted_runs == sum(bool(piece.run) for piece in pieces)
        if next_step(state, Turn()) == "rest":
            assert [state.run, *state.pushed, *state.waiting] == [""]
            assert first_piece(state, lambda work: True) is None
