"""Slots: few are used, the oldest work goes first, and a session that cannot use one is passed over once."""

from __future__ import annotations

import random

import pytest

from spar.decisions.next_step import Claim, Slots, ask, enqueue, fill


def test_a_free_slot_goes_to_the_only_session_and_otherwise_to_the_one_with_the_oldest_work() -> None:
    slots = Slots()
    claims = {"a": Claim(3.0), "b": Claim(1.0), "c": Claim(2.0)}
    assert ask(slots, "first", "", free=1)
    for name, claim in claims.items():
        assert not ask(slots, name, "", free=0)
        enqueue(slots, name, claim.since)

    slots.used -= 1
    assert not ask(slots, "late", "", free=1), "those that wait go first, in the order of their work"
    claims["late"] = Claim(0.5)
    enqueue(slots, "late", 0.5)

    granted = []
    for _ in range(5):
        granted += fill(slots, 1, claims.get)
        slots.used = 0
    assert granted == ["late", "b", "c", "a"]


def test_a_session_without_a_claim_leaves_and_one_whose_oldest_work_is_gone_waits_for_its_next() -> None:
    slots = Slots()
    for name, since in (("gone", 1.0), ("newer", 2.0), ("other", 3.0)):
        enqueue(slots, name, since)

    assert fill(slots, 2, {"newer": Claim(4.0), "other": Claim(3.0)}.get) == ["other", "newer"]
    assert not slots.waiting


def test_a_session_in_a_cycle_is_passed_over_during_that_cycle_and_no_other() -> None:
    slots = Slots()
    claims = {"standing": Claim(1.0, "cycle-1"), "a": Claim(2.0), "b": Claim(3.0)}
    assert not ask(slots, "standing", "cycle-1", free=1)
    for name, claim in claims.items():
        enqueue(slots, name, claim.since)

    assert fill(slots, 1, claims.get) == ["a"]
    assert slots.waiting == {"standing", "b"}
    slots.used, claims["standing"] = 0, Claim(1.0, "cycle-2")
    assert fill(slots, 1, claims.get) == ["standing"], "the next slot is reserved for it"
    slots.used, claims["standing"] = 0, Claim(1.0, "cycle-3")
    enqueue(slots, "standing", 1.0)
    assert fill(slots, 1, claims.get) == ["b"], "it is passed over again after it had one"


@pytest.mark.parametrize("seed", range(30))
def test_in_each_history_no_slot_is_lost_or_doubled_and_nobody_waits_beside_a_free_one(seed: int) -> None:
    draw, slots, limit = random.Random(seed), Slots(), 3
    claims: dict[str, Claim] = {}
    having: list[str] = []
    for now in range(200):
        name = f"s{draw.randrange(12)}"
        if draw.random() < 0.6:
            if name not in having and name not in slots.waiting:
                claims[name] = Claim(float(now), draw.choice(("", "", "cycle")))
                if ask(slots, name, claims[name].cycle, limit - slots.used):
                    having.append(name)
                else:
                    enqueue(slots, name, now)
        elif draw.random() < 0.3 and name not in having:
            claims.pop(name, None)  # its run was aborted
        elif having:
            having.remove(draw.choice(having))
            slots.used -= 1
        oldest = sorted((claims[session].since, session) for session in slots.waiting if session in claims)
        granted = fill(slots, limit, claims.get)
        passed = {session for session in slots.waiting if slots.passed_over.get(session)}
        assert granted == [session for _, session in oldest if session not in passed][: len(granted)]
        having += granted
        assert len(having) == len(set(having)) == slots.used <= limit
        assert slots.used == limit or slots.waiting <= passed
        assert len(slots.queue) == len(slots.waiting)
