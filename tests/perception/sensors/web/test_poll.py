"""Changes of what stands at an address: told once, also over restarts, within bounds."""

from __future__ import annotations

from typing import Any

import pytest

from perception.sensors.web.asking import Terms
from perception.sensors.web.poll import PollSensor
from spar.errors import ConfigError, PermanentError, TransientError
from spar.parts.registry import Registry
from spar.testing import check_sensor


async def test_it_keeps_to_the_contract(server: Any) -> None:
    count = [0]
    server.put("/", "0")

    def provoke() -> None:
        count[0] += 1
        server.put("/", str(count[0]))

    await check_sensor(lambda: PollSensor(f"{server.url}/", every=0.01), provoke=provoke, limit=20.0)


async def test_a_change_is_told_once_and_an_etag_is_sent_back(server: Any, asked: Any) -> None:
    server.put("/", "one", ETag='"v1"', Last_Modified="Mon, 01 Jan 2026 00:00:00 GMT")
    sensor = await asked.open(PollSensor(f"{server.url}/"))

    assert [each.text for each in await sensor.poll()] == ["one"]
    server.put("/", "", status="304 Not Modified")
    assert await sensor.poll() == []
    assert 'if-none-match: "v1"' in server.requests[-1].lower()
    assert "if-modified-since: mon, 01 jan 2026 00:00:00 gmt" in server.requests[-1].lower()

    again = await asked.open(PollSensor(f"{server.url}/"))  # the service was down meanwhile
    server.put("/", "two", ETag='"v2"')
    (change,) = await again.poll()
    assert (change.text, change.kind, change.trust) == ("two", "web.changed", "untrusted")
    assert change.attributes["before"] == "one"
    assert await again.poll() == []


async def test_only_what_a_pointer_leads_to_is_watched(server: Any, asked: Any) -> None:
    sensor = await asked.open(PollSensor(f"{server.url}/", pointer="/disks/0/used", first=False))
    for body, expected in (
        ('{"disks": [{"used": 0.5}], "at": 1}', []),
        ('{"disks": [{"used": 0.5}], "at": 2}', []),
        ('{"disks": [{"used": 0.9}], "at": 3}', [0.9]),
    ):
        server.put("/", body)
        assert [each.attributes["value"] for each in await sensor.poll()] == expected

    for body, said in (("{}", "has nothing at '/disks/0/used'"), ("{", "no JSON"), ("[" * 9999, "no JSON")):
        server.put("/", body)
        with pytest.raises(TransientError, match=said):
            await sensor.poll()


async def test_only_the_text_of_chosen_elements_is_watched(server: Any, asked: Any) -> None:
    sensor = await asked.open(PollSensor(f"{server.url}/", selector="td.state"))
    page = "<html><script>{n}</script><table><td class=state> all <b>is</b> well</td><td>{n}</td></table>"
    server.put("/", page.replace("{n}", "1"))
    assert [each.text for each in await sensor.poll()] == ["all is well"]
    server.put("/", page.replace("{n}", "2"))
    assert await sensor.poll() == []

    server.put("/", "<p>moved")
    with pytest.raises(TransientError, match=r"no element 'td\.state'"):
        await sensor.poll()
    server.put("/", "<div>" * 5000)
    with pytest.raises(TransientError, match="nested deeper"):
        await sensor.poll()


async def test_answers_are_bounded_and_failures_told(server: Any, asked: Any) -> None:
    sensor = await asked.open(PollSensor(f"{server.url}/", terms=Terms(max_bytes=100)))
    server.put("/", "x" * 101)
    with pytest.raises(TransientError, match="more than 100 bytes"):
        await sensor.poll()
    server.put("/", "busy", status="503 Service Unavailable", Retry_After="7")
    with pytest.raises(TransientError) as failed:
        await sensor.poll()
    assert failed.value.retry_after == 7
    assert asked.cursor is None


async def test_a_redirect_is_judged(server: Any, asked: Any) -> None:
    for target, said in (("http://169.254.169.254/latest", "metadata"), ("http://127.0.0.1:1/", "not allowed")):
        server.put("/", "", status="302 Found", Location=target)
        sensor = await asked.open(PollSensor(f"{server.url}/"))
        with pytest.raises(PermanentError, match=said):
            await sensor.poll()
    server.put("/", "", status="302 Found", Location=f"{server.url}/there")
    server.put("/there", "found")
    sensor = await asked.open(PollSensor(f"{server.url}/", terms=Terms(token="secret-token")))
    assert [each.text for each in await sensor.poll()] == ["found"]
    assert "authorization: bearer secret-token" in server.requests[0].lower() or len(server.requests) > 1


async def test_a_name_that_leads_into_the_own_network_is_asked_only_where_that_is_wanted(
    server: Any, asked: Any
) -> None:
    server.put("/", "inside")
    named = server.url.replace("127.0.0.1", "127.1")  # no address as it stands: the resolver makes one of it

    sensor = await asked.open(PollSensor(f"{named}/"))
    with pytest.raises(PermanentError, match=r"'127\.1' leads to 127\.0\.0\.1, .* not allowed without private = true"):
        await sensor.poll()
    assert server.requests == []

    for terms in (Terms(private=True), Terms(allow=(named.removeprefix("http://"),))):
        asked.cursor = None
        sensor = await asked.open(PollSensor(f"{named}/", terms=terms))
        assert [each.text for each in await sensor.poll()] == ["inside"]


async def test_secrets_in_the_query_of_an_address_are_shown_nowhere(server: Any, asked: Any) -> None:
    server.put("/", "new")
    sensor = await asked.open(PollSensor(f"{server.url}/?id=hunter22&plainvalue"))

    (found,) = await sensor.poll()

    assert "id=hunter22&plainvalue" in server.requests[-1]
    assert found.attributes["url"] == f"{server.url}/?id=***&***"
    assert found.subject == f"{server.url}/?id=***&*** asked"
    assert not any(secret in repr(found) for secret in ("hunter22", "plainvalue"))
    server.put("/", "gone", status="404 Not Found")
    with pytest.raises(PermanentError) as failed:
        await sensor.poll()
    assert "hunter22" not in str(failed.value)
    sensor = await asked.open(PollSensor("http://127.0.0.1:1/?id=hunter22", terms=Terms(within=0.001)))
    with pytest.raises((TransientError, TimeoutError)) as failed_at_all:
        await sensor.poll()
    assert "hunter22" not in str(failed_at_all.value)


async def test_long_texts_are_cut_and_say_so(server: Any, asked: Any) -> None:
    server.put("/", "x" * 50)
    sensor = await asked.open(PollSensor(f"{server.url}/", longest=10))
    (found,) = await sensor.poll()
    assert found.text == "xxxxxxxxxx … 40 more characters left out"
    assert found.attributes["left_out"] == 40


@pytest.mark.parametrize(
    ("use", "options", "said"),
    [
        ("poll", {"url": "ftp://x"}, "url: 'ftp://x' must begin with http:// or https://"),
        ("poll", {"url": "http://"}, "has no host"),
        ("poll", {"url": "http://x", "pointer": "a"}, "no JSON pointer"),
        ("poll", {"url": "http://x", "selector": "[["}, "selector"),
        ("poll", {"url": "http://x", "selector": "a", "pointer": "/a"}, "either a pointer or a selector"),
        ("poll", {"url": "http://x", "terms": {"headers": {"host": "y"}}}, "cannot be set"),
        ("poll", {"url": "http://x", "terms": {"alow": []}}, "alow"),
        ("poll", {"url": "http://x", "every": 0}, "every"),
        ("feed", {"url": "x"}, "must begin with http"),
        ("prometheus", {"url": "http://x?y", "query": "up"}, "without a query"),
        ("prometheus", {"url": "http://x", "query": ""}, "query"),
        ("prometheus", {"url": "http://x", "query": "up", "tell": "some"}, "'all' or 'rare'"),
    ],
)
def test_wrong_options_say_what_is_wrong(use: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Registry().build("spar.sensors", ("sensors", 0), use, options)

    assert said in str(refused.value)
