"""Look up the country of an IP address in an .mmdb file (contract 3, `country`; `SNAPBID_GEO_DB`).

Three record layouts are supported: ip-location-db (`country_code`), GeoLite2 and DB-IP
(`country.iso_code`), and a plain `country` code. The bundled database is described in
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

_FIRST_RECORDS = 10_000


class GeoDatabaseError(ValueError):
    """A geo database cannot be used; the message names the file and the reason."""


class Place(NamedTuple):
    """The location of an address: alpha-2 country, region name, city name."""

    country: str | None
    region: str | None
    city: str | None


class GeoDatabase:
    """An open country database. Lookups are thread-safe and take a microsecond or two."""

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        """Open the bundled database, or open and check another.

        Tests check the bundled one: here it would cost each process 0.2 s. Raises GeoDatabaseError
        naming the file.
        """
        self.path = fspath(path or DEFAULT_PATH)
        if path is not None:
            # Checked in a separate mapping, since the check touches most of the file's pages.
            with self._open() as self._reader:
                self._check()
        self._reader = self._open()

    def country(self, ip: str) -> str | None:
        """Look up the alpha-3 country of an IPv4 or IPv6 address; None if it is unknown.

        An IPv4-mapped IPv6 address is looked up as its IPv4 address.
        """
        try:
            return self._lookup(_plain(ip))
        except (ValueError, maxminddb.InvalidDatabaseError):
            return None

    def place(self, ip: str) -> Place | None:
        """Look up the country, region and city of an address; region and city may be None.

        None if the country is unknown or `ip` is not an address.
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

        Looking them up takes 0.2 s, and reveals damage to any larger part of the file.
        """
        for prefix in range(1 << 16):
            yield f"{prefix >> 8}.{prefix & 255}.0.1"
        if self._reader.metadata().ip_version == 6:
            for first in range(0x2000, 0x3000):
                for second in range(0, 1 << 16, 1 << 12):
                    yield f"{first:x}:{second:x}::1"


def _plain(ip: str) -> str:
    """Validate an address, and convert an IPv4-mapped one to IPv4.

    Raises ValueError for anything else: the reader would take "1" for 0.0.0.1.
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
    """Return a record's region: `state1` (ip-location-db) or `subdivisions` (GeoLite2, DB-IP)."""
    divisions = record.get("subdivisions")
    first = divisions[0] if isinstance(divisions, list) and divisions else None
    return _name_of(record.get("state1")) or _name_of(first)


def city_of(record: dict[str, Any]) -> str | None:
    """Return the name of a record's city; None if the record has none."""
    return _name_of(record.get("city"))


def _name_of(value: object) -> str | None:
    """Return a name given as plain text, or the English name in `names`."""
    if isinstance(value, dict):
        names = value.get("names")
        value = names.get("en") if isinstance(names, dict) else None
    return value if isinstance(value, str) and value else None
