"""Whole histories of two sessions without a process: messages come, cycles take them, runs finish."""

from __future__ import annotations

import random
from collections import Counter
from functools import reduce
from operator import or_
from typing import Any

import pytest
from msgspec.json import Decoder, Encoder

from spar import facts
from spar.facts import Fact
from spar.state.apply import ADDITIONS, fold
from tests.decisions.history import History

#: Drawn histories of the gate, and the steps of each.
HISTORIES, STEPS = 5_000, 30
#: Histories of which one is written as JSON and read again.
WRITTEN = 25


def test_in_each_history_all_work_is_in_one_place_until_it_is_done_and_every_message_finishes_once() -> None:
    for seed in range(HISTORIES):
        play(seed)


def play(seed: int) -> None:
    """Play one history of two sessions and check it; one of `WRITTEN` is written as JSON and read again."""
    draw = random.Random(seed)
    histories = [History(draw, session) for session in ("main", "other")]
    for _ in range(STEPS):
        history = draw.choice(histories)
        history.step()
        history.check()
    for history in histories:
        _drain(history)
        finished = Counter(fact.run for fact in history.told if isinstance(fact, facts.RunFinished))
        assert finished == Counter(history.sent), seed
        accepted = {fact.perception.id for fact in history.told if isinstance(fact, facts.PerceptionAccepted)}
        taken = {item for fact in history.told if isinstance(fact, facts.WorkTaken) for item in fact.items}
        assert accepted <= taken, seed
        begun = [fact.run for fact in history.told if isinstance(fact, facts.RunBegan)]
        absorbed = [fact.run for fact in history.told if isinstance(fact, facts.MessageAbsorbed)]
        assert len({*begun, *absorbed}) == len(begun) + len(absorbed), seed  # each message is shown once, or summed up
        if history.rooms.drop != "summarize":
            assert not any(fact.gist for fact in history.told if isinstance(fact, facts.MessageDropped)), seed
    if not seed % WRITTEN:
        _compare_written(histories)


def _drain(history: History) -> None:
    """Let all work be done, without further commands but those that people owe."""
    state = history.state
    for _ in range(1_000):
        if state.is_empty or not (state.runs or state.pushed or state.interrupted or state.suspects or state.retries
                                  or state.put_aside or state.doubts or state.detached):  # fmt: skip
            return
        history.come_due()
        history.decide()
        history.cycle()
        history.check()
    pytest.fail(f"work is left: {state}")


def _compare_written(histories: list[History]) -> None:
    """Compare each state with that of its facts as they are read from JSON."""
    kinds = list(ADDITIONS)
    decoder: Any = Decoder(reduce(or_, kinds))
    for history in histories:
        read: list[Fact] = [decoder.decode(Encoder().encode(fact)) for fact in history.told]
        assert fold(history.session, read) == fold(history.session, history.told) == history.state
