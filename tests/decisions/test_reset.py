"""Work that ends with a conversation: its runs but no command, and of its cycle what must not be answered again."""

from __future__ import annotations

from spar import facts
from spar.decisions.finish import Ended, ended_by_reset
from spar.facts import Fact
from spar.records.journal import Item, Unfinished
from spar.state.apply import SessionState, fold
from spar.types import Perception

SEEN = Perception("disk full", id="p")


def message(run: str, **attributes: object) -> list[Fact]:
    said = Perception(run, id=f"m-{run}", attributes=attributes)
    return [
        facts.MessageAccepted(session="main", item=Item(run, said, "run")),
        facts.MessagePlaced(session="main", run=run, place="queue"),
    ]


def state_of(*following: Fact) -> SessionState:
    return fold("main", following)


def begun(*, interrupted: Unfinished | None = None) -> list[Fact]:
    """A run is current, another has joined it; the cycle noticed the messages of both, and what a sensor saw."""
    perceptions = (Perception("a", id="m-a"), Perception("b", id="m-b"), SEEN)
    work = "" if interrupted is None else interrupted.cycle_id
    handed_out = [facts.WorkHandedOut(session="main", work=work, run="a", cycle=interrupted)] if interrupted else []
    return [
        *message("a"), *message("b"), *handed_out,
        facts.RunBegan(session="main", run="a"),
        facts.MessageAbsorbed(session="main", run="b", into="a"),
        facts.WorkTaken(session="main", cycle="c", run="a", work=work),
        facts.CycleOpened(session="main", cycle="c", run="a", items=("a",), perceptions=perceptions),
    ]  # fmt: skip


def test_all_runs_end_but_a_command_goes_on() -> None:
    state = state_of(*message("a"), *message("do", command="stop"), *message("b"))
    assert ended_by_reset(state) == Ended(("a", "b"))
    assert ended_by_reset(SessionState("main")) == Ended()


def test_a_cycle_of_a_run_is_cut_off_to_what_sensors_noticed() -> None:
    ended = ended_by_reset(state_of(*begun()))
    assert ended.runs == ("a", "b")
    assert (ended.cut.cycle_id, ended.cut.perceptions, ended.cut.run_id) == ("c", (SEEN,), "a")


def test_a_cycle_that_continues_an_earlier_one_is_cut_off_as_that_one() -> None:
    earlier = Unfinished("c", "main", (SEEN,), ("a",), run_id="a", attempts=2)
    ended = ended_by_reset(state_of(*begun(interrupted=earlier)))
    assert ended.cut == earlier


def test_a_cycle_without_a_run_of_the_conversation_goes_on() -> None:
    state = state_of(*message("a"), facts.CycleOpened(session="main", cycle="c", perceptions=(SEEN,)))
    assert ended_by_reset(state) == Ended(("a",))
    not_opened = state_of(*begun()[:-1])
    assert ended_by_reset(not_opened).cut is None
