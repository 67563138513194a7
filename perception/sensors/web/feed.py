"""Sensor that requests a feed (RSS, Atom) repeatedly, and reports each new entry.

An entry is recognised by its id, else its link, else its title and time. The reported entries are the cursor: as many
as a feed may have, and some more. A separate process reads the feed (`feed_entries`), and its HTML becomes text.
"""

from __future__ import annotations

from typing import Annotated, Final

from annotated_types import Ge, Gt, Le

from perception.sensors.web.asking import Question, Terms, cursor_of, joined, version_of
from perception.sensors.web.feed_entries import MOST_ENTRIES, FeedContents, FeedEntry, check_library, read_feed
from perception.sensors.web.html import text_of
from spar.data.text import bounded
from spar.errors import TransientError
from spar.net.http_client import HttpAnswer
from spar.protocols import SensorContext
from spar.threads import Threads
from spar.types import Perception

#: Bound of the reported entries in the cursor.
_MOST_KNOWN: Final = 2 * MOST_ENTRIES


class FeedSensor:
    """New entries of a feed, as `feed.entry`.

    Args: url: of the feed; every: seconds between two requests; existing: also report the entries of the first answer;
    longest: characters of an entry's text; terms: hosts, headers, token and bounds.
    """

    def __init__(
        self,
        url: str,
        *,
        every: Annotated[float, Gt(0)] = 900.0,
        existing: bool = False,
        longest: Annotated[int, Ge(1), Le(1 << 16)] = 4000,
        terms: Terms | None = None,
    ) -> None:
        check_library()
        self.every = every
        accept = "application/atom+xml, application/rss+xml, application/xml;q=0.9, text/xml;q=0.8, */*;q=0.1"
        self._question = Question(url, terms or Terms(), accept=accept)
        self._existing, self._longest = existing, longest

    async def open(self, ctx: SensorContext) -> None:
        """Load the reported entries."""
        self._ctx, self._threads = ctx, Threads(f"sensor {ctx.name}", ctx.clock, limit=2)
        self._question.open(ctx.clock)
        cursor = ctx.cursor if isinstance(ctx.cursor, dict) and ctx.cursor.get("url") == self._question.url else {}
        known = cursor.get("known")
        self._version = version_of(cursor)
        self._known = dict.fromkeys(map(str, known)) if isinstance(known, list) else None
        self._problem = ""

    async def poll(self) -> list[Perception]:
        """Return the new entries, the oldest first. Raises: the errors of the request; TransientError for an answer
        that is not a feed."""
        news = await self._question.ask(self._version)
        if news is None:
            return []
        answer, version = news
        feed, texts = await self._threads.run(self._parsed, answer)
        known = self._known
        noticed: dict[str, Perception] = {}
        marks = [_mark(entry) for entry in feed.entries]
        for entry, text, mark in reversed(list(zip(feed.entries, texts, marks, strict=True))):
            if mark not in noticed and (mark not in known if known is not None else self._existing):
                noticed[mark] = self._perception(feed, entry, text, mark)
        later = dict.fromkeys([*(old_mark for old_mark in known or () if old_mark not in set(marks)), *marks])
        self._known, self._version = dict.fromkeys(list(later)[-_MOST_KNOWN:]), version
        self._ctx.checkpoint(cursor_of(version, url=self._question.url, known=list(self._known)))
        self._tell(feed)
        return list(noticed.values())

    def _parsed(self, answer: HttpAnswer) -> tuple[FeedContents, list[str]]:
        """Return the contents of a feed and the text of each of its entries. Blocks."""
        feed = read_feed(answer.body, answer.headers.get("content-type", ""), answer.url)
        return feed, [text_of(entry.html) for entry in feed.entries]

    def _perception(self, feed: FeedContents, entry: FeedEntry, text: str, mark: str) -> Perception:
        title, (body, _) = text_of(entry.title), bounded(text, self._longest)
        content = "\n".join(filter(None, (title, body))) or entry.link or "an entry without words"
        attributes = {"title": title, "link": entry.link, "author": entry.author, "published": entry.published,
                      "feed": feed.title, "url": self._question.shown}  # fmt: skip
        return self._ctx.perception(content, "feed.entry", key=f"{self._question.mark} {mark}",
                                    subject=entry.link or f"feed {mark}", attributes=attributes)  # fmt: skip

    def _tell(self, feed: FeedContents) -> None:
        """Report, once, that a feed is broken or too long and only a part of it is read."""
        problem = feed.problem
        if feed.count > MOST_ENTRIES:
            problem = f"{feed.count} entries, {MOST_ENTRIES} are read; {problem}"
        if problem and problem != self._problem:
            error = TransientError(f"feed {self._question.shown} is read as far as it can be: {problem}")
            self._ctx.report_error(error, "skip")
        self._problem = problem


def _mark(entry: FeedEntry) -> str:
    name = entry.id or entry.link
    return joined([name] if name else [entry.title, entry.published])[:16]
