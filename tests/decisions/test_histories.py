"""Whole histories of a session without a process: messages come, cycles take them, runs finish."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from spar import facts
from spar.decisions.place import RoomRules, place
from spar.decisions.take import Turn, take
from spar.facts import Fact
from spar.state.ledger import fold
from spar.state.work import SessionState
from spar.types import QUEUE_MODES, Perception

#: Drawn histories of the gate, and the steps of each.
HISTORIES, STEPS = 5_000, 40


class History:
    """One drawn history: the state, the facts so far, and the messages that were sent."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.rooms = RoomRules(self.draw.choice((2, 3, "auto")), self.draw.choice(("old", "new", "summarize")))
        self.state = SessionState("main")
        self.told: list[Fact] = []
        self.sent: list[str] = []
        self.cycles = 0

    def add(self, following: list[Fact]) -> None:
        fold("main", following, self.state)
        self.told += following

    def submit(self) -> None:
        run = f"run-{len(self.sent)}"
        self.sent.append(run)
        message = Perception(run, id=f"m-{run}", trust=self.draw.choice(("trusted", "untrusted")))
        self.add([facts.MessageAccepted(session="main", run=run, perception=message)])
        self.add(place(self.state, run, self.draw.choice(QUEUE_MODES), self.rooms))

    def push(self) -> None:
        self.add([facts.PerceptionAccepted(session="main", perception=Perception("p", id=f"p-{len(self.told)}"))])

    def cycle(self) -> None:
        self.cycles += 1
        turn = Turn(may_begin=self.draw.random() < 0.8, is_quiet=self.draw.random() < 0.8)
        following = take(self.state, f"cycle-{self.cycles}", turn)
        self.add([
            replaced(fact, f"overflow-{self.cycles}") if isinstance(fact, facts.DroppedTold) else fact
            for fact in following
        ])  # fmt: skip
        run = self.state.run
        self.add([facts.CycleClosed(session="main", cycle=f"cycle-{self.cycles}", outcome="acted", run=run,
                                    plan="made", requests=1)])  # fmt: skip
        if run and self.draw.random() < 0.5:
            self.finish(run)

    def finish(self, run: str) -> None:
        parts = self.state.runs[run].absorbed
        self.add([facts.RunFinished(session="main", run=each, status="ok") for each in (run, *parts)])
        if not self.state.run:
            self.add([facts.MessagePlaced(session="main", run=each, place="queue") for each in self.state.steers])

    def abort(self) -> None:
        if self.state.waiting:
            run = self.draw.choice(list(self.state.waiting))
            self.add([facts.MessageWithdrawn(session="main", run=run)])
            self.finish(run)


def replaced(fact: facts.DroppedTold, id: str) -> facts.DroppedTold:
    return facts.DroppedTold(session=fact.session, run=fact.run, message=Perception("dropped", id=id))


@pytest.mark.parametrize("part", range(4))
def test_in_each_history_every_message_finishes_once_and_waits_in_one_place(part: int) -> None:
    for seed in range(part, HISTORIES, 4):
        history = History(seed)
        steps = (history.submit, history.submit, history.cycle, history.push, history.abort)
        for _ in range(STEPS):
            history.draw.choice(steps)()
            state = history.state
            places = [*state.waiting, *state.steers, *([state.run] if state.run else []),
                      *(run for run, value in state.runs.items() if value.into)]  # fmt: skip
            assert sorted(places) == sorted(state.runs), seed
            if history.rooms.cap != "auto":
                assert len(state.waiting) + len(state.steers) <= history.rooms.cap, seed
        while history.state.runs or history.state.pushed:
            before = len(history.told)
            history.draw.random = lambda: 0.0  # type: ignore[method-assign]
            history.cycle()
            assert len(history.told) > before, seed
        finished = Counter(fact.run for fact in history.told if isinstance(fact, facts.RunFinished))
        assert finished == Counter(history.sent), seed


@pytest.mark.parametrize("part", range(4))
def test_what_a_message_said_is_shown_once_or_summed_up(part: int) -> None:
    for seed in range(part, HISTORIES, 4):
        history = History(seed)
        steps = (history.submit, history.submit, history.cycle)
        for _ in range(STEPS):
            history.draw.choice(steps)()
        gists = [fact.gist for fact in history.told if isinstance(fact, facts.MessageDropped)]
        assert all((gist is not None) == (history.rooms.drop == "summarize") for gist in gists), seed
        begun = {fact.run for fact in history.told if isinstance(fact, facts.RunBegan)}
        absorbed = {fact.run for fact in history.told if isinstance(fact, facts.MessageAbsorbed)}
        assert not begun & absorbed, seed
