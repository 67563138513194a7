"""New entries of feeds: each once, as text, and nothing hostile gets in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perception.sensors.web import feed_entries
from perception.sensors.web.feed import FeedSensor
from spar.errors import ConfigError, TransientError
from spar.testing import check_sensor


def rss(*items: tuple[str, str, str]) -> str:
    said = "".join(
        f"<item><guid>{guid}</guid><link>https://example.org/{guid}</link><title>{title}</title>"
        f"<description><![CDATA[{text}]]></description></item>"
        for guid, title, text in items
    )
    return f'<?xml version="1.0"?><rss version="2.0"><channel><title>News</title>{said}</channel></rss>'


async def test_it_keeps_to_the_contract(server: Any) -> None:
    count = [0]
    server.put("/feed", rss())

    def provoke() -> None:
        count[0] += 1
        server.put("/feed", rss((str(count[0]), "t", "x")))

    await check_sensor(lambda: FeedSensor(f"{server.url}/feed", every=0.01), provoke=provoke, limit=60.0, grace=30.0)


async def test_new_entries_are_told_once_and_as_text(server: Any, asked: Any) -> None:
    old = ("1", "Old", "gone")
    server.put("/feed", rss(old), Content_Type="application/rss+xml", ETag='"a"')
    sensor = await asked.open(FeedSensor(f"{server.url}/feed"))
    assert await sensor.poll() == []

    server.put(
        "/feed", rss(("3", "Third", "c"), ("2", "Second &amp; best", "<p>it <b>works</b></p><script>x</script>"), old)
    )
    again = await asked.open(FeedSensor(f"{server.url}/feed"))
    second, third = await again.poll()

    assert 'if-none-match: "a"' in server.requests[-1].lower()
    assert second.text == "Second & best\nit works"
    assert (second.kind, second.subject, second.trust) == ("feed.entry", "https://example.org/2", "untrusted")
    assert (third.attributes["title"], third.attributes["feed"]) == ("Third", "News")
    server.put("/feed", rss(("3", "Third, changed", "c")))
    assert await again.poll() == []


async def test_what_is_there_at_first_is_told_where_it_is_wanted(server: Any, asked: Any) -> None:
    server.put("/feed", rss(("1", "One", ""), ("1", "One again", "")))
    sensor = await asked.open(FeedSensor(f"{server.url}/feed", existing=True))

    assert len(await sensor.poll()) == 1


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><rss version="2.0"><title>&b;</title></rss>'


async def test_what_is_hostile_or_no_feed_is_refused(server: Any, asked: Any) -> None:
    sensor = await asked.open(FeedSensor(f"{server.url}/feed"))
    for body, said in (
        (BOMB.encode(), "declares entities"), (BOMB.encode("utf-16"), "declares entities"),
        (b"just text", "is no feed"), (b"\x00\xff" * 1000, "is no feed"), (b"", "is no feed"),
    ):  # fmt: skip
        server.put("/feed", body)
        with pytest.raises(TransientError, match=said):
            await sensor.poll()


async def test_an_answer_that_names_a_file_of_this_machine_has_nobody_open_it(
    server: Any, asked: Any, tmp_path: Path
) -> None:
    (tmp_path / "feed.xml").write_text(rss(("1", "Private", "nobody else's business")))
    server.put("/feed", str(tmp_path / "feed.xml"))
    sensor = await asked.open(FeedSensor(f"{server.url}/feed", existing=True))

    with pytest.raises(TransientError, match="is no feed"):
        await sensor.poll()


async def test_a_broken_feed_is_read_as_far_as_it_can_be(server: Any, asked: Any) -> None:
    server.put("/feed", rss(("1", "One", "x")).replace("</channel></rss>", "<item><title>Half"))
    sensor = await asked.open(FeedSensor(f"{server.url}/feed", existing=True))

    noticed = await sensor.poll()

    assert "One" in noticed[-1].text or "One" in noticed[0].text
    assert "read as far as it can be" in asked.reported[0]["error"].message


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(ConfigError, match=r"pip install 'spar-agent\[feeds\]'"):
        feed_entries.check_library()
