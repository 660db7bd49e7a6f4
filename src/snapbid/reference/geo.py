"""Look up the country of an IP address in an .mmdb file (contract 3, `country`; `SNAPBID_GEO_DB`).

Three record layouts are supported: ip-location-db (`country_code`), GeoLite2 and DB-IP
(`country.iso_code`), and a plain `country` code. The bundled database is described in
`data/ATTRIBUTION.md`.

An address that is not globally reachable has no country, whatever a database says: private networks
exist everywhere, and for some addresses the bundled database has the country of the registry.
"""

import re
import socket
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_network
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple, cast

import maxminddb

from snapbid.reference import countries

DEFAULT_PATH = Path(__file__).with_name("data") / "geo-whois-asn-country.mmdb"
"""The country database that ships with the package."""

_IPV4_MAPPED = bytes(10) + b"\xff\xff"

_FIRST_RECORDS = 10_000

# An address as senders decorate it: in quotes, with a port, as IPv6 in brackets, before a comma.
_DECORATED = re.compile(
    r"""[\s"']*+(?:\[([0-9a-f:.]++)\](?::[0-9]{1,5})?|([0-9.]++)(?::[0-9]{1,5})?|([0-9a-f:.]++))"""
    r"""[\s"']*+(?:,|\Z)""",
    re.IGNORECASE,
)

# Not globally reachable, by IANA's registries of special-purpose addresses (RFC 6890).
_NOT_PUBLIC = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
    "192.0.0.0/24", "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
    "203.0.113.0/24", "240.0.0.0/4",
    "::/127", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20",
    "5f00::/16", "fc00::/7", "fe80::/10",
)  # fmt: skip


class GeoDatabaseError(ValueError):
    """An error for a geo database that cannot be used; it names the file and the reason."""


class Place(NamedTuple):
    """The location of an address: alpha-2 country, region name, city name."""

    country: str | None
    region: str | None
    city: str | None


class GeoDatabase:
    """An open country database. Lookups are thread-safe and take a microsecond or two."""

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        """Open and check the database at `path`, or open the bundled one.

        The bundled database is not checked: that would take 0.2 s, and tests do it. Raises
        GeoDatabaseError, which names the file.
        """
        self.path = fspath(path or DEFAULT_PATH)
        if path is not None:
            # Checked in a separate mapping, since the check touches most of the file's pages.
            with self._open() as self._reader:
                self._check()
        self._reader = self._open()

    def country(self, ip: str) -> str | None:
        """Look up the alpha-3 country of an IPv4 or IPv6 address; None if unknown or not public.

        An IPv4-mapped IPv6 address is looked up as its IPv4 address.
        """
        try:
            return self._lookup(_public(ip))
        except (ValueError, maxminddb.InvalidDatabaseError):
            return None

    def place(self, ip: str) -> Place | None:
        """Look up the country, region and city of an address; region and city may be None.

        None if the country is unknown or `ip` is not a public address.
        """
        try:
            record = self._reader.get(_public(ip))
        except (ValueError, maxminddb.InvalidDatabaseError):
            return None
        country = _country_of(record)
        if country is None or not isinstance(record, dict):
            return None
        return Place(countries.alpha2(country), region_of(record), city_of(record))

    def close(self) -> None:
        """Release the file; later lookups return None."""
        self._reader.close()

    def _open(self) -> maxminddb.Reader:
        try:
            return maxminddb.open_database(self.path, maxminddb.MODE_MMAP_EXT)
        except OSError as error:
            raise GeoDatabaseError(
                f"geo database {self.path} cannot be read: {error.strerror or error}"
            ) from None
        except (ValueError, maxminddb.InvalidDatabaseError):
            raise GeoDatabaseError(
                f"geo database {self.path} is corrupt, or not a MaxMind DB file"
            ) from None

    def _lookup(self, ip: str) -> str | None:
        return _country_of(self._reader.get(ip))

    def _check(self) -> None:
        try:
            # Look up the whole sample: damage may be anywhere in the file.
            named = sum(self._lookup(ip) is not None for ip in self._sample())
            if not named and not any(map(_country_of, self._first_records())):
                raise GeoDatabaseError(f"geo database {self.path} contains no countries")
        except maxminddb.InvalidDatabaseError as error:
            raise GeoDatabaseError(f"geo database {self.path} is corrupt: {error}") from None

    def _first_records(self) -> Iterator[object]:
        records = cast("Iterable[tuple[object, object]]", self._reader)
        return (record for _, record in islice(records, _FIRST_RECORDS))

    def _sample(self) -> Iterator[str]:
        """Yield an address of every IPv4 /16, and 16 of each allocated IPv6 /16.

        Looking them up takes 0.2 s, and reveals damage unless it is confined to a few networks.
        """
        for prefix in range(1 << 16):
            yield f"{prefix >> 8}.{prefix & 255}.0.1"
        if self._reader.metadata().ip_version == 6:
            for first in range(0x2000, 0x3000):
                for second in range(0, 1 << 16, 1 << 12):
                    yield f"{first:x}:{second:x}::1"


def bare_address(written: str) -> str | None:
    """Return the IP address in a text such as `"[2001:db8::1]:443"` or `192.0.2.1, 10.0.0.1`.

    The address may be quoted, in brackets, or followed by a port. Of a list, such as a forwarding
    chain, the first entry counts, which is the client. None if it is not an address.
    """
    match = _DECORATED.match(written)
    if match is None:
        return None
    ip: str = match[match.lastindex or 0]
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip)
    except OSError:
        return None
    return ip


def _public(ip: str) -> str:
    """Validate a public address, and convert an IPv4-mapped one to IPv4.

    Raises ValueError for anything else, such as "1", which the database reader takes for 0.0.0.1.
    """
    is_ipv4 = ":" not in ip
    try:
        packed = socket.inet_pton(socket.AF_INET if is_ipv4 else socket.AF_INET6, ip)
    except OSError:
        raise ValueError("not an IP address") from None
    if is_ipv4:
        packed = _IPV4_MAPPED + packed
    if packed <= _LAST[bisect_right(_FIRST, packed) - 1]:
        raise ValueError("not a public address")
    if is_ipv4 or not packed.startswith(_IPV4_MAPPED):
        return ip
    return socket.inet_ntop(socket.AF_INET, packed[12:])


def _packed(address: IPv4Address | IPv6Address) -> bytes:
    """Return an address as the 16 bytes of IPv6, into which an IPv4 address is mapped."""
    return address.packed if address.version == 6 else _IPV4_MAPPED + address.packed


# The first and the last address of each network, in order: no two overlap, and "::" is the first.
_FIRST, _LAST = zip(
    *sorted(
        (_packed(network[0]), _packed(network[-1])) for network in map(ip_network, _NOT_PUBLIC)
    ),
    strict=True,
)


def _country_of(record: object) -> str | None:
    if not isinstance(record, dict):
        return None
    code = record.get("country_code")
    if code is None:
        code = record.get("country")
        if isinstance(code, dict):
            code = code.get("iso_code")
    return countries.alpha3(code) if isinstance(code, str) else None


def region_of(record: dict[str, Any]) -> str | None:
    """Return a record's region: `state1` (ip-location-db) or `subdivisions` (GeoLite2, DB-IP)."""
    divisions = record.get("subdivisions")
    first = divisions[0] if isinstance(divisions, list) and divisions else None
    return _name_of(record.get("state1")) or _name_of(first)


def city_of(record: dict[str, Any]) -> str | None:
    """Return the name of a record's city; None if the record has none."""
    return _name_of(record.get("city"))


def _name_of(value: object) -> str | None:
    """Return a name: `value` itself, or the English one in its `names`; None if there is none."""
    if isinstance(value, dict):
        names = value.get("names")
        value = names.get("en") if isinstance(names, dict) else None
    return value if isinstance(value, str) and value else None
