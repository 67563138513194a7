"""The share of a session's input that the provider's cache serves, and the alert when it falls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from spar.health.models import Models
from spar.testing import VirtualClock


class Alerts:
    """Open alerts by kind, and their beginnings and ends."""

    def __init__(self) -> None:
        self.open: dict[str, str] = {}
        self.changes: list[str] = []

    def alert(self, kind: str, message: str, *, severity: str = "warning", what: str = "") -> Any:
        if self.open.setdefault(kind, message) is message:
            self.changes.append("begins")

    def recovered(self, kind: str, *, what: str = "") -> None:
        if self.open.pop(kind, None) is not None:
            self.changes.append("ends")


def use(models: Models, session: str, *shares: float, read: int = 10_000) -> None:
    for share in shares:
        models.used(session, {"input_tokens": read, "output_tokens": 10, "cached_tokens": int(read * share)})


def test_tokens_are_counted_apart() -> None:
    models = Models(None, Alerts().alert, Alerts().recovered)  # type: ignore[arg-type]

    use(models, "ada", 0.75)

    assert models.tokens == {"input": 2_500, "cached": 7_500, "output": 10}


async def test_an_alert_opens_when_the_share_falls_below_half_of_the_usual_and_closes_when_it_is_usual_again(
    clock: VirtualClock,
) -> None:
    alerts = Alerts()
    models = Models(SimpleNamespace(clock=clock), alerts.alert, alerts.recovered)  # type: ignore[arg-type]
    use(models, "ada", *[0.9] * 30)
    use(models, "bob", *[0.9] * 30)
    assert alerts.open == {}

    use(models, "ada", *[0.1] * 4)

    assert list(alerts.open) == ["cache"]
    assert alerts.open["cache"].startswith("session ada: ")
    assert "usually 7" in alerts.open["cache"]
    use(models, "ada", *[0.9] * 8)
    assert alerts.open == {}


async def test_an_episode_is_told_once_over_all_sessions_and_however_the_share_varies(clock: VirtualClock) -> None:
    alerts = Alerts()
    models = Models(SimpleNamespace(clock=clock), alerts.alert, alerts.recovered)  # type: ignore[arg-type]
    names = [f"session {number}" for number in range(50)]
    for name in names:
        use(models, name, *[0.8] * 30)

    for share in (0.1, 0.3, 0.1, 0.0, 0.5, 0.6, 0.3, 0.5, 0.1, 0.45, 0.55) * 3:  # about half of the usual share
        for name in names:
            use(models, name, share)

    assert alerts.changes == ["begins", "ends"], "it has become usual"


async def test_the_alert_of_a_session_that_asks_no_more_closes_after_an_hour(clock: VirtualClock) -> None:
    alerts = Alerts()
    models = Models(SimpleNamespace(clock=clock), alerts.alert, alerts.recovered)  # type: ignore[arg-type]
    use(models, "ada", *[0.9] * 30, *[0.1] * 4)
    await clock.sleep(3_000.0)
    use(models, "ada", 0.1)  # it still asks
    await clock.sleep(3_000.0)
    assert list(alerts.open) == ["cache"]

    await clock.sleep(601.0)

    assert alerts.open == {}
    use(models, "ada", *[0.9] * 8)


def test_more_served_than_read_counts_as_all_of_it() -> None:
    models = Models(None, Alerts().alert, Alerts().recovered)  # type: ignore[arg-type]

    models.used("ada", {"input_tokens": 2_000, "output_tokens": 0, "cached_tokens": 9_000})

    assert models.tokens == {"input": 0, "cached": 2_000, "output": 0}


def test_nothing_is_said_of_sessions_that_are_new_of_small_requests_and_of_providers_without_a_cache() -> None:
    alerts = Alerts()
    models = Models(None, alerts.alert, alerts.recovered)  # type: ignore[arg-type]

    use(models, "new", *[0.9] * 10, *[0.0] * 4)
    use(models, "small", *[0.9] * 30, *[0.0] * 10, read=1_000)
    use(models, "none", *[0.0] * 60)

    assert alerts.open == {}
