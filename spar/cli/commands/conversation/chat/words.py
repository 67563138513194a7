"""The commands of a conversation: lines that begin with a slash and a word."""

from __future__ import annotations

from typing import Final

from spar.cli.client import read_status
from spar.client.client import Client
from spar.operations.agent import LaneRow, status

#: The help of each command.
HELP: Final = {
    "/new, /reset": "begin the conversation anew: what was said before is not read any more",
    "/stop": "call the run in hand off (Ctrl-C does the same)",
    "/status": "what the agent is doing",
    "/model [NAME]": "the model of this conversation's messages; without NAME: which, with default: as configured",
    "/think [off|low|medium|high]": "how much the model thinks before it answers; with default: as configured",
    "/verbose": "tell what calls do, or no more",
    "/reasoning": "show what the model thinks, or no more (runs.reasoning)",
    "/help": "this list",
    "/quit": "leave; a run that goes on is not stopped (Ctrl-D does the same)",
}
#: Commands without arguments.
WITHOUT_WORDS: Final = ("/new", "/reset", "/stop", "/status", "/verbose", "/reasoning", "/help", "/quit", "/exit")
#: Arguments that remove a choice.
USUAL: Final = ("default", "usual", "-")


def help_lines() -> list[str]:
    """Return the help, a line for each command."""
    width = max(map(len, HELP))
    return [f"{name:<{width}}  {meaning}" for name, meaning in HELP.items()]


def status_lines(client: Client, session: str) -> list[str]:
    """Return lines about the state of the agent and of this session, and the open alerts."""
    agent = read_status(client.answer(status))[0].agent
    lane = next((lane for lane in agent.lanes if lane.session == session), LaneRow(session, 0))
    phase = f"{lane.phase} for {lane.phase_seconds or 0.0:g} s" if lane.phase else "rests"
    return [
        f"agent {agent.name} is {agent.state or 'unknown'}; session {session}: {phase}",
        f"runs that go on: {agent.open_runs}; messages that wait: {lane.waiting}",
        *(f"{alert.severity}: {alert.message}" for alert in agent.alerts),
    ]
