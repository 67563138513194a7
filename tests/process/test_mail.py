"""A service that talks by mail, over a mail host of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spar.mail.origin import OWN_HEADER
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
address = "spar@spar.test"
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
    spar.write(CONFIG.format(imap=host.imap, smtp=host.smtp, host=NAME, allowed=ALICE))
    spar.environ["MAIL_PASSWORD"] = PASSWORD
    service = connected(start())
    host.write(letter("how are you?", id="1@example.org"))
    until(lambda: host.sent_to(ALICE), "an answer")
    [answer] = host.sent_to(ALICE)
    assert " ".join(answer.get_content().split()) == "I heard you: Subject: a question how are you?"
    assert (answer["in-reply-to"], answer["subject"]) == ("<1@example.org>", "Re: a question")
    assert answer[OWN_HEADER], "another agent does not answer it"
    until(lambda: host.flags("spar@spar.test")["seen"] == 1, "the mail seen")
    assert service.status["addresses"] == {}, "without probes there is no port"
    assert service.said("service started").get("http") is None
    assert PASSWORD not in service.err
    assert PASSWORD not in spar("config", "show").out
    assert service.stop() == 0
