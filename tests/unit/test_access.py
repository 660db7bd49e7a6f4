"""Networks that may send, and the address that a request comes from (contract 4)."""

from ipaddress import ip_address

import pytest

from snapbid.base.access import (
    MAX_HOPS,
    MAX_NETWORKS,
    client_address,
    contains,
    parse_address,
    parse_network,
    parse_networks,
)


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("192.0.2.1", "192.0.2.1/32"),
        ("192.0.2.0/24", "192.0.2.0/24"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("2001:DB8::1", "2001:db8::1/128"),
        ("2001:db8::/32", "2001:db8::/32"),
        ("::/0", "::/0"),
        ("::ffff:192.0.2.1", "192.0.2.1/32"),
        ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
    ],
)
def test_networks(text: str, network: str) -> None:
    assert str(parse_network(text)) == network


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("", "must be an IPv4 or IPv6 address"),
        ("example.com", "must be an IPv4 or IPv6 address"),
        ("192.0.2", "must be an IPv4 or IPv6 address"),
        ("192.0.2.256", "must be an IPv4 or IPv6 address"),
        ("010.0.0.1", "must be an IPv4 or IPv6 address"),
        ("3221225985", "must be an IPv4 or IPv6 address"),
        ("fe80::1%eth0", "must be an IPv4 or IPv6 address"),
        ("[::1]", "must be an IPv4 or IPv6 address"),
        (" 192.0.2.1", "must be an IPv4 or IPv6 address"),
        ("192.0.2.0/", "must have a prefix of 0 to 32 bits"),
        ("192.0.2.0/33", "must have a prefix of 0 to 32 bits"),
        ("192.0.2.0/-1", "must have a prefix of 0 to 32 bits"),
        ("192.0.2.0/255.255.255.0", "must have a prefix of 0 to 32 bits"),
        ("192.0.2.0/0.0.0.255", "must have a prefix of 0 to 32 bits"),
        ("2001:db8::/129", "must have a prefix of 0 to 128 bits"),
        ("192.0.2.1/24", "has bits set beyond its prefix: did you mean 192.0.2.0/24?"),
        ("2001:db8::1/32", "has bits set beyond its prefix: did you mean 2001:db8::/32?"),
    ],
)
def test_malformed_networks(text: str, mistake: str) -> None:
    with pytest.raises(ValueError, match=f"^{text[:60]!a} ".replace("[", r"\[")) as refused:
        parse_network(text)
    assert mistake in str(refused.value)


def test_every_mistake_is_named_and_repeats_are_dropped() -> None:
    with pytest.raises(ValueError, match=r"'a' .*\n'10\.0\.0\.1/8' ") as refused:
        parse_networks(["a", "192.0.2.0/24", "10.0.0.1/8"])
    assert len(str(refused.value).splitlines()) == 2
    assert len(parse_networks(["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1/32"])) == 1
    with pytest.raises(ValueError, match="at most 1,000 networks, found 1,001"):
        parse_networks([f"10.0.{n >> 8}.{n & 255}" for n in range(MAX_NETWORKS + 1)])


@pytest.mark.parametrize(
    ("network", "address", "is_inside"),
    [
        ("192.0.2.0/24", "192.0.2.255", True),
        ("192.0.2.0/24", "192.0.3.0", False),
        ("192.0.2.0/24", "::ffff:192.0.2.7", True),
        ("::ffff:192.0.2.0/120", "192.0.2.7", True),
        ("2001:db8::/32", "2001:db8:ffff::1", True),
        ("2001:db8::/32", "2001:db9::", False),
        ("0.0.0.0/0", "2001:db8::1", False),
        ("::/0", "192.0.2.1", False),
        ("::/0", "::ffff:192.0.2.1", False),
        ("::/0", "::1", True),
    ],
)
def test_network_membership(network: str, address: str, is_inside: bool) -> None:
    parsed = parse_address(address)
    assert parsed is not None
    assert contains([parse_network(network)], parsed) == is_inside


PROXIES = parse_networks(["10.0.0.0/8", "::1", "2001:db8::/32"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", ["198.51.100.1"], "192.0.2.1"),  # no proxy of ours: not believed
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("::ffff:10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("::1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["192.0.2.9, 198.51.100.1"], "198.51.100.1"),  # the right-most untrusted
        ("10.0.0.1", ["192.0.2.9, 198.51.100.1, 10.1.1.1"], "198.51.100.1"),
        ("10.0.0.1", ["192.0.2.9", "198.51.100.1,10.1.1.1"], "198.51.100.1"),  # several headers
        ("10.0.0.1", ["198.51.100.1,10.1.1.1", "2001:db8::5"], "198.51.100.1"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),  # one of us
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1:4711"], "198.51.100.1"),
        ("10.0.0.1", ["[2001:db9::1]:4711"], "2001:db9::1"),
        ("10.0.0.1", ["[2001:db9::1]"], "2001:db9::1"),
        ("10.0.0.1", ["2001:db9::1"], "2001:db9::1"),
        ("10.0.0.1", ["::ffff:198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.1, unknown"], None),
        ("10.0.0.1", [""], None),
        ("10.0.0.1", ["198.51.100.1,"], None),
        ("10.0.0.1", ["\xff"], None),
        ("10.0.0.1", ["198.51.100.1:99999999"], None),
        ("10.0.0.1", ["198.51.100.1, " + "10.0.0.2," * MAX_HOPS + "10.0.0.2"], None),
        ("", ["198.51.100.1"], None),  # a unix socket
    ],
)
def test_client_address(peer: str, forwarded: list[str], client: str | None) -> None:
    values = [value.encode("latin-1") for value in forwarded]
    expected = None if client is None else ip_address(client)
    assert client_address(peer, values, PROXIES) == expected


def test_forwarded_headers_are_ignored_without_proxies() -> None:
    assert str(client_address("10.0.0.1", [b"198.51.100.1"], ())) == "10.0.0.1"
