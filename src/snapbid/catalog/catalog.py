"""The catalog: all data on which bidding decisions are based, in immutable files.

The catalog file holds a head (JSON: the SSP registry, the exchange rates, the time it was made) and
an index of campaigns. If there are many campaigns, most are in the index of a base, a separate file
named by the head; the catalog's own index is then the overlay of later changes. The publisher
writes a new file and renames it over the old one. So a reader always sees a complete file, old or
new, and uses a head only with the base named there. Workers map the files, so any number of them
share a single copy.
"""

import mmap
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from snapbid.base.access import SspAccess
from snapbid.campaigns.click_id import ClickKey
from snapbid.campaigns.suppression import Suppression
from snapbid.campaigns.suspensions import CreativeSuspension
from snapbid.catalog._builder import DIMENSIONS
from snapbid.catalog._index import Index as Index
from snapbid.catalog._index import Query as Query
from snapbid.catalog._request import Reader as Reader
from snapbid.reference.rates import Rates

Buffer: TypeAlias = bytes | bytearray
Mapped: TypeAlias = mmap.mmap

_PREAMBLE: Final = struct.Struct("<8sQI")  # magic, length of the head and its CRC-32
_MAGIC: Final = b"SNAPCAT5"
_ALIGNMENT: Final = 64


class Base(msgspec.Struct, frozen=True):
    """A file with the index of a warehouse's campaigns at a revision (see warehouse.campaigns).

    `name`: the file's name, which is unique; `size` is in bytes; `checksum`: CRC-32; `campaigns`:
    the number of campaigns; `layout`: a digest of the code that built it (publisher/sharing.py).
    """

    name: str
    size: int
    checksum: int
    campaigns: int
    revision: int
    warehouse: str
    layout: str = ""  # unknown: built before bases had one


IssuedKeys: TypeAlias = Mapping[str, tuple[str, tuple[str, ...], int, int]]
"""API keys, by their SHA-256 (hexadecimal): product, its presets, and the limits on requests and
events per rolling minute."""


class EventConfig(msgspec.Struct, frozen=True):
    """Configuration of server events: API keys, and the operator's exchange rates (contract 7).

    `rates` maps each currency to pairs of the day from which a rate applies, and USD per unit.
    """

    keys: IssuedKeys = {}
    rates: Mapping[str, list[tuple[date, Decimal]]] = {}


class Head(msgspec.Struct, frozen=True):
    """The head of a catalog file: everything in the file except the index of campaigns."""

    ssps: dict[str, tuple[str, int]]  # by descriptor: canonical id, and the descriptor's number
    rates: Rates
    made_at: float = 0.0  # epoch s
    checksum: int = 0  # CRC-32 of the index, since the matcher trusts its offsets
    events: EventConfig = EventConfig()
    base: Base | None = None
    revision: int = 0  # the catalog has all changes of the warehouse up to it
    warehouse: str = ""  # its id
    access: dict[str, SspAccess] = {}  # of restricted descriptors
    suspensions: tuple[CreativeSuspension, ...] = ()
    suppression: Suppression = Suppression()  # forgotten users, whom caps ignore
    former: tuple[str, ...] = ()  # variants with own reports for days before they joined a family
    former_ids: dict[str, tuple[str, ...]] = {}  # by descriptor: its former canonical ids
    ledger: tuple[str, ...] = ()  # the data set of each shard of the warehouse's own ledger
    click_key: tuple[int, bytes] | None = None  # number and secret of the key that signs click ids


class UnwritableError(Exception):
    """An error for a file that cannot be written; the message names the file and the reason."""


class CatalogError(ValueError):
    """An error for a damaged or outdated catalog or member file; the publisher will replace it."""


class Stamp(NamedTuple):
    """The identity of a file and its content; replacing or writing the file changes its stamp."""

    inode: int
    size: int
    modified_ns: int


class Catalog:
    """An open catalog.

    `ssps`: canonical ids by descriptor; `ssp_numbers`: the descriptors' numbers in the ledger's
    records; `reported`: like `ssps`, but a descriptor that has reports from before it joined a
    family maps to itself; `access`, `events`, `former_ids`, `ledger`, `warehouse`, `suspensions`:
    as in `Head`; `click_key` signs click ids. `base` and its mapping, `mapped`, are None if all
    campaigns are in the catalog file.
    """

    def __init__(
        self, data: Mapped | Buffer, open_base: Callable[[Base], Mapped] | None = None
    ) -> None:
        try:
            start, index = unpack(_MAGIC, data)
            head = msgspec.json.decode(start, type=Head, dec_hook=_rate)
            if zlib.crc32(index) != head.checksum:
                raise CatalogError("the index is damaged")
            self.base, self.mapped = head.base, None
            if head.base is None:
                self.index = Index(index)
            elif open_base is None:
                raise CatalogError("the catalog needs a base, but was opened without one")
            else:
                self.mapped = open_base(head.base)
                self.index = Index(self.mapped, index)
        except (struct.error, ValueError, KeyError) as error:
            raise CatalogError(f"not a catalog of this version: {error}") from error
        self.rates = head.rates
        self.ssps = {descriptor: canonical for descriptor, (canonical, _) in head.ssps.items()}
        self.ssp_numbers = {descriptor: number for descriptor, (_, number) in head.ssps.items()}
        self.reported = self.ssps | dict(zip(head.former, head.former, strict=True))
        self.former_ids = head.former_ids
        self.access = head.access
        self.suspensions = head.suspensions
        self.suppression = head.suppression
        self.click_key = None if head.click_key is None else ClickKey(*head.click_key)
        for each in head.suspensions:
            self.index.suspend(each.campaign, each.creative, each.ssp)
        self.made_at = head.made_at
        self.revision = head.revision
        self.warehouse = head.warehouse
        self.ledger = head.ledger
        self.events = head.events

    def __len__(self) -> int:
        return len(self.index)

    @property
    def families(self) -> dict[int, int]:
        """Map the number of each SSP variant to its family's number.

        A family's number is the lowest number of its descriptors; the descriptor with this number
        is omitted.
        """
        first: dict[str, int] = {}
        for descriptor, number in self.ssp_numbers.items():
            canonical = self.ssps[descriptor]
            first[canonical] = min(number, first.get(canonical, number))
        of_each = {number: first[self.ssps[it]] for it, number in self.ssp_numbers.items()}
        return {number: family for number, family in of_each.items() if number != family}

    def targets(self, *dimensions: str) -> bool:
        """Return whether any campaign targets any of the dimensions."""
        return any(self.index.targets(DIMENSIONS[name]) for name in dimensions)

    @property
    def depends_on_persons(self) -> bool:
        """Return whether any campaign targets audiences, or must not advertise to some persons."""
        return self.targets("audience", "product")

    @property
    def has_caps(self) -> bool:
        """Return whether any campaign has frequency caps."""
        return self.index.has_caps

    @classmethod
    def open(cls, path: Path, before: "Catalog | None" = None) -> "Catalog":
        """Map the file, and its base unless `before` has already mapped it.

        Raises OSError (FileNotFoundError if a file is missing), or CatalogError if a file is
        damaged or of another version.
        """

        def open_base(base: Base) -> Mapped:
            if before is not None and before.mapped is not None and before.base == base:
                return before.mapped
            return map_base(path.with_name(base.name), base.checksum)

        return cls(map_file(path), open_base)


def encode(head: Head, index: Buffer) -> list[Buffer]:
    """Encode a catalog as pieces for `write`; set the time and the checksum in the head."""
    rates = Rates(head.rates.usd, head.rates.date)  # without the floors that were converted
    head = msgspec.structs.replace(
        head, rates=rates, made_at=time.time(), checksum=zlib.crc32(index)
    )
    return pack(_MAGIC, msgspec.json.encode(head, enc_hook=str), index)


def _rate(_: type, written: Any) -> Fraction:
    """Parse a rate as written in the catalog's head, such as 2793/2500."""
    return Fraction(written)


def pack(magic: bytes, head: bytes, section: Buffer) -> list[Buffer]:
    """Return the pieces of a file for `write`: `magic`, the head and its checksum, `section`."""
    start = _PREAMBLE.pack(magic, len(head), zlib.crc32(head)) + head
    return [start.ljust(_aligned(len(start)), b"\0"), section]


def unpack(magic: bytes, data: Mapped | Buffer) -> tuple[Buffer, memoryview]:
    """Return the head and the data framed by `pack`. Raises CatalogError or struct.error."""
    found, length, checksum = _PREAMBLE.unpack_from(data)
    head = data[_PREAMBLE.size : _PREAMBLE.size + length]
    if found != magic or zlib.crc32(head) != checksum:
        raise CatalogError("its head is damaged, or of another version")
    return head, memoryview(data)[_aligned(_PREAMBLE.size + length) :]


def write(path: Path, pieces: list[Buffer]) -> Stamp:
    """Replace the file atomically; return the new file's stamp. Raises UnwritableError."""
    beside = path.with_suffix(f".{os.getpid()}")
    with writing(path):
        with beside.open("wb") as file:
            file.writelines(pieces)
            file.flush()
            written = _stamp(os.fstat(file.fileno()))
        beside.replace(path)
    return written


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert OSErrors to UnwritableError, except ConnectionError and TimeoutError."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        raise
    except OSError as error:
        raise UnwritableError(f"{path} cannot be written: {error.strerror or error}") from error


def stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of a file; None if it does not exist."""
    try:
        return _stamp(path.stat())
    except FileNotFoundError:
        return None


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_ino, status.st_size, status.st_mtime_ns)


def checksum_of(path: Path) -> int:
    """Return the CRC-32 of a file; takes about 0.5 s per GB. Raises OSError."""
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            checksum = zlib.crc32(chunk, checksum)
    return checksum


def map_file(path: Path) -> Mapped:
    """Map a file for reading. Raises OSError, and CatalogError if it is empty."""
    with path.open("rb") as file:
        try:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:  # an empty file cannot be mapped
            raise CatalogError(f"not a catalog of this version: {error}") from error


def map_base(path: Path, checksum: int) -> Mapped:
    """Map a base. Raises OSError, and CatalogError if it has another checksum."""
    # Read the file: pages touched through the mapping would count as this process's memory.
    if checksum_of(path) != checksum:
        raise CatalogError(f"{path.name} is damaged")
    return map_file(path)


def _aligned(offset: int) -> int:
    """Round an offset up to the next one at which the data after a head may begin."""
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
