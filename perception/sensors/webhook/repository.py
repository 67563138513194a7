"""Deliveries of GitHub: one perception for each, with a sentence for people and the payload as attribute."""

from __future__ import annotations

from typing import Any

from perception.sensors.webhook.body import Noticed, object_of, shown
from spar.ports.webhook import WebhookRefusal, WebhookRequest

#: Members of a payload that an event may be about, with their names in a subject; the first existing one counts.
_THINGS = (
    ("check_run", "check_run"),
    ("check_suite", "check_suite"),
    ("workflow_run", "run"),
    ("workflow_job", "job"),
    ("comment", "comment"),
    ("review", "review"),
    ("pull_request", "pull"),
    ("issue", "issue"),
    ("discussion", "discussion"),
    ("release", "release"),
    ("deployment", "deployment"),
    ("alert", "alert"),
    ("head_commit", "commit"),
)
_LONGEST = 2000


def read_delivery(request: WebhookRequest) -> list[Noticed]:
    """Return the perception of a delivery. Raises: WebhookRefusal."""
    event, delivery = request.headers.get("x-github-event", ""), request.headers.get("x-github-delivery", "")
    if not event or not delivery or len(delivery) > 200 or len(event) > 100:
        raise WebhookRefusal(400, "X-GitHub-Event and X-GitHub-Delivery are needed", "malformed")
    payload = object_of(request.body)
    action, repository = shown(payload.get("action", "")), _name(payload.get("repository"), "full_name")
    sender = _name(payload.get("sender"), "login")
    member, what = next(((key, word) for key, word in _THINGS if isinstance(payload.get(key), dict)), ("", ""))
    thing: dict[str, Any] = payload[member] if member else {}
    number = shown(thing.get("number") or thing.get("id") or "")
    title = _first(thing, "title", "name", "message", "tag_name")
    ref = shown(payload.get("ref") or "")
    body = _first(thing, "body", "description", "output")
    state = _first(thing, "conclusion", "state", "status")
    sentence = " ".join(filter(None, (
        f"{event}{f' {action}' if action else ''}",
        f"in {repository}" if repository else "",
        f"by {sender}" if sender else "",
        f"on {ref}" if ref else "",
        f"{what} {number}" if what else "",
        f"({state})" if state else "",
    )))  # fmt: skip
    headline = ": ".join(filter(None, (sentence, title)))
    ending = f" … {len(body) - _LONGEST} more characters in attributes.payload" if len(body) > _LONGEST else ""
    return [
        Noticed(
            content=f"{headline}\n{body[:_LONGEST]}{ending}" if body else headline,
            kind=f"github.{event}",
            key=f"github {delivery}",
            subject=" ".join(filter(None, ("github", repository, f"{what} {number}" if what else ref or delivery))),
            attributes={
                "event": event,
                "action": action,
                "delivery": delivery,
                "repository": repository,
                "sender": sender,
                "ref": ref,
                "number": number,
                "title": title,
                "state": state,
                "url": _first(thing, "html_url", "url"),
                "payload": payload,
            },
        )
    ]


def _name(value: object, key: str) -> str:
    return shown(value.get(key, "")) if isinstance(value, dict) else ""


def _first(value: dict[str, Any], *keys: str) -> str:
    return next((shown(value[key]) for key in keys if isinstance(value.get(key), str) and value[key]), "")
