"""A service that talks by mail, over a mail host of the test's own: answers, strangers, kills and loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mail.letters import letter
from tests.process.conftest import Service, Spar, until
from tests.servers.mailserver import NAME, PASSWORD, MailHost, mail_host

pytestmark = pytest.mark.process
ALICE = "alice@example.org"
CONFIG = """
[service]
probes = false
[log]
format = "json"
[agent]
name = "main"

[[channels]]
use = "mail"

[channels.options]
address = "{address}"
imap = "imap://127.0.0.1:{imap}"
smtp = "smtp://127.0.0.1:{smtp}"
trust_authentication_results = "{host}"

[senders]
allow = [{{ senders = ["mail:{allowed}"], person = "alice" }}]

[[sensors]]
use = "messages"

[[rules]]
name = "answer"
when = {{ kind = "message" }}
answer = "I heard you: {{content:.80}}"
"""


@pytest.fixture
def host() -> Iterator[MailHost]:
    with mail_host() as host:
        yield host


def configured(spar: Spar, host: MailHost, *, address: str = "spar@spar.test", allowed: str = ALICE) -> None:
    spar.write(CONFIG.format(address=address, imap=host.imap, smtp=host.smtp, host=NAME, allowed=allowed))
    spar.environ["MAIL_PASSWORD"] = PASSWORD


def connected(service: Service) -> Service:
    """Wait until the mailbox is read."""
    until(lambda: mail_of(service)["connected"], "the mailbox open")
    return service


def mail_of(service: Service) -> dict[str, Any]:
    """Return what the service says of its channel."""
    service.ready()
    found: dict[str, Any] = service.agent["channels"]["mail"]
    return found


def test_a_mail_is_answered_in_its_thread(spar: Spar, start: Callable[..., Service], host: MailHost) -> None:
    configured(spar, host)
    service = connected(start())
    host.write(letter("how are you?", id="1@example.org"))
    until(lambda: host.sent_to(ALICE), "an answer")
    [answer] = host.sent_to(ALICE)
    assert " ".join(answer.get_content().split()) == "I heard you: Subject: a question how are you?"
    assert (answer["in-reply-to"], answer["subject"]) == ("<1@example.org>", "Re: a question")
    until(lambda: host.flags("spar@spar.test")["seen"] == 1, "the mail seen")
    assert service.status["addresses"] == {}, "without probes there is no port"
    assert service.said("service started").get("http") is None
    assert PASSWORD not in service.err
    assert PASSWORD not in spar("config", "show").out
    assert service.stop() == 0


def test_two_agents_do_not_answer_each_other(
    spar: Spar, start: Callable[..., Service], host: MailHost, tmp_path: Path
) -> None:
    configured(spar, host, allowed="other@spar.test")
    (tmp_path / "other").mkdir()
    other = Spar(tmp_path / "other")
    configured(other, host, address="other@spar.test", allowed="spar@spar.test")
    host.honest |= {"spar@spar.test", "other@spar.test"}
    first = connected(start())
    second = Service(other)
    try:
        connected(second)
        host.write(letter("hello", From="other@spar.test"), sender="other@spar.test")  # as its owner would
        until(lambda: mail_of(second)["passed_over"].get("agent"), "the answer passed over")
        second.said("mail not planned", kind="agent")
        assert len(host.taken) == 1
        assert second.stop() == 0
    finally:
        second.kill()
    assert first.stop() == 0
