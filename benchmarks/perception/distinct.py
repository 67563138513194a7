"""Distinct things that stay distinct: events of GitHub as text, and descriptions of alert rules.

The events are the examples of github.com/octokit/webhooks (payload-examples), the rules those of
github.com/samber/awesome-prometheus-alerts; equal ones among them count once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from benchmarks.perception.quality import MissingDataError, Quality
from perception import Pipeline
from spar.types import Perception


def measure(data: Path) -> list[Quality]:
    """Raises: MissingDataError."""
    events, rules = _events(data), _rules(data)
    return [
        _kept("distinct GitHub events kept", events),
        _kept("distinct descriptions of alert rules kept", rules),
    ]


def _kept(name: str, texts: list[str]) -> Quality:
    pipeline = Pipeline({"limit": len(texts), "incidents": {"enabled": False}})
    kept = {perception.content for perception in pipeline.process(Perception(text, source="webhook") for text in texts)}
    return Quality(name, len(kept & set(texts)) / len(set(texts)), 1.0, remark=f"{len(kept)} of {len(set(texts))}")


def _events(data: Path) -> list[str]:
    paths = sorted((data / "webhooks" / "payload-examples").rglob("*.json"))
    texts = [path.read_text("utf-8") for path in paths]
    if not texts:
        raise MissingDataError(f"no JSON in {data / 'webhooks' / 'payload-examples'} (github.com/octokit/webhooks)")
    return [json.dumps(payload) for payload in map(json.loads, texts) if isinstance(payload, dict)]


def _rules(data: Path) -> list[str]:
    path = data / "awesome-prometheus-alerts" / "_data" / "rules.yml"
    if not path.exists():
        raise MissingDataError(f"no {path} (github.com/samber/awesome-prometheus-alerts)")
    return list(_descriptions(path.read_text("utf-8").splitlines()))


def _descriptions(lines: Iterable[str]) -> Iterable[str]:
    """Return the descriptions in a file of rules, whose values stand in one line each."""
    for line in lines:
        name, _, value = line.strip().partition(": ")
        if name == "description":
            yield value.strip("\"'")
