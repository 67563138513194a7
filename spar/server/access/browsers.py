"""Requests of web pages: a browser sends them for any page, with whatever it may reach.

A page of another origin is refused by what the browser adds (`Origin`, `Sec-Fetch-Site`,
https://www.w3.org/TR/fetch-metadata/). A page that has had its own name lead to this machine (DNS rebinding) is refused
by that name, which stands in `Host`.
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
#: Relations of a page to this origin that are no page of another one: its own, and what a person typed.
_OWN: Final = ("same-origin", "none")


class HostNames:
    """The names under which a port may be asked.

    Args: listens_to: the address that it listens on; names: names of a proxy before it, and the like.
    """

    def __init__(self, listens_to: str, names: Iterable[str] = ()) -> None:
        self._names = frozenset(name.casefold() for name in names)
        #: Whether it listens to other machines.
        self.is_open = not is_local(url_host(listens_to))

    def is_known(self, host: str) -> bool:
        """Return whether a `Host` header names this machine or one of the names; where it listens to other machines
        any address will do: rebinding needs a name."""
        name = _PORT.sub("", host).casefold()
        return is_local(host) or name in self._names or (self.is_open and _is_address(name))

    def is_foreign(self, headers: Headers) -> bool:
        """Return whether a page of another origin has a browser ask."""
        if headers.get("sec-fetch-site", _OWN[0]).casefold() not in _OWN:
            return True
        origins, host = headers.getlist("origin"), headers.get("host", "").casefold()
        return any(each.casefold() not in (f"http://{host}", f"https://{host}") for each in origins)


def is_local(host: str) -> bool:
    """Return whether a `Host` header names this machine, as seen from itself."""
    return _LOCAL.fullmatch(host) is not None


def is_local_peer(address: str) -> bool:
    """Return whether a peer is a program of this machine, by its address."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return found.is_loopback or (mapped is not None and mapped.is_loopback)


def url_host(host: str) -> str:
    """An address as it stands in a URL: a colon means IPv6, which goes into brackets."""
    return f"[{host}]" if ":" in host else host


def _is_address(name: str) -> bool:
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
