"""The notifier by mail, against a real SMTP server on this machine."""

from __future__ import annotations

import email
import email.policy
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from spar.errors import ConfigError, TransientError
from spar.mail.notifier import MailNotifier
from spar.ports.channel import Notice
from spar.testing import check_notifier
from tests.ports import free_port
from tests.servers.mailserver import SmtpServer


class Box:
    """SMTP server that keeps the mails that it takes, and refuses them while it is told to."""

    def __init__(self) -> None:
        self.mails: list[Any] = []
        self.answer, self.refused = "250 OK", ""
        self.controller = SmtpServer(self, hostname="127.0.0.1", port=free_port())

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address == self.refused:
            return "451 later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.answer.startswith("250"):
            self.mails.append(email.message_from_bytes(envelope.content, policy=email.policy.default))
        return self.answer

    def notifier(self, **more: Any) -> MailNotifier:
        given = {"sender": "spar@spar.test", "to": ["ops@spar.test", "boss@spar.test"], **more}
        return MailNotifier(smtp=f"smtp://127.0.0.1:{self.controller.port}", **given)


@pytest.fixture
def box() -> Iterator[Box]:
    box = Box()
    box.controller.start()
    yield box
    box.controller.stop()


def notice(title: str = "spar main: critical disk") -> Notice:
    return Notice("n1", "disk", "raised", "critical", title, "the disk is full", datetime.now(UTC), "main")


async def test_each_person_gets_a_mail_that_is_known_again(box: Box) -> None:
    notifier = box.notifier()
    await notifier.deliver(notice())
    await notifier.deliver(notice())
    assert [mail["To"] for mail in box.mails] == ["ops@spar.test", "boss@spar.test"] * 2
    assert [mail["Subject"] for mail in box.mails] == ["spar main: critical disk"] * 4
    assert "the disk is full" in box.mails[0].get_content()
    first, second, again, _ = [mail["Message-ID"] for mail in box.mails]
    assert first == again != second


async def test_a_hostile_title_stays_one_header(box: Box) -> None:
    await box.notifier(to=["ops@spar.test"]).deliver(notice("a\r\nBcc: eve@example.org\x00\u202e" + "x" * 9_000))
    (mail,) = box.mails
    assert mail["Bcc"] is None
    assert mail["Subject"].startswith("a Bcc: eve@example.org")
    assert len(mail["Subject"]) <= 200


async def test_what_the_server_does_not_take_is_an_error(box: Box) -> None:
    box.answer = "451 later"
    with pytest.raises(TransientError, match="later"):
        await box.notifier().deliver(notice())


async def test_a_notice_that_is_sent_again_goes_to_those_alone_who_have_not_got_it(box: Box) -> None:
    notifier = box.notifier(to=["ops@spar.test", "boss@spar.test", "night@spar.test"])
    box.refused = "boss@spar.test"
    for _ in range(2):
        with pytest.raises(TransientError, match="later"):
            await notifier.deliver(notice())
    assert [mail["To"] for mail in box.mails] == ["ops@spar.test", "night@spar.test"]
    box.refused = ""
    await notifier.deliver(notice())
    assert [mail["To"] for mail in box.mails][2:] == ["boss@spar.test"]


async def test_it_keeps_the_contract(box: Box) -> None:
    await check_notifier(
        box.notifier, make_unreachable=lambda: MailNotifier(smtp=f"smtp://127.0.0.1:{free_port()}", sender="a@b.test",
                                                            to=["c@d.test"]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sender": "nobody"}, "sender = 'nobody'"),
        ({"to": ["a@b.test", "a b@c"]}, "to = 'a b@c'"),
        ({"smtp": "smtp://mail.example.org"}, "in the clear"),
        ({"user": "me", "password_env": "NO_SUCH_SECRET"}, "NO_SUCH_SECRET"),
    ],
)
def test_options_that_cannot_work_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        MailNotifier(**{"smtp": "smtp://127.0.0.1:25", "sender": "a@b.test", "to": ["c@d.test"], **given})
