"""Earlier messages of a session and the answers to them, from the store; shown at the beginning of a conversation."""

from __future__ import annotations

from typing import Any

from spar.cli.context import Options, from_store, write
from spar.data.text import one_line, printable


def earlier(options: Options, session: str, number: int) -> list[dict[str, Any]]:
    """Return the last messages of a session and the answers to them, oldest first; what was before a reset is not."""
    agent = options.load("agent.name").settings.agent.name

    async def ask(store: Any) -> Any:
        from spar.ports.optional import offers
        from spar.ports.store import KeepsTranscripts

        if not offers(store, KeepsTranscripts):
            return []
        return await store.transcripts.tail(agent, session, number * 20)

    entries: list[dict[str, Any]] = from_store(options, ask)
    resets = [place for place, each in enumerate(entries) if each["kind"] == "reset"]
    entries = entries[resets[-1] + 1 :] if resets else entries
    said = [each for each in entries if each["kind"] in ("user", "end") and _text(each)]
    users = [place for place, each in enumerate(said) if each["kind"] == "user"]
    return said[users[-number] :] if number and len(users) >= number else said if number else []


def show_earlier(entries: list[dict[str, Any]]) -> None:
    """Print what was said before."""
    for entry in entries:
        text = printable(_text(entry))
        write(f"> {one_line(text, 500)}" if entry["kind"] == "user" else text)


def messages_of(entries: list[dict[str, Any]]) -> list[str]:
    """Return what people have said, a line each."""
    return [one_line(_text(each), 500) for each in entries if each["kind"] == "user"]


def _text(entry: dict[str, Any]) -> str:
    return str(entry["body"].get("text" if entry["kind"] == "user" else "reply") or "")
