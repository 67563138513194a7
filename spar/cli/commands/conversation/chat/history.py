"""Earlier messages of a session and their answers, from the store, to be shown when a conversation begins."""

from __future__ import annotations

from typing import Any

from spar.cli.context import Options, from_store, write
from spar.data.text import one_line, printable


def earlier(options: Options, session: str, number: int) -> list[dict[str, Any]]:
    """Return the entries of the last messages of a session since its reset, and of their answers, oldest first.

    Args: number: the number of messages.
    """
    agent = options.load("agent.name").settings.agent.name

    async def ask(store: Any) -> Any:
        from spar.ports.optional import offers
        from spar.ports.store import KeepsTranscripts

        if not offers(store, KeepsTranscripts):
            return []
        return await store.transcripts.tail(agent, session, number * 20)

    entries: list[dict[str, Any]] = from_store(options, ask)
    resets = [place for place, entry in enumerate(entries) if entry["kind"] == "reset"]
    entries = entries[resets[-1] + 1 :] if resets else entries
    texts = [entry for entry in entries if entry["kind"] in ("user", "end") and _text(entry)]
    users = [place for place, entry in enumerate(texts) if entry["kind"] == "user"]
    return texts[users[-number] :] if number and len(users) >= number else texts if number else []


def show_earlier(entries: list[dict[str, Any]]) -> None:
    """Print earlier messages and answers."""
    for entry in entries:
        text = printable(_text(entry))
        write(f"> {one_line(text, 500)}" if entry["kind"] == "user" else text)


def messages_of(entries: list[dict[str, Any]]) -> list[str]:
    """Return the messages of people, each as one line."""
    return [one_line(_text(entry), 500) for entry in entries if entry["kind"] == "user"]


def _text(entry: dict[str, Any]) -> str:
    return str(entry["body"].get("text" if entry["kind"] == "user" else "reply") or "")
