"""The commands of a conversation: a slash and a word at the beginning of a line."""

from __future__ import annotations

from typing import Any, Final

from spar.cli.client import Client

#: Each command and what it does.
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
#: Commands that read no words behind them.
WITHOUT_WORDS: Final = ("/new", "/reset", "/stop", "/status", "/verbose", "/reasoning", "/help", "/quit", "/exit")
#: Words that take a choice back.
USUAL: Final = ("default", "usual", "-")


def help_lines() -> list[str]:
    """Return the commands, a line each."""
    width = max(map(len, HELP))
    return [f"{name:<{width}}  {meaning}" for name, meaning in HELP.items()]


def status_lines(client: Client, session: str) -> list[str]:
    """Return in a few lines what the agent is doing, and in this session."""
    found: list[str] = []
    for agent in client.get("/v1/status")["agents"]:
        lane: dict[str, Any] = next((each for each in agent["lanes"] if each["session"] == session), {})
        phase = f"{lane['phase']} for {lane['phase_seconds']:g} s" if lane.get("phase") else "rests"
        found.append(f"agent {agent['name']} is {agent['state']}; session {session}: {phase}")
        found.append(f"runs that go on: {agent['open_runs']}; messages that wait: {lane.get('waiting', 0)}")
        found += [f"{each['severity']}: {each['message']}" for each in agent["alerts"]]
    return found
