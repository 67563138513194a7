"""Origin of a mail: the proof that the From address sent it, from the checks of the configured own server; and mails
that no person wrote: bounces, automatic answers, mailing lists, the agent's own. None of these reaches a planner, since
answering one begins a loop (RFC 3834 section 2).

The server's result is the header `Authentication-Results` (RFC 8601) under its own name. Anybody can write such a
header into a mail, so only the topmost ones count, down to the first `Received` below them: the headers below came
with the mail. The server must remove foreign headers of its own name (RFC 8601 section 5), as all servers do. Pure.
"""

from __future__ import annotations

import re
from typing import Final

from spar.mail.incoming import Mail

_QUOTED: Final = r'"((?:\\.?|[^"\\])*)"?'
#: Tokens of a header outside of comments and inside: quoted text, brackets, other text.
_TEXT: Final = re.compile(rf'{_QUOTED}|[()]|[^"()]+', re.DOTALL)
_COMMENT: Final = re.compile(rf'{_QUOTED}|[()]|\\.?|[^"()\\]+', re.DOTALL)
_NO_DOMAIN: Final = re.compile(r"\\.?|[^\w.\-]", re.DOTALL)
#: A result (`dmarc=pass`), or a property of one (`header.from=example.org`).
_PAIR = re.compile(r"([a-z0-9.\-]{1,60})(?:/[0-9]{1,3})?[ ]?=[ ]?([^\s;]+)", re.IGNORECASE)


def failure_of(mail: Mail, trusted: str) -> str:
    """Return the reason why the From of a mail is not proven, "" if it is.

    DMARC's verdict counts where the server gives one. Otherwise DKIM or SPF must have passed for the domain of the
    From, or for a parent domain.

    Args: trusted: the name that the own server writes into Authentication-Results.
    """
    domain = mail.sender.rpartition("@")[2].lower()
    results = results_of(mail, trusted)
    if not results:
        return f"no Authentication-Results of {trusted}"
    verdicts: dict[str, str] = {}
    for method, value, properties in results:
        verdicts.setdefault(method, value)
        if method == "dmarc":
            named = properties.get("header.from", domain).lower()
            return "" if value == "pass" and named == domain else f"dmarc={value} for {named}"
    for method, value, properties in results:
        if value == "pass" and method == "dkim" and _covers(properties.get("header.d", ""), domain):
            return ""
        if value == "pass" and method == "spf" and _covers(_domain(properties.get("smtp.mailfrom", "")), domain):
            return ""
    verdict_list = ", ".join(f"{method}={value}" for method, value in verdicts.items()) or "nothing"
    return f"no DMARC, DKIM or SPF that passed for {domain} ({verdict_list})"


def results_of(mail: Mail, trusted: str) -> list[tuple[str, str, dict[str, str]]]:
    """Return the results of the trusted server: method, result and properties, the topmost first."""
    results: list[tuple[str, str, dict[str, str]]] = []
    has_begun = False
    for name, value in mail.headers:
        if name == "received" and has_begun:
            break
        if name != "authentication-results":
            continue
        server, _, statements = _plain(value).partition(";")
        words = server.split()
        if words and words[0].lower() == trusted.lower():
            has_begun = True
            results += [result for result in map(_result, statements.split(";")) if result is not None]
    return results


def _result(text: str) -> tuple[str, str, dict[str, str]] | None:
    pairs = [(name.lower(), value) for name, value in _PAIR.findall(text)]
    if not pairs or "." in pairs[0][0]:
        return None
    properties: dict[str, str] = {}
    for name, value in pairs[1:]:
        properties.setdefault(name, value)
    return pairs[0][0], pairs[0][1].lower(), properties


def _plain(text: str) -> str:
    """Return a header without comments in brackets and without quotes.

    In quoted text only characters of domains stay unchanged: a server puts the address that a mail was sent from into
    its results, and anybody may choose one like `"x@example.org"@evil.net`. A quote also counts inside brackets, where
    servers write addresses too.
    """
    depth = at = 0
    parts: list[str] = []
    while match := (_COMMENT if depth else _TEXT).match(text, at):
        at, token, quoted = match.end(), match[0], match[1]
        if token in "()":
            depth = max(depth + (1 if token == "(" else -1), 0)
        elif not depth:
            parts.append(token if quoted is None else _NO_DOMAIN.sub("_", quoted))
    return "".join(parts)


def _domain(address: str) -> str:
    return address.rpartition("@")[2]


def _covers(checked: str, domain: str) -> bool:
    """Return whether a pass for one domain proves another one: the same, or a subdomain of it."""
    checked = checked.strip("<>. ").lower()
    return "." in checked and (checked == domain or domain.endswith(f".{checked}"))


#: Headers with the address of the agent that wrote a mail: one for agents of this kind, one for other programs.
OWN_HEADER: Final = "x-spar-agent"
LOOP_HEADER: Final = "x-loop"
_LISTS: Final = ("list-id", "list-post", "list-unsubscribe", "list-help", "list-owner", "mailing-list")
_DAEMONS: Final = ("mailer-daemon", "mail-daemon", "postmaster", "noreply", "no-reply", "donotreply", "bounce")


def reason_not_to_plan(mail: Mail, address: str) -> str:
    """Return the reason not to answer a mail: `bounce`, `own`, `agent`, `automatic` or `list`; "" for a person's mail.

    Args: address: the agent's own.
    """
    sender, own, path = mail.sender.lower(), address.lower(), mail.first("return-path").strip()
    local = sender.partition("@")[0]
    if mail.is_report or path in ("<>", "< >") or local in ("mailer-daemon", "mail-daemon", "postmaster"):
        return "bounce"
    if own in (sender, *(value.strip().lower() for value in mail.all(OWN_HEADER))):
        return "own"
    if any(own in value.lower() for value in mail.all(LOOP_HEADER)):
        return "own"
    if mail.first(OWN_HEADER):
        return "agent"
    if any(mail.first(name) for name in _LISTS) or mail.first("precedence").strip().lower() in ("list", "bulk", "junk"):
        return "list"
    submitted = mail.first("auto-submitted").partition(";")[0].strip().lower()
    is_automatic = any(map(mail.first, ("x-autoreply", "x-autorespond"))) or local in _DAEMONS
    if is_automatic or submitted not in ("", "no") or mail.first("x-auto-response-suppress").lower() == "all":
        return "automatic"
    return ""
