"""Country of an IP address, from an .mmdb file (contract 3, `country`; `SNAPBID_GEO_DB`).

Three shapes of record are read: ip-location-db (`country_code`), GeoLite2 and DB-IP
(`country.iso_code`), and a plain `country` code. The database that ships is described in
`data/ATTRIBUTION.md`.
"""

import socket
from collections.abc import Iterable, Iterator
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple, cast

import maxminddb

from snapbid.reference import countries

DEFAULT_PATH = Path(__file__).with_name("data") / "geo-whois-asn-country.mmdb"
"""The country database that ships with the package."""

_IPV4_MAPPED = bytes(10) + b"\xff\xff"

# Every IPv4 /16, and 16 networks of each IPv6 /16 from which addresses are given out: 0.1 s, and
# damage to any larger part of the file shows.
_SAMPLE_IPV4 = range(1 << 16)
_SAMPLE_IPV6 = [(first, second << 12) for first in range(0x2000, 0x3000) for second in range(16)]
_FIRST_RECORDS = 10_000


class GeoDatabaseError(ValueError):
    """A geo database that cannot be used; the message names the file and the reason."""


class Place(NamedTuple):
    """Where an address is: alpha-2 country, and the names of region and city."""

    country: str | None
    region: str | None
    city: str | None


class GeoDatabase:
    """An open country database. Look-ups are thread-safe and cost about half a microsecond."""

    def __init__(self, path: str | PathLike[str]) -> None:
        """Open and check a database. Raises GeoDatabaseError naming the file."""
        self.path = fspath(path)
        try:
            self._reader = maxminddb.open_database(self.path, maxminddb.MODE_MMAP_EXT)
        except OSError as error:
            raise GeoDatabaseError(
                f"geo database {self.path}: cannot be read: {error.strerror or error}"
            ) from None
        except (ValueError, maxminddb.InvalidDatabaseError):
            raise GeoDatabaseError(
                f"geo database {self.path}: is corrupt or no MaxMind DB file"
            ) from None
        try:
            self._check()
        except GeoDatabaseError:
            self._reader.close()
            raise

    def country(self, ip: str) -> str | None:
        """Give the alpha-3 country of an IPv4 or IPv6 address; None if unknown or no address.

        An IPv4-mapped IPv6 address is looked up as the IPv4 address that it carries.
        """
        try:
            return self._lookup(_plain(ip))
        except (ValueError, maxminddb.InvalidDatabaseError):
            return None

    def place(self, ip: str) -> Place | None:
        """Give country, region and city of an address, as far as the database has them.

        None if nothing is known of the address, or if it is none.
        """
        try:
            record = self._reader.get(_plain(ip))
        except (ValueError, maxminddb.InvalidDatabaseError):
            return None
        country = _country_of(record)
        if country is None or not isinstance(record, dict):
            return None
        return Place(countries.alpha2(country), region_of(record), city_of(record))

    def close(self) -> None:
        """Release the file; every later look-up gives None."""
        self._reader.close()

    def _lookup(self, ip: str) -> str | None:
        return _country_of(self._reader.get(ip))

    def _check(self) -> None:
        try:
            # All of the sample is looked up, since damage anywhere in the file is to be found.
            named = sum(self._lookup(ip) is not None for ip in self._sample())
            if not named and not any(map(_country_of, self._first_records())):
                raise GeoDatabaseError(f"geo database {self.path}: names no country")
        except maxminddb.InvalidDatabaseError as error:
            raise GeoDatabaseError(f"geo database {self.path}: is corrupt: {error}") from None

    def _first_records(self) -> Iterator[object]:
        records = cast("Iterable[tuple[object, object]]", self._reader)
        return (record for _, record in islice(records, _FIRST_RECORDS))

    def _sample(self) -> Iterator[str]:
        for prefix in _SAMPLE_IPV4:
            yield f"{prefix >> 8}.{prefix & 255}.0.1"
        if self._reader.metadata().ip_version == 6:
            for first, second in _SAMPLE_IPV6:
                yield f"{first:x}:{second:x}::1"


def _plain(ip: str) -> str:
    """Admit textual addresses only, in IPv4 form where the address is one.

    Raises ValueError for anything else: the reader itself would take "1" for 0.0.0.1.
    """
    try:
        if ":" not in ip:
            socket.inet_pton(socket.AF_INET, ip)
            return ip
        packed = socket.inet_pton(socket.AF_INET6, ip)
    except OSError:
        raise ValueError("not an IP address") from None
    if packed.startswith(_IPV4_MAPPED):
        return socket.inet_ntop(socket.AF_INET, packed[12:])
    return ip


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
    """Name of the region: ip-location-db has `state1`, GeoLite2 and DB-IP `subdivisions`."""
    divisions = record.get("subdivisions")
    first = divisions[0] if isinstance(divisions, list) and divisions else None
    return _name_of(record.get("state1")) or _name_of(first)


def city_of(record: dict[str, Any]) -> str | None:
    """Name of the city in a record."""
    return _name_of(record.get("city"))


def _name_of(value: object) -> str | None:
    """A plain name, or the English one of `names`."""
    if isinstance(value, dict):
        names = value.get("names")
        value = names.get("en") if isinstance(names, dict) else None
    return value if isinstance(value, str) and value else None
