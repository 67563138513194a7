"""Who may post, and what a post says: tokens, signatures, formats, bounds."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from perception.sensors.webhook.formats import Fields
from perception.sensors.webhook.proof import Signing
from perception.sensors.webhook.sensor import WebhookSensor
from spar.errors import ConfigError, InboxFullError
from spar.parts.registry import Registry
from spar.ports.webhook import Taken, WebhookRefusal, WebhookRequest
from spar.protocols import SensorContext
from spar.testing import VirtualClock, check_sensor
from spar.types import Perception

TOKEN = "0123456789abcdef0123456789abcdef"
BEARER = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
ALERT: dict[str, Any] = {
    "status": "firing",
    "labels": {"alertname": "DiskFull", "instance": "db1:9100", "severity": "critical", "job": "node"},
    "annotations": {"summary": "disk / of db1 is full"},
    "startsAt": "2026-11-22T10:00:00Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "fingerprint": "a1b2c3",
}


class Posted:
    """An open hook and what it has accepted."""

    def __init__(self, clock: VirtualClock, **options: Any) -> None:
        if not {"secret", "unauthenticated"} & options.keys():
            options["token"] = TOKEN
        self.sensor = WebhookSensor(**options)
        self.known: dict[str, Perception] = {}
        self.keys: set[str] = set()
        self.room = 1000
        self.context = SensorContext("alerts", clock, lambda perception: True, accept=self._accept)

    async def _accept(self, perception: Perception, *, key: str | None = None) -> bool:
        if perception.id in self.known or key in self.keys:
            return False
        if len(self.known) >= self.room:
            raise InboxFullError("too much waits")
        self.keys |= {key} - {None}
        self.known[perception.id] = perception
        return True

    async def post(self, body: Any, headers: Mapping[str, str] = BEARER) -> Taken:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.sensor.admit(headers)
        return await self.sensor.take(self.sensor.read(WebhookRequest(headers, raw)))

    @property
    def perceptions(self) -> list[Perception]:
        return list(self.known.values())


async def posted(clock: VirtualClock, **options: Any) -> Posted:
    hook = Posted(clock, **options)
    await hook.sensor.open(hook.context)
    return hook


async def test_it_keeps_to_the_contract() -> None:
    made: list[WebhookSensor] = []

    def make() -> WebhookSensor:
        made.append(WebhookSensor(token=TOKEN))
        return made[-1]

    async def provoke() -> None:
        hook = made[-1]
        try:
            await hook.take(hook.read(WebhookRequest(BEARER, b'{"n": 1}')))
        except Exception:
            pass  # closed: the sender is told so

    await check_sensor(make, provoke=provoke)


# -- who may post


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {TOKEN}"}, {"authorization": "Bearer \udcff"}],
)
async def test_without_the_token_nothing_is_read(clock: VirtualClock, headers: dict[str, str]) -> None:
    hook = await posted(clock)

    with pytest.raises(WebhookRefusal) as refused:
        hook.sensor.admit({"content-type": "application/json", **headers})

    assert (refused.value.status, refused.value.outcome) == (401, "unauthorized")
    assert TOKEN not in str(refused.value)


async def test_githubs_own_example_of_a_signature_fits(clock: VirtualClock) -> None:
    # The values that GitHub's page on validating deliveries gives for an implementation to be tested with.
    hook = await posted(clock, secret="It's a Secret to Everybody")
    signature = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    headers = {"x-signature": f"sha256={signature}", "content-type": "text/plain"}

    await hook.post(b"Hello, World!", headers)

    assert hook.perceptions[0].content == "Hello, World!"
    with pytest.raises(WebhookRefusal, match="signature does not fit"):
        await hook.post(b"Hello, World?", headers)


def signed(secret: str, body: bytes, at: int, form: str = "{at}.") -> dict[str, str]:
    code = hmac.new(secret.encode(), form.format(at=at).encode() + body, hashlib.sha256).hexdigest()
    return {"x-signature": f"sha256={code}", "x-time": str(at), "content-type": "application/json"}


async def test_what_was_signed_too_long_ago_is_refused_and_a_repetition_is_known(clock: VirtualClock) -> None:
    hook = await posted(clock, secret=TOKEN, signing=Signing(timestamp_header="X-Time", tolerance=300))
    now = int(clock.now().timestamp())

    fresh = signed(TOKEN, b'{"a": 1}', now - 200)
    assert await hook.post(b'{"a": 1}', fresh) == Taken(accepted=1)
    assert await hook.post(b'{"a": 1}', fresh) == Taken(known=1)  # replayed within the window
    for at in (now - 400, now + 400):
        with pytest.raises(WebhookRefusal) as refused:
            await hook.post(b'{"a": 1}', signed(TOKEN, b'{"a": 1}', at))
        assert (refused.value.status, refused.value.outcome) == (401, "expired")
    with pytest.raises(WebhookRefusal, match="does not fit"):  # another time than the signed one
        await hook.post(b'{"a": 1}', {**fresh, "x-time": str(now)})
    with pytest.raises(WebhookRefusal, match="does not fit"):
        await hook.post(b'{"a": 1}', {**fresh, "x-time": ""})


TIMED = Signing(timestamp_header="X-Time")
SLACK = Signing(header="X-Signature", prefix="v0=", timestamp_header="X-Time", content="v0:{timestamp}:{body}")
DELIVERY = {"x-github-event": "issues", "x-github-delivery": "72d3162e"}
#: Ways to sign: the options of the hook, the signed content before the body, and headers that are sent beside it.
SIGNED: dict[str, tuple[dict[str, Any], str, dict[str, str]]] = {
    "body": ({}, "", {}),
    "body and delivery": ({}, "", {"idempotency-key": "one"}),
    "body with a key": ({"fields": Fields(key="/id")}, "", {}),
    "time": ({"signing": TIMED}, "{at}.", {}),
    "time and delivery": ({"signing": TIMED}, "{at}.", {"idempotency-key": "one"}),
    "time, own header": ({"signing": TIMED, "delivery_header": "X-Id"}, "{at}.", {"x-id": "1"}),
    "time with a key": ({"signing": TIMED, "fields": Fields(key="/id")}, "{at}.", {}),
    "slack": ({"signing": SLACK}, "v0:{at}:", {}),
    "github": ({"format": "github"}, "", DELIVERY),
    "alertmanager": ({"format": "alertmanager"}, "", {}),
    "alertmanager with a time": ({"format": "alertmanager", "signing": TIMED}, "{at}.", {}),
}  # fmt: skip
#: Headers that nobody has signed.
UNSIGNED: list[dict[str, str | None]] = [
    {"idempotency-key": "two"}, {"idempotency-key": None}, {"idempotency-key": ""}, {"x-id": "two"}, {"x-id": None},
    {"x-github-delivery": "two"}, {"x-github-event": "push"}, {"webhook-id": "two"}, {"user-agent": "x"},
    {"content-type": "text/plain"}, {"content-type": "application/cloudevents+json; charset=utf-8"},
]  # fmt: skip


@pytest.mark.parametrize("way", SIGNED)
async def test_no_header_that_is_not_signed_makes_a_signed_request_new(clock: VirtualClock, way: str) -> None:
    options, form, beside = SIGNED[way]
    hook = await posted(clock, secret=TOKEN, **options)
    body = json.dumps({"id": 5, "text": "a", "alerts": [ALERT, {}], "truncatedAlerts": 3}).encode()
    sent = {**signed(TOKEN, body, int(clock.now().timestamp()), form), **beside}
    if way == "github":
        sent["x-hub-signature-256"] = sent["x-signature"]
    elif way == "slack":
        sent["x-signature"] = sent["x-signature"].replace("sha256=", "v0=")

    count = (await hook.post(body, sent)).accepted
    assert count == (3 if "alertmanager" in way else 1)
    for changes in UNSIGNED:
        headers = {name: value for name, value in {**sent, **changes}.items() if value is not None}
        try:
            again = await hook.post(body, headers)
        except WebhookRefusal:
            continue
        assert again == Taken(known=count), changes


async def test_a_delivery_that_its_sender_signs_again_is_known_by_its_id(clock: VirtualClock) -> None:
    hook = await posted(clock, secret=TOKEN, signing=Signing(timestamp_header="X-Time"))
    now = int(clock.now().timestamp())

    def sent(at: int, id: str) -> dict[str, str]:
        return {**signed(TOKEN, b"{}", at), "idempotency-key": id}

    assert await hook.post(b"{}", sent(now, "one")) == Taken(accepted=1)
    assert await hook.post(b"{}", sent(now + 1, "one")) == Taken(known=1)
    assert await hook.post(b"{}", sent(now + 1, "two")) == Taken(accepted=1)  # the refused one has left no trace
    assert await hook.post(b"{}", signed(TOKEN, b"{}", now + 2)) == Taken(accepted=1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "unauthenticated = true lets any program of this machine post"),
        ({"token": "short"}, "token: the token has 5 characters, at least 16 are needed"),
        ({"token": TOKEN, "unauthenticated": True}, "cannot be true beside a token or a secret"),
        ({"token": TOKEN, "format": "slack"}, "'generic', 'alertmanager' or 'github'"),
        ({"token": TOKEN, "max_bytes": 0}, "max_bytes = 0"),
        ({"secret": TOKEN, "signing": {"content": "{timestamp}"}}, "content must end with {body}"),
        ({"secret": TOKEN, "signing": {"encoding": "octal"}}, "signing.encoding = 'octal'"),
        ({"token": TOKEN, "signing": {}}, "nothing is signed without a secret"),
        ({"token": TOKEN, "fields": {"text": "message"}}, "is no JSON pointer"),
        ({"token": TOKEN, "tokn": "x"}, "tokn"),
    ],
)
def test_wrong_options_say_what_is_wrong(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Registry().build("spar.sensors", ("sensors", 0), "webhook", options)

    assert said in str(refused.value)
    assert TOKEN not in str(refused.value)


# -- what is said


async def test_each_alert_is_a_perception_and_its_end_another(clock: VirtualClock) -> None:
    hook = await posted(clock, format="alertmanager")
    second = {**ALERT, "fingerprint": "d4", "labels": {"alertname": "Down"}, "annotations": {}}
    body = {"version": "4", "status": "firing", "receiver": "spar", "alerts": [ALERT, second], "truncatedAlerts": 3}

    assert await hook.post(body) == Taken(accepted=3)
    assert await hook.post({**body, "truncatedAlerts": 0}) == Taken(known=2)
    over = {**ALERT, "status": "resolved", "endsAt": "2026-11-22T11:00:00Z"}
    assert await hook.post({"version": "4", "alerts": [over]}) == Taken(accepted=1)

    first, other, left_out, resolved = hook.perceptions
    assert first.content == "DiskFull on db1:9100 fires: disk / of db1 is full"
    assert (first.kind, first.trust, first.key) == ("alert.firing", "untrusted", "a1b2c3 firing 2026-11-22T10:00:00Z")
    found = {name: first.attributes[name] for name in ("severity", "host", "service", "status")}
    assert found == {"severity": "critical", "host": "db1", "service": "node", "status": "firing"}
    assert first.attributes["labels"]["alertname"] == "DiskFull"
    assert other.content == "Down fires"
    assert left_out.content.startswith("the Alertmanager left out 3 alerts")
    assert (resolved.kind, resolved.subject) == ("alert.resolved", first.subject)
    assert resolved.attributes["ends_at"] == "2026-11-22T11:00:00Z"


async def test_what_all_alerts_of_a_post_share_is_not_kept_whole_with_each_of_them(clock: VirtualClock) -> None:
    hook = await posted(clock, format="alertmanager")
    alerts = [{**ALERT, "fingerprint": str(number)} for number in range(20)]

    await hook.post({"alerts": alerts, "groupKey": "g" * 100_000, "receiver": "r" * 100_000, "truncatedAlerts": 1})

    kept = [{name: len(each.attributes.get(name, "")) for name in ("group", "receiver")} for each in hook.perceptions]
    assert len(kept) == 21
    assert max(max(each.values()) for each in kept) < 1100
    assert hook.perceptions[0].attributes["group"].endswith("g … 99000 more characters left out")


async def test_a_delivery_of_github_is_known_by_its_id(clock: VirtualClock) -> None:
    hook = await posted(clock, format="github")
    payload = {
        "action": "opened",
        "issue": {"number": 7, "title": "It burns", "body": "x" * 3000, "html_url": "https://example.org/7"},
        "repository": {"full_name": "octo/cat"},
        "sender": {"login": "ann"},
    }
    headers = {**BEARER, "x-github-event": "issues", "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958"}

    assert await hook.post(payload, headers) == Taken(accepted=1)
    assert await hook.post(payload, headers) == Taken(known=1)
    assert await hook.post(payload, {**headers, "x-github-delivery": "another"}) == Taken(accepted=1)

    found = hook.perceptions[0]
    assert found.content.startswith("issues opened in octo/cat by ann issue 7: It burns\nxxx")
    assert found.content.endswith("… 1000 more characters in attributes.payload")
    assert (found.kind, found.subject) == ("github.issues", "github octo/cat issue 7")
    assert found.attributes["payload"] == payload
    with pytest.raises(WebhookRefusal, match="X-GitHub-Delivery"):
        await hook.post(payload, BEARER)


async def test_a_generic_body_is_read_where_the_configuration_points(clock: VirtualClock) -> None:
    fields = Fields(text="/event/message", severity="/event/level", key="/id", value="/readings/0", subject="/host")
    hook = await posted(clock, fields=fields, kind="sensor.reading")
    body = {"id": 5, "host": "a", "event": {"message": "hot", "level": "warning"}, "readings": [81.5]}

    assert await hook.post(body) == Taken(accepted=1)
    assert await hook.post({**body, "event": {"message": "hotter"}}) == Taken(known=1)

    found = hook.perceptions[0]
    assert (found.content, found.kind, found.subject, found.key) == ("hot", "sensor.reading", "a", "5")
    assert found.attributes == {"payload": body, "severity": "warning", "value": 81.5}
    with pytest.raises(WebhookRefusal, match="nothing at '/event/message'"):
        await hook.post({"id": 6})


@pytest.mark.parametrize("kind", ["message", "incident.closed", "anomaly.opened"])
async def test_a_body_does_not_pass_for_what_people_say_or_the_pipeline_tells(clock: VirtualClock, kind: str) -> None:
    hook = await posted(clock, fields=Fields(kind="/kind", severity="/level"))

    with pytest.raises(WebhookRefusal, match="a body may not be of a kind"):
        await hook.post({"kind": kind, "level": "critical"})
    assert await hook.post({"kind": "build.failed", "level": "critical"}) == Taken(accepted=1)
    assert [each.kind for each in hook.perceptions] == ["build.failed"]


async def test_a_repeated_delivery_id_is_known_and_equal_bodies_are_not(clock: VirtualClock) -> None:
    hook = await posted(clock)

    assert await hook.post({"n": 1}, {**BEARER, "idempotency-key": "one"}) == Taken(accepted=1)
    assert await hook.post({"n": 1}, {**BEARER, "idempotency-key": "one"}) == Taken(known=1)
    for _ in range(2):
        assert await hook.post({"n": 1}) == Taken(accepted=1)


async def test_any_bytes_survive_as_text(clock: VirtualClock) -> None:
    hook = await posted(clock)
    text = {**BEARER, "content-type": "text/plain; charset=utf-8"}

    await hook.post(b"a\xff\x00\nb", text)

    assert hook.perceptions[0].content == "a\\xff\x00\nb"
    assert hook.perceptions[0].attributes == {"binary": True}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "no JSON"),
        (b'{"a": "\xff"}', "no JSON"),
        (b"NaN", "no JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "nested deeper than 64"),
        (b"[" * 65 + b"]" * 65, "nested deeper than 64"),
        (b"[" + b"1," * 100_001 + b"1]", "more than 100000 values"),
        (b'{"a": "\\ud800"}', "no JSON"),
    ],
)
async def test_hostile_json_is_refused(clock: VirtualClock, body: bytes, said: str) -> None:
    hook = await posted(clock)

    with pytest.raises(WebhookRefusal, match=said) as refused:
        await hook.post(body)

    assert refused.value.status == 400


@pytest.mark.parametrize("format_", ["alertmanager", "github"])
@pytest.mark.parametrize("body", [[], {}, {"alerts": 3}, {"alerts": [1]}, "x", None, 1e308])
async def test_json_of_another_shape_is_refused(clock: VirtualClock, format_: Any, body: Any) -> None:
    hook = await posted(clock, format=format_)

    with pytest.raises(WebhookRefusal) as refused:
        await hook.post(body)

    assert refused.value.status == 400


async def test_odd_members_of_alerts_and_deliveries_do_no_harm(clock: VirtualClock) -> None:
    hook = await posted(clock, format="alertmanager")
    odd = {"labels": ["x"], "annotations": 3, "startsAt": {"a": 1}, "fingerprint": None, "status": 5}
    await hook.post({"alerts": [odd, {}]})
    assert {each.kind for each in hook.perceptions} == {"alert.firing"}

    hook = await posted(clock, format="github")
    headers = {**BEARER, "x-github-event": "ping", "x-github-delivery": "1"}
    await hook.post({"repository": "x", "sender": [], "issue": {"title": 3, "number": []}, "action": {}}, headers)
    assert hook.perceptions[0].kind == "github.ping"


@pytest.mark.parametrize(
    ("kind", "format_"), [("text/html", "github"), ("", "generic"), ("text/html; charset=utf-8", "generic")]
)
async def test_other_content_types_are_refused(clock: VirtualClock, kind: str, format_: Any) -> None:
    hook = await posted(clock, format=format_)

    with pytest.raises(WebhookRefusal) as refused:
        hook.sensor.admit({**BEARER, "content-type": kind})

    assert refused.value.status == 415


async def test_what_had_no_room_comes_again_and_the_rest_is_known(clock: VirtualClock) -> None:
    hook = await posted(clock, format="alertmanager")
    alerts = [{**ALERT, "fingerprint": str(number)} for number in range(5)]
    hook.room = 3

    with pytest.raises(InboxFullError):
        await hook.post({"alerts": alerts})
    hook.room = 1000

    assert await hook.post({"alerts": alerts}) == Taken(accepted=2, known=3)
    assert [each.attributes["fingerprint"] for each in hook.perceptions] == ["0", "1", "2", "3", "4"]


async def test_times_are_those_of_our_clock(clock: VirtualClock) -> None:
    hook = await posted(clock, format="alertmanager")
    await hook.post({"alerts": [{**ALERT, "startsAt": "9999-12-31T23:59:59Z"}]})
    await asyncio.sleep(0)

    assert abs((hook.perceptions[0].at - clock.now()).total_seconds()) < 1
    assert hook.perceptions[0].at.tzinfo == UTC
    assert isinstance(hook.perceptions[0].at, datetime)
