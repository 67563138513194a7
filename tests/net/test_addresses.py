"""Which addresses may be connected to."""

from __future__ import annotations

import pytest

from spar.net.addresses import AllowedHost, Guard, judge

pytestmark = pytest.mark.usefixtures("offline")


@pytest.mark.parametrize(
    "address",
    [
        "93.184.216.34",
        "8.8.8.8",
        "192.31.196.1",
        "2606:4700::1111",
        "2a00:1450::1",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
    ],
)
def test_nothing_speaks_against_a_public_address(address: str) -> None:
    assert judge(address) is None


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.0.9",
        "10.1.2.3",
        "172.31.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "::1",
        "fd12::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "::127.0.0.1",
        "64:ff9b::a00:1",
    ],
)
def test_an_address_of_the_own_network_is_local_however_it_is_written(address: str) -> None:
    found = judge(address)

    assert found.kind == "local"


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "168.63.129.16",
        "100.100.100.200",
        "fd00:ec2::254",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "198.18.0.1",
        "192.0.2.1",
        "192.88.99.1",
        "2002:7f00:1::",
        "2001::1",
        "2001:db8::1",
        "3fff::1",
        "fec0::1",
        "fe80::1",
        "fe80::1%eth0",
        "ff02::1",
        "::",
        "100::1",
        "64:ff9b:1::1",
        "64:ff9b::a9fe:a9fe",
        "::ffff:169.254.169.254",
        "5f00::1",
        "4000::1",
        "127.1",
        "2130706433",
        "",
        "nonsense",
        "①②⑦.⓪.⓪.①",
    ],
)
def test_metadata_special_and_unreadable_addresses_are_forbidden(address: str) -> None:
    found = judge(address)

    assert found.kind == "forbidden"


def test_without_a_list_public_hosts_are_reached_on_web_ports_only() -> None:
    guard = Guard()

    assert guard.against("example.org", 443, ["93.184.216.34"]) is None
    assert guard.against("example.org", 80, ["93.184.216.34"]) is None
    assert "port 22 of 'example.org'" in (guard.against("example.org", 22, ["93.184.216.34"]) or "")


def test_one_bad_address_among_good_ones_refuses_the_host() -> None:
    refusal = Guard().against("rebind.example", 80, ["93.184.216.34", "127.0.0.1"])

    assert refusal == "host 'rebind.example' leads to 127.0.0.1, a loopback address, which is not allowed"


def test_a_host_without_addresses_is_refused() -> None:
    assert Guard(private=True).against("void.example", 80, []) == "host 'void.example' has no address"


def test_a_list_admits_nothing_else() -> None:
    guard = Guard.of(["example.org", "[::1]:9090"])

    refusal = guard.against("example.com", 80, ["93.184.216.34"])

    assert refusal == "host 'example.com' on port 80 is not allowed; allowed: example.org, [::1]:9090"


def test_a_listed_host_may_be_local_and_on_any_port() -> None:
    guard = Guard.of(["*.corp.local", "127.0.0.1:8080"])

    assert guard.against("wiki.corp.local", 8443, ["10.0.0.7"]) is None
    assert guard.against("WIKI.CORP.LOCAL.", 80, ["10.0.0.7"]) is None
    assert guard.against("127.0.0.1", 8080, ["127.0.0.1"]) is None
    assert guard.against("127.0.0.1", 8081, ["127.0.0.1"]) is not None
    assert guard.against("corp.local", 80, ["10.0.0.7"]) is not None
    assert guard.against("evilcorp.local", 80, ["10.0.0.7"]) is not None


def test_metadata_is_reached_only_by_its_own_address() -> None:
    assert Guard(private=True).against("meta", 80, ["169.254.169.254"]) is not None
    assert Guard.of(["meta"]).against("meta", 80, ["169.254.169.254"]) is not None
    assert Guard.of(["169.254.169.254"]).against("169.254.169.254", 80, ["169.254.169.254"]) is None


def test_the_star_means_any_public_host_and_no_local_one() -> None:
    guard = Guard.of(["*", "intern:9000"])

    assert guard.against("example.org", 443, ["93.184.216.34"]) is None
    assert guard.against("example.org", 22, ["93.184.216.34"]) is not None
    assert guard.against("sneaky", 80, ["10.0.0.1"]) is not None
    assert guard.against("intern", 9000, ["10.0.0.1"]) is None


def test_private_permits_the_own_network_on_any_port() -> None:
    assert Guard(private=True).against("box", 9090, ["192.168.1.2", "fd00::2"]) is None


def test_a_public_host_may_have_any_port_and_no_local_address() -> None:
    guard = Guard.of(["*"], public=["status.example:8443"])

    assert guard.against("status.example", 8443, ["93.184.216.34"]) is None
    assert guard.against("status.example", 8444, ["93.184.216.34"]) is not None
    refusal = guard.against("status.example", 8443, ["10.0.0.7"])
    assert (
        refusal
        == "host 'status.example' leads to 10.0.0.7, a private address, which is not allowed without private = true"
    )


@pytest.mark.parametrize(
    "text", ["", "a/b", "http://a", "a:0", "a:65536", "a:x", "*a.b", "a*", "*.", "[::1", "u@h", "[::1]9", "a b"]
)
def test_an_entry_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        AllowedHost.parse(text)


def test_addresses_are_compared_by_value_not_by_spelling() -> None:
    assert AllowedHost.parse("[0:0::1]:80").matches("::1", 80)
    assert AllowedHost.parse("FE80::0:1").matches("fe80::1", 443)
