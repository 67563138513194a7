"""The pictures of `docs/explanation/states.md`; `make docs` writes the page, a test compares it.

The pictures of agents and approvals show the tables of their transitions. Sessions, messages, perceptions and calls
have none: facts change them. Their pictures show what happens in drawn histories: which label the state of a session
gives to each of its parts before and after the facts that are told together.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from spar.agent.lifecycle import FOLLOWS
from spar.decisions.place import PLACES
from spar.facts import Fact
from spar.records.approvals import TRANSITIONS
from spar.state.apply import ADDITIONS, SessionState
from spar.state.work import CycleState
from spar.types import CALL_STATUSES, QUEUE_MODES
from tests.decisions.history import History
from tests.docs.overview import KINDS, decided
from tests.docs.page_parts import begin, code, table

PAGE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "states.md"

#: What does not exist yet, or not any more.
NOTHING: Final = "[*]"
#: Transitions with the facts of each, as they are told together.
Edges = Mapping[tuple[str, str], Iterable[str]]

#: Drawn histories and the steps of each. Of twice as many none shows another transition.
HISTORIES, STEPS = 250, 60

#: The title of each picture, and what is said of it.
ABOUT: Final = {
    "agents": """Agent
The table `FOLLOWS` of `spar.agent.lifecycle`. [The agent](../reference/agent.md#control) says what each state
allows.""",
    "sessions": """Session
A session *has work* while messages or perceptions wait, a run is current, or interrupted work waits. It *waits for a
retry* if nothing but failed work is left. Otherwise it *rests* until a sensor, a message or a person wakes it.""",
    "messages": """Message and run
A message becomes a run when it is accepted. The run *waits* for its turn, is *current*, or is *part of another run*.
It is *interrupted* if its process ended in a cycle: that work goes first.""",
    "perceptions": """Perception
A perception waits for the next cycle of its session. If that fails before it has a plan, the perception waits for a
retry, and then has a cycle of its own (*interrupted*). After three attempts it is a dead letter.""",
    "calls": """Call
A call that *waits for people* continues in a cycle after their answer. One that *runs on* was detached: no cycle waits
for it. One that is *in doubt* may have had its effect; a person says what became of it.""",
    "approvals": """Approval
The table `TRANSITIONS` of `spar.records.approvals`. [How approvals work](approvals.md) says what leads to each
state.""",
}


# -- labels: what the state of a session says about each of its parts


def sessions(state: SessionState) -> dict[str, str]:
    """Return what a session does next."""
    if state.cycle is not None:
        return {state.key: "in a cycle"}
    has_work = state.run or state.pushed or state.waiting or state.interrupted or state.suspects
    return {state.key: "has work" if has_work else "waits for a retry" if state.retries else "rests"}


def messages(state: SessionState) -> dict[str, str]:
    """Return how far each message has come."""
    labels = {}
    for id, run in state.runs.items():
        is_current = id == state.run or (state.cycle is not None and state.cycle.run == id)
        labels[id] = (
            "part of another run" if run.into
            else "interrupted" if run.pieces
            else "current" if is_current
            else "waits for the current run" if run.place == "steer"
            else "waits" if run.place
            else "accepted"
        )  # fmt: skip
    return labels


def perceptions(state: SessionState) -> dict[str, str]:
    """Return what becomes of each perception."""
    labels = dict.fromkeys(state.pushed, "waits")
    labels |= {
        work: "interrupted"
        for work, piece in {**state.interrupted, **state.suspects}.items()
        if piece.cycle is None and not piece.run
    }
    labels |= dict.fromkeys(state.retries, "waits for a retry") | dict.fromkeys(state.put_aside, "put aside")
    if state.cycle is not None:
        labels |= {item: "in a cycle" for item in state.cycle.items if item not in state.runs}
    return labels


def calls(state: SessionState) -> dict[str, str]:
    """Return how far each call has come."""
    cycle = state.cycle
    labels = {} if cycle is None else {f"{cycle.id}/{call.id}": _call(cycle, call.id) for call in cycle.calls}
    return labels | dict.fromkeys(state.detached, "runs on") | dict.fromkeys(state.doubts, "in doubt")


def _call(cycle: CycleState, id: str) -> str:
    if (end := cycle.ended.get(id)) is not None:
        return "waits for people" if end.reason == "parked" else end.status.replace("_", " ")
    return "running" if id in cycle.started else "planned"


LABELS: Final[dict[str, Callable[[SessionState], dict[str, str]]]] = {
    "sessions": sessions,
    "messages": messages,
    "perceptions": perceptions,
    "calls": calls,
}


# -- drawn histories


class Play(History):
    """Drawn history whose transitions are noted in `seen`, by picture."""

    def __init__(self, seed: int, seen: Mapping[str, dict[tuple[str, str], set[str]]]) -> None:
        super().__init__(random.Random(seed), caps=(1, 2, "auto"))
        self._seen, self._chains = seen, dict[tuple[str, str], tuple[str, list[str]]]()
        self._labels = {picture: labels_of(self.state) for picture, labels_of in LABELS.items()}

    def add(self, following: Iterable[Fact]) -> None:
        """Tell facts, and note which labels each changes."""
        for fact in following:
            super().add([fact])
            for picture, labels_of in LABELS.items():
                before, after = self._labels[picture], labels_of(self.state)
                for key in before.keys() | after.keys():
                    if (label := before.get(key, NOTHING)) != after.get(key, NOTHING):
                        self._chains.setdefault((picture, key), (label, []))[1].append(type(fact).__name__)
                self._labels[picture] = after

    def end(self) -> None:
        """Note the transitions by the facts since the last end."""
        for (picture, key), (before, kinds) in self._chains.items():
            after = self._labels[picture].get(key, NOTHING)
            if before != after:
                self._seen[picture].setdefault((before, after), set()).add(", ".join(dict.fromkeys(kinds)))
        self._chains.clear()


def played(histories: int = HISTORIES) -> dict[str, dict[tuple[str, str], set[str]]]:
    """Return the transitions of drawn histories by picture."""
    seen: dict[str, dict[tuple[str, str], set[str]]] = {picture: {} for picture in LABELS}
    for seed in range(histories):
        play = Play(seed, seen)
        for _ in range(STEPS):
            play.step()
    return seen


# -- the page

ORDER: Final = ("agents", *LABELS, "approvals")


def text() -> str:
    """Return the page."""
    edges: dict[str, Edges] = {**played()}
    for picture, follows in (("agents", FOLLOWS), ("approvals", TRANSITIONS)):
        edges[picture] = {(state, after): () for state, states in follows.items() for after in states}
    edges["agents"] = {(NOTHING, "created"): (), **edges["agents"]}
    edges["sessions"] = {(NOTHING, "rests"): (), **edges["sessions"]}
    edges["approvals"] = {(NOTHING, "pending"): (), **edges["approvals"]}
    lines = begin("states")
    for picture in ORDER:
        title, _, about = ABOUT[picture].partition("\n")
        lines += [f"## {title}", "", *about.splitlines(), "", *diagram(edges[picture]), ""]
        if picture == "messages":
            rows = [(code(mode), PLACES[mode, False], PLACES[mode, True]) for mode in QUEUE_MODES]
            heads = ("mode", "queue in an idle session", "queue while the session has a run")
            lines += ["The queue of a new message (`spar.decisions.place`):", "", *table(heads, rows), ""]
    told = {kind for seen in edges.values() for ways in seen.values() for way in ways for kind in way.split(", ")}
    changing = {kind.__name__ for kind in ADDITIONS}
    others = [code(kind) for kind in sorted(changing - told)]
    written = [code(kind) for kind in KINDS if kind not in changing and kind not in decided()["pause"]]
    of_agent = map(code, decided()["pause"])
    lines += [f"On no arrow, since they change only values: {', '.join(others)}.", "",
              f"In no state, only in the journal: {', '.join(written)}.", "",
              f"Of the agent: {', '.join(of_agent)}."]  # fmt: skip
    return "\n".join(lines) + "\n"


def diagram(edges: Edges) -> list[str]:
    """Return a state diagram. What has ended has no arrow: its state is the last one."""
    shown = {
        pair: together for pair, together in edges.items() if not (pair[0] in CALL_STATUSES and pair[1] == NOTHING)
    }
    names = dict.fromkeys(name for pair in sorted(shown) for name in pair if name != NOTHING)
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f'    state "{name}" as {_id(name)}' for name in names if " " in name]
    for (before, after), together in shown.items() if not any(shown.values()) else sorted(shown.items()):
        label = " or<br/>".join(sorted(together))
        lines.append(f"    {_id(before)} --> {_id(after)}" + (f": {label}" if label else ""))
    return [*lines, "```"]


def _id(name: str) -> str:
    return name if name == NOTHING else name.replace(" ", "_")


def main() -> None:
    """Write the page."""
    PAGE.write_text(text())


if __name__ == "__main__":
    main()
    sys.stdout.write("written: docs/explanation/states.md\n")
