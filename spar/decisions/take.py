"""Work of the next cycle of a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spar import facts
from spar.decisions.next_step import Turn, may_begin_run
from spar.facts import Fact
from spar.state.work import SessionState, least_trust
from spar.types import Perception, replace


def take(state: SessionState, cycle: str, turn: Turn, new_id: Callable[[], str]) -> list[Fact]:
    """Return the facts about the work that a cycle takes without interrupted work: the waiting perceptions, and its
    run, which begins if none is current, with the messages that join it.

    Args: new_id: returns an id for the message that tells of dropped ones.
    """
    key, following, run = state.key, list[Fact](), state.run
    dropped = state.dropped
    if state.waiting and turn.may_begin and not turn.quiet and may_begin_run(state):
        run, *others = _together(state) if len(state.waiting) > 1 else state.waiting
        following.append(facts.RunBegan(session=key, run=run))
        for other in others:
            absorbed = facts.MessageAbsorbed(session=key, run=other, into=run, outcome="collected", is_new=False)
            following.append(absorbed)
        if others:
            message = collected([state.runs[joining].message for joining in (run, *others)])
            following.append(facts.MessagesJoined(session=key, run=run, message=message))
        if dropped:
            following.append(facts.DroppedTold(session=key, run=run, message=overflow(dropped, key, new_id)))
            dropped = ()
    if run and state.steers:
        following += [facts.MessageAbsorbed(session=key, run=other, into=run) for other in state.steers]
        if dropped:
            following.append(facts.DroppedTold(session=key, run=run, message=overflow(dropped, key, new_id)))
    items = (*((run,) if run else ()), *state.pushed)
    if items:
        following.append(facts.WorkTaken(session=key, cycle=cycle, run=run, items=items, is_stepped=turn.is_stepped))
    return following


def _together(state: SessionState) -> list[str]:
    """Return the next run, with the collected messages that become one with it. Messages of another trust do not."""
    together: list[str] = []
    for run_id in state.waiting:
        run, first = state.runs[run_id], state.runs[together[0]] if together else None
        if first is not None:
            is_joining = first.place == run.place == "collect" and first.message.trust == run.message.trust
            if not is_joining:
                break
        together.append(run_id)
    return together


def collected(messages: Sequence[Perception]) -> Perception:
    """Return one message that contains all collected ones."""
    blocks = [f"---\nQueued #{number}\n{message.text}" for number, message in enumerate(messages, 1)]
    text = "\n".join(["[Queued messages while agent was busy]", *blocks])
    return replace(messages[0], content=text, evidence=tuple(messages))


def overflow(dropped: Sequence[Perception], session: str, new_id: Callable[[], str]) -> Perception:
    """Return a message that summarizes dropped ones. Its trust is that of the least trusted of them."""
    lines = [f"- {message.text}" for message in dropped]
    text = "\n".join([f"[Queue overflow] Dropped {len(lines)} messages due to cap.", *lines])
    trust = least_trust(dropped)
    return Perception(text, source="runs", kind="message.dropped", id=new_id(), session=session, trust=trust)
