"""Access control: parse networks, and find the client's address.

IPv4-mapped IPv6 addresses (`::ffff:192.0.2.1`), which dual-stack sockets report, count as IPv4.
"""

import ipaddress
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_QPS: Final = 1_000_000
MAX_NETWORKS: Final = 1_000
MAX_HOPS: Final = 32  # trusted proxies in a row
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
_PORT: Final = re.compile(r"(?:\[([^\]]*)\]|([0-9.]+))(?::[0-9]{1,5})?")


class SspAccess(NamedTuple):
    """Access rules of an SSP.

    `allow`: networks it may send from; empty allows any. `qps`: limit on requests per second; None
    for no limit. `signed`: whether the notification URLs of its bids are signed.
    """

    allow: tuple[str, ...] = ()
    qps: int | None = None
    signed: bool = False

    @property
    def is_narrowed(self) -> bool:
        """Whether the SSP is restricted to networks or to a request rate."""
        return bool(self.allow) or self.qps is not None


def parse_network(text: str) -> Network:
    """Parse `ADDRESS` or `ADDRESS/BITS`. Raises ValueError naming the mistake."""
    host, slash, bits = text.partition("/")
    try:
        if "%" in host:
            raise ValueError
        address = ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(f"{text[:60]!a} must be an IPv4 or IPv6 address or network") from None
    longest = address.max_prefixlen
    if not slash:
        bits = str(longest)
    if not re.fullmatch("[0-9]{1,3}", bits) or int(bits) > longest:
        raise ValueError(f"{text[:60]!a} must have a prefix of 0 to {longest} bits")
    network = ipaddress.ip_network(f"{host}/{bits}", strict=False)
    if network.network_address != address:
        raise ValueError(f"{text[:60]!a} has bits set beyond its prefix: did you mean {network}?")
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED):
        inner = network.network_address.ipv4_mapped
        assert inner is not None
        return ipaddress.IPv4Network((inner, network.prefixlen - _MAPPED.prefixlen))
    return network


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Parse several networks, dropping duplicates. Raises ValueError with a line per mistake."""
    networks: dict[Network, None] = {}
    mistakes = []
    for text in texts:
        try:
            networks[parse_network(text)] = None
        except ValueError as mistake:
            mistakes.append(str(mistake))
    if len(texts) > MAX_NETWORKS:
        mistakes.append(f"at most {MAX_NETWORKS:,} networks, found {len(texts):,}")
    if mistakes:
        raise ValueError("\n".join(mistakes))
    return tuple(networks)


@lru_cache(4096)
def parse_address(text: str) -> Address | None:
    """Parse an IP address; None if it is malformed."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address
    return address


def contains(networks: Sequence[Network], address: Address) -> bool:
    return any(address in network for network in networks)


def client_address(
    peer: str, forwarded: Sequence[bytes], proxies: Sequence[Network]
) -> Address | None:
    """Return the address of a request's client; None if it is missing or malformed.

    `peer`: the other end of the connection; `forwarded`: the values of all `X-Forwarded-For`
    headers. Each proxy appends the address of its client, so addresses are read from the right, up
    to the first that is not a trusted proxy; anything further left may be forged.
    """
    address = parse_address(peer)
    if not proxies or not forwarded:
        return address
    hops = b",".join(forwarded).rsplit(b",", MAX_HOPS)
    while hops and address is not None and contains(proxies, address):
        address = _hop(hops.pop().decode("latin-1").strip())
    return address


def _hop(text: str) -> Address | None:
    """Parse an entry of `X-Forwarded-For`; some proxies append the port."""
    found = _PORT.fullmatch(text)
    return parse_address((found.group(1) or found.group(2)) if found else text)
