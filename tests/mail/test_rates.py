"""Rates of senders: a mail counts once, however often it is offered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from spar.mail.channel import WINDOW, SenderRates
from spar.protocols.sensors import PassingRows

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_a_mail_that_is_offered_again_counts_once() -> None:
    rates = SenderRates(2, PassingRows())
    assert [rates.count("a", key, NOW) for key in ("1", "1", "1", "2", "1", "2")] == ["heard"] * 6
    assert [rates.count("a", key, NOW) for key in ("3", "3", "4", "3")] == ["tell", "tell", "stopped", "tell"]
    assert rates.count("b", "1", NOW) == "heard"


def test_a_mail_that_is_offered_again_does_not_stop_its_sender_for_longer() -> None:
    rates = SenderRates(1, PassingRows())
    assert [rates.count("a", key, NOW) for key in ("1", "2")] == ["heard", "tell"]
    assert rates.count("a", "2", NOW + WINDOW - timedelta(minutes=1)) == "tell"
    assert rates.count("a", "3", NOW + WINDOW) == "heard"
