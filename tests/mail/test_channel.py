"""Mail as a channel, against Dovecot and an SMTP server: what is handed over, acknowledged, refused, and sent."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spar.errors import ConfigError, InboxFullError, PermanentError, TransientError
from spar.mail.channel import MailChannel
from spar.mail.servers import read_server
from spar.ports.channel import Outgoing
from spar.testing import check_channel
from tests.mail.conftest import Reader
from tests.mail.letters import letter
from tests.servers.mailserver import NAME, MailHost

Open = Callable[..., MailChannel]
SPAR = "spar@spar.test"
PAGE = 'Content-Type: application/pdf\nContent-Disposition: attachment; filename="{}"\n\n{}\n'


async def test_a_mail_is_handed_over_and_seen_only_when_it_was_accepted(
    host: MailHost, reader: Reader, open_channel: Open
) -> None:
    reader.failures = [InboxFullError("full"), TransientError("not yet")]
    channel = open_channel()
    async with reader.reading(channel):
        host.write(letter("how are you?"))
        await reader.until(lambda: not reader.failures)
        assert host.flags(SPAR) == {"all": 1, "seen": 0}
        await reader.until(lambda: host.flags(SPAR)["seen"] == 1)
    [message] = reader.heard
    assert (message.address, message.text) == ("alice@example.org", "Subject: a question\n\nhow are you?")
    assert (message.is_verified, message.refusal) == (True, "")
    assert message.session.startswith("mail:alice@example.org#")
    assert message.attributes["original"].endswith(";UID=1")


async def test_a_mail_that_comes_while_the_server_is_watched_is_noticed_at_once(
    host: MailHost, reader: Reader, open_channel: Open
) -> None:
    async with reader.reading(open_channel(poll=1200)):  # without a word of the server it would take so long
        for number in range(3):
            host.write(letter(f"number {number}", id=f"{number}@x"))
            await reader.until(lambda number=number: len(reader.heard) == number + 1)  # type: ignore[misc]


async def test_what_was_taken_is_not_taken_again_after_a_restart(
    host: MailHost, reader: Reader, open_channel: Open
) -> None:
    async with reader.reading(open_channel()):
        host.write(letter("one", id="1@x"))
        await reader.until(lambda: reader.rows.rows["cursor"]["uid"] == 1)
    host.write(letter("two", id="2@x"))
    async with reader.reading(open_channel()):
        await reader.until(lambda: host.flags(SPAR)["seen"] == 2)
        host.write(letter("three", id="3@x"))
        await reader.until(lambda: host.flags(SPAR)["seen"] == 3)
    assert [message.text.split()[-1] for message in reader.heard] == ["one", "two", "three"]


async def test_a_redelivery_is_one_message(host: MailHost, reader: Reader, open_channel: Open) -> None:
    async with reader.reading(open_channel()):
        host.write(letter("one"))
        host.write(letter("one"))
        await reader.until(lambda: host.flags(SPAR)["seen"] == 2)
    assert len({message.id for message in reader.heard}) == 1


async def test_at_the_first_start_old_mails_are_left_alone_unless_they_are_wanted(
    host: MailHost, reader: Reader, open_channel: Open, tmp_path: Path
) -> None:
    host.write(letter("old"))
    async with reader.reading(open_channel()):
        host.write(letter("new", id="2@x"))
        await reader.until(lambda: host.flags(SPAR)["seen"] == 1)
        assert [message.text.split()[-1] for message in reader.heard] == ["new"]
    other = Reader(tmp_path)
    async with other.reading(open_channel(first="unseen")):
        await other.until(lambda: other.heard)
    assert [message.text.split()[-1] for message in other.heard] == ["old"]


async def test_in_a_folder_that_was_made_anew_nothing_is_lost(
    host: MailHost, reader: Reader, open_channel: Open
) -> None:
    reader.rows.rows["cursor"] = {"validity": 1, "uid": 1000}
    host.write(letter("hello"))
    async with reader.reading(open_channel()):
        await reader.until(lambda: reader.heard)
        await reader.until(lambda: reader.rows.rows["cursor"]["uid"] == 1)


async def test_a_mail_that_is_too_large_is_not_fetched_and_its_sender_is_told(
    host: MailHost, reader: Reader, open_channel: Open
) -> None:
    channel = open_channel()
    async with reader.reading(channel):
        host.write(letter("x" * 70 + ("\n" + "y" * 76) * 150_000))
        await reader.until(lambda: reader.heard)
        host.write(letter("small", id="2@x"))
        await reader.until(lambda: len(reader.heard) == 2)
    large, small = reader.heard
    assert large.refusal == "Your mail was not read: it has 11.7 MB, and I read mails up to 10.5 MB."
    assert large.text == "(not read)"
    assert small.text.endswith("small")


async def test_a_forged_sender_is_not_believed(host: MailHost, reader: Reader, open_channel: Open) -> None:
    async with reader.reading(open_channel()):
        host.write(letter("give me all"), is_proven=False)
        forged = "Authentication-Results: mx.spar.test; dmarc=pass header.from=example.org\r\n"
        host.write(letter("give me more", id="2@x", head=forged), is_proven=False)
        await reader.until(lambda: len(reader.heard) == 2)
    assert [(message.is_verified, message.text) for message in reader.heard] == [(False, "(not read)")] * 2
    assert host.flags(SPAR)["seen"] == 0
    believing = Reader(reader.workspace)
    async with believing.reading(open_channel(verify="none", trust_authentication_results=None, first="unseen")):
        await believing.until(lambda: len(believing.heard) == 2)
    assert all(message.is_verified for message in believing.heard)


async def test_nothing_of_a_stranger_is_fetched_or_saved(host: MailHost, reader: Reader, open_channel: Open) -> None:
    reader.hears = set()
    async with reader.reading(open_channel()):
        host.write(letter(_with_attachment("a.pdf"), Content_Type="multipart/mixed; boundary=b"))
        await reader.until(lambda: reader.heard)
    assert reader.heard[0].text == "(not read)"
    assert not list(reader.workspace.rglob("*.pdf"))
    assert host.flags(SPAR)["seen"] == 0


async def test_mails_that_no_person_wrote_are_passed_over(host: MailHost, reader: Reader, open_channel: Open) -> None:
    channel = open_channel()
    async with reader.reading(channel):
        host.write(letter("I am away", id="1@x", Auto_Submitted="auto-replied"))
        host.write(letter("undelivered", id="2@x", From="mailer-daemon@example.org"), sender="")
        host.write(letter("offers", id="3@x", List_Id="<offers>"))
        host.write(letter("hello", id="4@x", From="Other <other@example.org>", X_Spar_Agent="other@example.org"))
        host.write(letter("unreadable", id="5@x", From="a@b.c, d@e.f"))
        host.write(letter("a person", id="6@x"))
        await reader.until(lambda: reader.heard)
    assert [message.text.split()[-1] for message in reader.heard] == ["person"]
    assert channel.snapshot()["passed_over"] == {"automatic": 1, "bounce": 1, "list": 1, "agent": 1, "unreadable": 1}


async def test_a_sender_that_writes_without_end_is_told_once_and_not_read_any_more(
    host: MailHost, reader: Reader, open_channel: Open
) -> None:
    async with reader.reading(open_channel(rate=3)):
        for number in range(8):
            host.write(letter(f"number {number}", id=f"{number}@x"))
        await reader.until(lambda: len(reader.heard) == 4)
    assert [bool(message.refusal) for message in reader.heard] == [False, False, False, True]
    async with reader.reading(open_channel(rate=3)) as task:  # not told again by the next process
        host.write(letter("again", id="9@x"))
        await reader.until(lambda: reader.rows.rows["cursor"]["uid"] == 9)
        assert not task.done()
    assert len(reader.heard) == 4


def _with_attachment(*names: str, content: str = "%PDF") -> str:
    parts = "".join(f"--b\n{PAGE.format(name, content)}" for name in names)
    return f"--b\nContent-Type: text/plain\n\nhere it is\n{parts}--b--\n"


async def test_attachments_are_saved_within_limits_or_named_as_left_out(
    host: MailHost, reader: Reader, open_channel: Open
) -> None:
    body = _with_attachment("../../../etc/passwd", ".hidden", "a b.pdf", "a b.pdf", "late.pdf")
    async with reader.reading(open_channel(attachments=4)):
        host.write(letter(body, Content_Type="multipart/mixed; boundary=b"))
        await reader.until(lambda: reader.heard)
    [message] = reader.heard
    files = sorted(str(path.relative_to(reader.workspace)) for path in reader.workspace.rglob("*") if path.is_file())
    folder = f"mail/{message.id}"
    assert files == sorted(f"{folder}/{name}" for name in ("passwd", "hidden", "a_b.pdf", "3-a_b.pdf"))
    assert sorted(message.attributes["attachments"]) == files
    assert "- late.pdf (4 bytes), left out: at most 4 attachments of a mail are saved" in message.text


async def test_an_attachment_does_not_leave_the_workspace_by_a_link(
    host: MailHost, reader: Reader, open_channel: Open, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (reader.workspace / "mail").symlink_to(tmp_path / "outside")
    async with reader.reading(open_channel()):
        host.write(letter(_with_attachment("a.pdf"), Content_Type="multipart/mixed; boundary=b"))
        await reader.until(lambda: reader.heard)
    assert not list((tmp_path / "outside").iterdir())
    assert "a.pdf (4 bytes), left out: it cannot be saved" in reader.heard[0].text


# -- sending


async def test_an_answer_goes_into_the_thread_of_its_mail(host: MailHost, reader: Reader, open_channel: Open) -> None:
    channel = open_channel()
    async with reader.reading(channel):
        host.write(letter("hello", id="2@x", References="<0@x> <1@x>", Subject="Ünï\u2028 code"))
        await reader.until(lambda: reader.heard)
    message = reader.heard[0]
    await channel.send(Outgoing("run.1", message.address, "I am well.\n.\nGrüße", reply=message.reply))
    await channel.send(Outgoing("run.1", message.address, "I am well.\n.\nGrüße", reply=message.reply))
    first, second = host.sent_to("alice@example.org")
    assert first["message-id"] == second["message-id"]  # a repetition is known as one
    assert (first["in-reply-to"], first["references"]) == ("<2@x>", "<0@x> <1@x> <2@x>")
    assert (first["subject"], first["from"], first["to"]) == (
        "Re: Ünï code",
        "spar <spar@spar.test>",
        "alice@example.org",
    )
    assert first["auto-submitted"] == "auto-replied"
    assert first.get_content().split() == ["I", "am", "well.", ".", "Grüße"]


@pytest.mark.parametrize("reply", [
    {"subject": "a\r\nBcc: eve@evil.net", "message_id": "1@x>\r\nBcc: <e@evil.net", "references": ["\r\nBcc: e@e"]},
    {"subject": "x" * 5000, "message_id": 7, "references": [None, "é@x", "a b"]},
])  # fmt: skip
async def test_nothing_of_a_mail_becomes_a_header_of_the_answer(host: MailHost, open_channel: Open, reply: Any) -> None:
    await open_channel().send(Outgoing("1", "alice@example.org", "Bcc: eve@evil.net\n\n.\r\nhello", reply=reply))
    [sent] = host.sent_to("alice@example.org")
    assert sent["bcc"] is None
    assert "in-reply-to" not in sent
    assert {to for to, _ in host.taken} == {"alice@example.org"}


@pytest.mark.parametrize("address", ["alice", "a@b\r\nRCPT TO:<eve@evil.net>", "a,b@c.d", "<a@b.c>", "@", "a b@c.d"])
async def test_an_address_that_is_none_is_refused_for_good(open_channel: Open, address: str) -> None:
    with pytest.raises(PermanentError, match="no address"):
        await open_channel().send(Outgoing("1", address, "hello"))


async def test_a_refusal_of_the_server_is_final_or_not_by_its_code(host: MailHost, open_channel: Open) -> None:
    channel, message = open_channel(), Outgoing("1", "alice@example.org", "hello")
    host.refusing = ["451 try later", "550 no such user"]
    with pytest.raises(TransientError, match="451"):
        await channel.send(message)
    with pytest.raises(PermanentError, match="550"):
        await channel.send(message)
    await channel.send(message)
    with pytest.raises(TransientError, match="refused the name or the password"):
        await open_channel(password="wrong").send(message)
    assert len(host.taken) == 1


# -- connections


@pytest.mark.parametrize(("options", "said"), [
    ({"trust_authentication_results": None}, 'or believe every From with verify = "none"'),
    ({"imap": "imap://mail.example.org"}, "would send mails and the password in the clear; use imaps://mail.example.org"),
    ({"smtp": "smtp://10.0.0.1:25"}, "in the clear"),
    ({"imap": "mail.example.org"}, "must be one of imaps://HOST"),
    ({"smtp": "imaps://mail.example.org"}, "must be one of smtps://HOST"),
    ({"imap": "imaps://user:word@mail.example.org"}, "password_env"),
    ({"imap": "imaps://mail.example.org:99999"}, "imap = "),
    ({"address": "spar"}, "must be like spar@example.org"),
    ({"password": None, "password_env": "NO_SUCH_VARIABLE"}, "'NO_SUCH_VARIABLE', which is to hold the password"),
    ({"ca_file": "/nowhere"}, "cannot be read"),
])  # fmt: skip
def test_settings_that_cannot_work_are_refused_at_the_start(options: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"address": SPAR, "imap": "imaps://mail.example.org", "smtp": "smtps://mail.example.org",
                             "password": "x", "trust_authentication_results": NAME, **options}  # fmt: skip
    with pytest.raises(ConfigError) as refusal:
        MailChannel(**given)
    assert said in str(refusal.value)
    assert "word" not in str(refusal.value).replace("password", "")


def test_servers_have_their_usual_ports() -> None:
    assert read_server("imap", "imaps://mail.example.org").port == 993
    assert read_server("smtp", "smtp+starttls://mail.example.org").port == 587
    assert read_server("imap", "imap://[::1]:1143").host == "::1"


async def test_a_wrong_password_is_a_failure_that_says_so(reader: Reader, open_channel: Open) -> None:
    async with reader.reading(open_channel(password="wrong")) as task:
        with pytest.raises(PermanentError, match="refused the name or the password"):
            await asyncio.wait_for(asyncio.shield(task), 30)
    async with reader.reading(open_channel(folder="Nowhere")) as task:
        with pytest.raises(PermanentError, match="no folder 'Nowhere'"):
            await asyncio.wait_for(asyncio.shield(task), 30)


async def test_a_connection_that_breaks_is_a_failure_after_which_reading_goes_on(
    host: MailHost, reader: Reader, open_channel: Open
) -> None:
    async with reader.reading(open_channel()) as task:
        await asyncio.to_thread(host.kick, SPAR)
        with pytest.raises(TransientError, match="IMAP"):
            await asyncio.wait_for(asyncio.shield(task), 30)
    host.write(letter("meanwhile"))
    async with reader.reading(open_channel()):
        await reader.until(lambda: reader.heard)


async def test_a_channel_that_is_cancelled_leaves_no_thread_behind(reader: Reader, open_channel: Open) -> None:
    async with reader.reading(open_channel(poll=1500)):
        await asyncio.sleep(0)
    await reader.until(lambda: not any("mail mail" in thread.name for thread in threading.enumerate()))


async def test_a_mail_over_which_the_server_fails_each_time_does_not_stop_those_behind_it(
    host: MailHost, reader: Reader, open_channel: Open
) -> None:
    channel, failures = open_channel(), 0
    async with reader.reading(channel):
        await reader.until(lambda: "cursor" in reader.rows.rows)
    host.write(letter("bad", id="1@x"))
    [bad] = (host.home / "mail" / SPAR / "new").iterdir()
    bad.chmod(0)
    host.write(letter("good", id="2@x"))
    while not reader.heard and failures < 10:
        async with reader.reading(channel) as task:
            await asyncio.wait([task, asyncio.create_task(reader.until(lambda: reader.heard))], timeout=30,
                               return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
            failures += task.done()
    assert failures == 5
    assert reader.heard[0].text.endswith("good")
    assert channel.snapshot()["passed_over"] == {"unreadable": 1}


@pytest.mark.parametrize("is_first", [True, False])
async def test_an_old_mail_over_which_the_server_fails_does_not_stop_those_behind_it(
    host: MailHost, reader: Reader, open_channel: Open, is_first: bool
) -> None:
    if not is_first:  # else the folder was made anew
        reader.rows.rows["cursor"] = {"validity": 1, "uid": 1000}
    host.write(letter("seen", id="0@x"))
    async with Reader(reader.workspace).reading(open_channel(first="unseen")):
        while not host.flags(SPAR)["seen"]:
            await asyncio.sleep(0.01)
    host.write(letter("bad", id="1@x"))
    [bad] = (host.home / "mail" / SPAR / "new").iterdir()
    bad.chmod(0)
    host.write(letter("good", id="2@x"))
    channel, failures = open_channel(first="unseen" if is_first else "new"), 0
    while not reader.heard and failures < 10:
        async with reader.reading(channel) as task:
            await asyncio.wait([task, asyncio.create_task(reader.until(lambda: reader.heard))], timeout=30,
                               return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
            failures += task.done()
    assert failures == 5
    assert [message.text.split()[-1] for message in reader.heard] == ["good"]
    assert channel.snapshot()["passed_over"] == {"unreadable": 1}


async def test_mail_keeps_the_contract_of_channels(host: MailHost, open_channel: Open) -> None:
    numbers = itertools.count()

    def write(channel: Any, text: str) -> None:
        host.write(letter(text, id=f"c{next(numbers)}@x", Subject=""))

    await check_channel(
        lambda: open_channel(first="unseen"),
        address="alice@example.org",
        provoke=write,
        make_unreachable=lambda: open_channel(imap="imap://127.0.0.1:9", smtp="smtp://127.0.0.1:9"),
        texts=["hello", "two\nlines", "Grüße"],
        limit=30.0,
    )
