"""Forged senders and mails that no person wrote: what the own server says counts, and nothing that came with a mail."""

from __future__ import annotations

import pytest

from spar.mail.origin import failure_of, reason_not_to_plan
from tests.mail.letters import PASSED, mail

OWN = "mx.spar.test"


def results(*lines: str) -> str:
    return "".join(f"Authentication-Results: {line}\r\n" for line in lines)


@pytest.mark.parametrize("line", [
    PASSED,
    "mx.spar.test 1; dmarc=pass (p=reject; sp=none) header.from=Example.org",
    'MX.spar.test; dkim=pass header.d="example.org"; dmarc=pass header.from=example.org',
    "mx.spar.test; dkim=pass header.d=example.org",
    "mx.spar.test; spf=pass smtp.mailfrom=bounce@example.org",
    "mx.spar.test; dkim=fail header.d=x.org; dkim=pass header.d=example.org",
])  # fmt: skip
def test_a_mail_that_passed_is_its_senders(line: str) -> None:
    assert failure_of(mail(head=results(line)), OWN) == ""


@pytest.mark.parametrize("line", [
    "mx.evil.net; dmarc=pass header.from=example.org",
    "mx.spar.test.evil.net; dmarc=pass header.from=example.org",
    "mx.spar.test; dmarc=fail header.from=example.org; dkim=pass header.d=example.org",
    "mx.spar.test; dmarc=pass header.from=evil.net",
    "mx.spar.test; dkim=pass header.d=evil.net; spf=pass smtp.mailfrom=eve@evil.net",
    "mx.spar.test; dkim=pass header.d=org",
    "mx.spar.test; dkim=pass header.d=ample.org",
    "mx.spar.test; spf=fail smtp.mailfrom=x@example.org (dmarc=pass header.from=example.org)",
    'mx.spar.test; spf=fail reason="; dmarc=pass header.from=example.org"',
    "mx.spar.test; none",
    "mx.spar.test",
    "(mx.spar.test;) dmarc=pass",
    "",
    'mx.spar.test; spf=pass smtp.mailfrom="x@example.org"@evil.net',
    'mx.spar.test; spf=pass smtp.mailfrom="x\\"; dkim=pass header.d=example.org; y=\\""@evil.net',
    'mx.spar.test; spf=pass (it sent "x); dkim=pass header.d=example.org; ("@evil.net) smtp.mailfrom=evil.net',
    "mx.spar.test; spf=pass (it sent x\\); dkim=pass header.d=example.org) smtp.mailfrom=evil.net",
    f"mx.spar.test; spf=pass smtp.mailfrom={'x' * 308}@example.org.evil.net",
])  # fmt: skip
def test_a_mail_that_did_not_pass_is_forged(line: str) -> None:
    assert failure_of(mail(head=results(line)), OWN)


def test_a_result_that_came_with_the_mail_does_not_count() -> None:
    forged = results("mx.spar.test; dmarc=pass header.from=example.org")
    own = results("mx.spar.test; dmarc=fail header.from=example.org")
    below = "Received: by mx.spar.test\r\n"
    assert failure_of(mail(head=own + below + forged), OWN).startswith("dmarc=fail")
    assert failure_of(mail(head=own + forged), OWN).startswith("dmarc=fail")
    assert failure_of(mail(head=results("mx.spar.test; spf=none") + below + forged), OWN)


def test_results_that_are_too_long_to_be_read_count_as_none() -> None:
    """Cut where the header is cut, a domain could be another one."""
    said, domain = "mx.spar.test; dkim=pass header.s=", " header.d=example.org"
    for length in range(4090, 4100):
        long = results(said + "x" * (length - len(said + domain)) + domain + ".evil.net")
        assert failure_of(mail(head=long), OWN).startswith("no "), length


def test_a_subdomain_is_covered_by_the_domain_above_it() -> None:
    found = mail(From="a@mail.example.org", head=results("mx.spar.test; dkim=pass header.d=example.org"))
    assert failure_of(found, OWN) == ""


@pytest.mark.parametrize(("headers", "reason"), [
    ({"Return_Path": "<>"}, "bounce"),
    ({"From": "MAILER-DAEMON@example.org"}, "bounce"),
    ({"Content_Type": "multipart/report; report-type=delivery-status; boundary=x"}, "bounce"),
    ({"From": "Spar <SPAR@spar.test>"}, "own"),
    ({"X_Loop": "spar@spar.test"}, "own"),
    ({"X_Spar_Agent": "other@example.org"}, "agent"),
    ({"List_Id": "<a.example.org>"}, "list"),
    ({"Precedence": "bulk"}, "list"),
    ({"Auto_Submitted": "auto-replied; x"}, "automatic"),
    ({"Auto_Submitted": "no"}, ""),
    ({"From": "no-reply@example.org"}, "automatic"),
    ({"X_Autoreply": "yes"}, "automatic"),
    ({}, ""),
])  # fmt: skip
def test_a_mail_that_no_person_wrote_is_told_from_others(headers: dict[str, str], reason: str) -> None:
    assert reason_not_to_plan(mail(**headers), "spar@spar.test") == reason
