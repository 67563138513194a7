"""Mails for tests, as their bytes."""

from __future__ import annotations

from spar.mail.incoming import Mail, read_mail

PASSED = "mx.spar.test; dmarc=pass header.from=example.org; spf=pass smtp.mailfrom=alice@example.org"


def letter(body: str = "how are you?", *, id: str = "1@example.org", head: str = "", **headers: str) -> bytes:
    """Return the bytes of a mail of Alice; `head` stands above its headers, an empty header is left out."""
    given = {
        "Received": "from example.org by mx.spar.test; Sun, 22 Nov 2026 10:00:00 +0000",
        "From": "Alice <alice@example.org>",
        "To": "spar@spar.test",
        "Subject": "a question",
        "Date": "Sun, 22 Nov 2026 10:00:00 +0000",
        "Message-ID": f"<{id}>" if id else "",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"{name}: {value}" for name, value in given.items() if value]
    return (head + "\r\n".join(lines) + "\r\n\r\n" + body.replace("\n", "\r\n") + "\r\n").encode(
        "utf-8", "surrogateescape"
    )


def mail(body: str = "how are you?", *, id: str = "1@example.org", head: str = "", **headers: str) -> Mail:
    """Return the mail of `letter`."""
    return read_mail(letter(body, id=id, head=head, **headers))
