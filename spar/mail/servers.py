"""Servers and addresses as the configuration names them, and the terms of connections to the servers.

Nothing goes over a network unencrypted: without TLS only a server on this machine is allowed.
"""

from __future__ import annotations

import os
import ssl
from email.headerregistry import Address
from typing import Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from spar.data.scrub import know
from spar.data.text import safe_line
from spar.errors import ConfigError
from spar.net.addresses import is_loopback

Security = Literal["tls", "starttls", "none"]
#: Schemes of each protocol, with the security of the connection and the usual port.
SCHEMES: Final[dict[str, dict[str, tuple[Security, int]]]] = {
    "imap": {"imaps": ("tls", 993), "imap+starttls": ("starttls", 143), "imap": ("none", 143)},
    "smtp": {"smtps": ("tls", 465), "smtp+starttls": ("starttls", 587), "smtp": ("none", 25)},
}


class Server(Struct, frozen=True):
    """Mail server: host, port, and the security of the connection."""

    host: str
    port: int
    security: Security


def read_server(option: str, text: str) -> Server:
    """Return the server that an option names. Raises: ConfigError with the allowed forms."""
    schemes = SCHEMES[option]
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ConfigError(f"{option} = {text!r:.100}: {error}", path=(option,)) from None
    known = ", ".join(f"{scheme}://HOST[:PORT]" for scheme in schemes)
    if parts.scheme not in schemes or not host or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ConfigError(f"{option} = {text!r:.100}: must be one of {known}", path=(option,))
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{option}: the name and the password stand in `user` and `password_env`", path=(option,))
    security, usual = schemes[parts.scheme]
    if security == "none" and not is_loopback(host):
        secure = " or ".join(f"{scheme}://{host}" for scheme, (how, _) in schemes.items() if how != "none")
        sentence = f"{option} = {text!r:.100}: would send mails and the password in the clear; use {secure}"
        raise ConfigError(sentence, path=(option,))
    return Server(host, port or usual, security)


def read_address(option: str, text: str, display: str = "") -> Address:
    """Return the address of an option, with the name beside it. Raises: ConfigError for an invalid one."""
    try:
        address = Address(display_name=display, addr_spec=text)
        if not address.username or not address.domain or not address.addr_spec.isascii():
            raise ValueError("it has no name or no domain, or is not ASCII")
    except Exception as error:  # the library raises errors of any kind for an invalid address
        problem = f"{option} = {text!r:.100}: must be like spar@example.org: {error}"
        raise ConfigError(problem, path=(option,)) from None
    return address


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return the TLS settings: certificates are checked, also against those of `ca_file`. Raises: ConfigError."""
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"ca_file = {ca_file!r}: cannot be read: {error}", path=("ca_file",)) from None
    return context


def read_password(option: str | None, variable: str) -> str:
    """Return the password from the option or the environment variable. Raises: ConfigError when there is none."""
    password = option or os.environ.get(variable, "")
    if not password:
        sentence = f"the environment variable {variable!r}, which is to hold the password of the mailbox, is not set"
        raise ConfigError(sentence, path=("password_env",))
    know(password)
    return password


def reason_of(error: BaseException) -> str:
    """Return the words of an error on one line."""
    return safe_line(error, 300) or type(error).__name__
