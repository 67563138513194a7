"""Network addresses to which a tool may connect.

A name does not tell its addresses: names are resolved first, and then each address is judged by a table of our own.
`ipaddress.is_global` is not good enough: it calls 168.63.129.16, 64:ff9b::7f00:1, 2002:7f00:1::, ::127.0.0.1, fec0::1
and 224.0.0.1 global. Pure: nothing here resolves or connects.

Sources: IANA special-purpose address registries (RFC 6890); metadata addresses of AWS, Azure, Google, Alibaba.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal

from msgspec import Struct

Kind = Literal["local", "forbidden"]
"""`local` addresses may be permitted as a whole (`private`), `forbidden` ones only by being named."""

_NAT64 = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")

# The first row that contains an address decides, so the special rows stand before the wide ones.
_TABLE: tuple[tuple[str, Kind, str], ...] = (
    ("168.63.129.16/32", "forbidden", "the Azure wire server"),
    ("100.100.100.200/32", "forbidden", "a cloud metadata service"),
    ("169.254.0.0/16", "forbidden", "a link-local or cloud metadata address"),
    ("127.0.0.0/8", "local", "a loopback address"),
    ("10.0.0.0/8", "local", "a private address"),
    ("172.16.0.0/12", "local", "a private address"),
    ("192.168.0.0/16", "local", "a private address"),
    ("100.64.0.0/10", "local", "a carrier's private address"),
    ("0.0.0.0/8", "forbidden", "an address of no host"),
    ("192.0.0.0/24", "forbidden", "a reserved address"),
    ("192.0.2.0/24", "forbidden", "a documentation address"),
    ("192.88.99.0/24", "forbidden", "a 6to4 relay"),
    ("198.18.0.0/15", "forbidden", "a benchmarking address"),
    ("198.51.100.0/24", "forbidden", "a documentation address"),
    ("203.0.113.0/24", "forbidden", "a documentation address"),
    ("224.0.0.0/4", "forbidden", "a multicast address"),
    ("240.0.0.0/4", "forbidden", "a reserved address"),
    ("::1/128", "local", "a loopback address"),
    ("fd00:ec2::254/128", "forbidden", "a cloud metadata service"),
    ("fd20:ce::254/128", "forbidden", "a cloud metadata service"),
    ("fc00::/7", "local", "a private address"),
    ("fe80::/10", "forbidden", "a link-local address"),
    ("fec0::/10", "forbidden", "a site-local address"),
    ("ff00::/8", "forbidden", "a multicast address"),
    ("2001::/23", "forbidden", "a reserved or tunnelled address"),
    ("2001:db8::/32", "forbidden", "a documentation address"),
    ("2002::/16", "forbidden", "a 6to4 address"),
    ("3fff::/20", "forbidden", "a documentation address"),
)
_ROWS = tuple((ip_network(network), kind, reason) for network, kind, reason in _TABLE)
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_WEB_PORTS = (80, 443)


class Judgement(Struct, frozen=True):
    """Objection to an address that is not a common public one."""

    kind: Kind
    reason: str


def judge(address: str) -> Judgement | None:
    """Return the objection to an address; None for a public one. Never raises: an unreadable address is forbidden."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return Judgement("forbidden", "no readable address")
    embedded = _embedded_ipv4(parsed) if isinstance(parsed, IPv6Address) else None
    if embedded is not None:
        return judge(str(embedded))
    for network, kind, reason in _ROWS:
        if parsed in network:
            return Judgement(kind, reason)
    if isinstance(parsed, IPv6Address) and parsed not in _GLOBAL_UNICAST:
        return Judgement("forbidden", "a reserved address")
    return None


def _embedded_ipv4(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address to which a mapped, compatible or NAT64 address leads; None for other addresses."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None


class AllowedHost(Struct, frozen=True):
    """Entry of an allow list: `example.org`, `*.corp.local`, `127.0.0.1:8080`, `[::1]:9090`, `*` (any host)."""

    host: str
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> AllowedHost:
        """Return the entry for a text.

        Raises: ValueError for a text that is not a host, pattern or address with an optional port.
        """
        host, port = text.strip(), ""
        if host.startswith("["):
            host, bracket, port = host[1:].partition("]")
            if not bracket or (port and not port.startswith(":")):
                raise ValueError(f"{text!r} must look like [::1] or [::1]:8080")
            port = port[1:]
        elif host.count(":") == 1:
            host, _, port = host.partition(":")
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f"{text!r} must have a port from 1 to 65535")
        domain = host[2:] if host.startswith("*.") else "" if host == "*" else host
        if (
            not host
            or host == "*."
            or "*" in domain
            or any(character in domain for character in "/@[]\\ ")
            or not domain.isprintable()
        ):
            raise ValueError(f"{text!r} must be a host, an address, '*.domain' or '*', with an optional ':port'")
        return cls(_plain(host), int(port) if port else None)

    def matches(self, host: str, port: int) -> bool:
        if self.port not in (None, port):
            return False
        name = _plain(host)
        return self.host in ("*", name) or (self.host.startswith("*.") and name.endswith(self.host[1:]))


class Guard(Struct, frozen=True):
    """Rules that judge a host and then each address that it resolves to.

    Without entries every public host is allowed, on ports 80 and 443; with entries only the hosts that match one. An
    entry other than `*` also allows local addresses, on the entry's port or, without one, on any. An entry that is
    itself an address allows exactly this one, whatever it is. `private` allows local addresses and any port. `public`
    are hosts with all ports allowed, but not their local addresses.
    """

    entries: tuple[AllowedHost, ...] = ()
    private: bool = False
    public: tuple[AllowedHost, ...] = ()

    @classmethod
    def of(cls, allow: Sequence[str], *, private: bool = False, public: Sequence[str] = ()) -> Guard:
        """Return the guard for these lists. Raises: ValueError naming the entry that cannot be read."""
        return cls(tuple(map(AllowedHost.parse, allow)), private, tuple(map(AllowedHost.parse, public)))

    def against(self, host: str, port: int, addresses: Sequence[str]) -> str | None:
        """Return why a connection is not allowed, as a sentence, or None. One bad address among several refuses all."""
        matching = [entry for entry in self.entries if entry.matches(host, port)]
        named = [entry for entry in matching if entry.host != "*"]
        is_public = any(entry.matches(host, port) for entry in self.public)
        if self.entries and not matching and not is_public:
            known = ", ".join(_show(entry) for entry in self.entries)
            return f"host {host!r} on port {port} is not allowed; allowed: {known}"
        if not named and not self.private and not is_public and port not in _WEB_PORTS:
            return f"port {port} of {host!r} is not allowed: only 80 and 443, or list '{host}:{port}' under allow"
        if not addresses:
            return f"host {host!r} has no address"
        for address in addresses:
            judgement = judge(address)
            if judgement is None or any(entry.host == _plain(address) for entry in named):
                continue
            if judgement.kind == "forbidden" or not (named or self.private):
                remedy = " without private = true" if is_public and judgement.kind == "local" else ""
                return f"host {host!r} leads to {address}, {judgement.reason}, which is not allowed{remedy}"
        return None


def is_address(host: str) -> bool:
    """Return whether a host is an address, not a name."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine itself: only it can reach, or is reached at, such an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _plain(host: str) -> str:
    name = host.lower().rstrip(".")
    try:
        return str(ip_address(name))
    except ValueError:
        return name


def _show(entry: AllowedHost) -> str:
    host = f"[{entry.host}]" if ":" in entry.host else entry.host
    return host if entry.port is None else f"{host}:{entry.port}"
