"""Recognition of requests that a browser sends for a web page: any page can make it send some to this machine.

A page of another origin is recognized by the headers that the browser adds (`Origin`, `Sec-Fetch-Site`,
https://www.w3.org/TR/fetch-metadata/). A page whose own host name resolves to this machine (DNS rebinding) is
recognized by that name in `Host`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address
from typing import Final

from starlette.datastructures import Headers

#: A `Host` header of this machine, with or without a port.
_LOCAL: Final = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?", re.ASCII | re.IGNORECASE)
_PORT: Final = re.compile(r":\d{1,5}\Z", re.ASCII)
#: Values of `Sec-Fetch-Site` that name no other origin: a page of this origin, and an address that a person typed.
_OWN: Final = ("same-origin", "none")


class HostNames:
    """The host names under which the port is served.

    Args: listens_to: the address that the port listens on; names: more names, such as that of a reverse proxy.
    """

    def __init__(self, listens_to: str, names: Iterable[str] = ()) -> None:
        self._names = frozenset(name.casefold() for name in names)
        #: Whether other machines can reach the port.
        self.is_open = not is_local(url_host(listens_to))

    def is_known(self, host: str) -> bool:
        """Return whether a `Host` header names this machine or one of the names.

        If other machines can reach the port, any IP address is known, too: DNS rebinding needs a name.
        """
        name = _PORT.sub("", host).casefold()
        return is_local(host) or name in self._names or (self.is_open and _is_address(name))

    def is_foreign(self, headers: Headers) -> bool:
        """Return whether a browser sends the request for a page of another origin."""
        if headers.get("sec-fetch-site", _OWN[0]).casefold() not in _OWN:
            return True
        return any(not _is_same(origin, headers) for origin in headers.getlist("origin"))

    def is_own(self, headers: Headers) -> bool:
        """Return whether a browser says that it sends the request for a page of this origin."""
        is_told = headers.get("sec-fetch-site", "").casefold() == _OWN[0] or "origin" in headers
        return is_told and not self.is_foreign(headers)


def _is_same(origin: str, headers: Headers) -> bool:
    host = headers.get("host", "").casefold()
    return origin.casefold() in (f"http://{host}", f"https://{host}")


def is_local(host: str) -> bool:
    """Return whether a `Host` header is a loopback name or address."""
    if _LOCAL.fullmatch(host) is None:
        return False
    name = _PORT.sub("", host)
    return name.casefold() == "localhost" or _is_address(name)


def is_local_peer(address: str) -> bool:
    """Return whether the address of a peer is a loopback address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return parsed.is_loopback or (mapped is not None and mapped.is_loopback)


def url_host(host: str) -> str:
    """Return an address in the form of a URL: IPv6, recognized by its colon, in brackets."""
    return f"[{host}]" if ":" in host else host


def _is_address(name: str) -> bool:
    """Return whether a name is an IP address, with or without brackets."""
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
