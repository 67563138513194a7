"""Notifications of an Alertmanager (version 4 of its webhook): one perception for each alert, firing or resolved."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from perception.sensors.webhook.body import Noticed, object_of, shown, texts
from spar.data.text import bounded
from spar.ports.webhook import WebhookRefusal, WebhookRequest

#: Bound of the alerts of one post.
MOST_ALERTS: Final = 1000
#: Characters of the receiver and the group of a post, which each of its alerts repeats.
LONGEST_SHARED: Final = 1000


def read_alerts(request: WebhookRequest) -> list[Noticed]:
    """Return the alerts of a post. Raises: WebhookRefusal."""
    payload = object_of(request.body)
    alerts, shared = payload.get("alerts"), {name: _bounded(payload.get(name, "")) for name in ("receiver", "groupKey")}
    if not isinstance(alerts, list) or not all(isinstance(alert, dict) for alert in alerts):
        raise WebhookRefusal(400, "this is no notification of an Alertmanager: it has no list of alerts", "malformed")
    if len(alerts) > MOST_ALERTS:
        sentence = f"more than {MOST_ALERTS} alerts at once; set max_alerts of the receiver"
        raise WebhookRefusal(413, sentence, "too_large")
    noticed = [_alert(alert, payload, shared) for alert in alerts]
    if left_out := _left_out(payload, shared["groupKey"]):
        noticed.append(left_out)
    return noticed


def _alert(alert: dict[str, Any], payload: dict[str, Any], shared: dict[str, str]) -> Noticed:
    labels, notes = texts(alert.get("labels")), texts(alert.get("annotations"))
    status = "resolved" if alert.get("status", payload.get("status")) == "resolved" else "firing"
    fingerprint = shown(alert.get("fingerprint") or _print_of(labels))[:200]
    starts_at, name = shown(alert.get("startsAt", "")), labels.get("alertname", "alert")
    where = labels.get("instance", labels.get("host", ""))
    words = " ".join(dict.fromkeys(filter(None, map(notes.get, ("summary", "description", "message")))))
    begin = f"{name}{f' on {where}' if where else ''} {'is resolved' if status == 'resolved' else 'fires'}"
    return Noticed(
        content=f"{begin}: {words}" if words else begin,
        kind=f"alert.{status}",
        key=f"{fingerprint} {status} {starts_at}",
        subject=f"alert {name} {fingerprint}",
        attributes={
            "status": status,
            "alert": name,
            "severity": labels.get("severity", ""),
            "host": labels.get("host") or labels.get("nodename") or _host(labels.get("instance", "")),
            "service": labels.get("service") or labels.get("job", ""),
            "labels": labels,
            "annotations": notes,
            "starts_at": starts_at,
            "ends_at": shown(alert.get("endsAt", "")) if status == "resolved" else "",
            "fingerprint": fingerprint,
            "url": shown(alert.get("generatorURL", "")),
            "receiver": shared["receiver"],
            "group": shared["groupKey"],
        },
    )


def _bounded(value: object) -> str:
    """Return a value that each alert of a post repeats, shortened; else a large one would be stored once for each
    alert."""
    return bounded(shown(value), LONGEST_SHARED)[0]


def _left_out(payload: dict[str, Any], group: str) -> Noticed | None:
    """Return a report of the alerts that the sender itself left out."""
    count = payload.get("truncatedAlerts")
    if not isinstance(count, int) or isinstance(count, bool) or count <= 0:
        return None
    return Noticed(
        content=f"the Alertmanager left out {count} alerts of the group {group[:500]}: max_alerts of its receiver",
        kind="alert.left_out",
        key=None,
        subject=f"alerts left out {group[:500]}",
        attributes={"count": count, "group": group},
    )


def _host(instance: str) -> str:
    host, _, port = instance.rpartition(":")
    return host.strip("[]") if host and port.isdigit() else instance


def _print_of(labels: dict[str, str]) -> str:
    text = "\0".join(f"{key}\0{labels[key]}" for key in sorted(labels))
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
