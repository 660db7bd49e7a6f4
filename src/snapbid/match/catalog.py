"""The catalog: everything that decides a bid, as one immutable file.

A file holds a head (JSON: the registry of SSPs, the exchange rates, when it was made) and the
campaign index. The publisher writes a new one beside the old and renames it into place, so a
reader sees one or the other, whole; workers map it, so that any number of them share one copy.
"""

import mmap
import os
import struct
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from snapbid.match._builder import DIMENSIONS
from snapbid.match._matcher import Index
from snapbid.match._matcher import Query as Query
from snapbid.reference.rates import Rates

Buffer: TypeAlias = bytes | bytearray

_PREAMBLE: Final = struct.Struct("<8sQ")  # magic, length of the head
_MAGIC: Final = b"SNAPCAT3"
_ALIGNMENT: Final = 64


class Head(msgspec.Struct, frozen=True):
    """`ssps`: descriptor to canonical id and the descriptor's number; `rates`: as Rates.to_json;
    `made_at`: epoch seconds; `checksum`: CRC-32 of the index, since the matcher trusts its offsets;
    `events`: what server events need, JSON in a form of theirs.
    """

    ssps: dict[str, tuple[str, int]]
    rates: msgspec.Raw
    made_at: float
    checksum: int
    events: msgspec.Raw = msgspec.Raw(b"null")


class CatalogError(ValueError):
    """The file is no catalog of this version; it is made again by the publisher."""


class Catalog:
    """A catalog in memory.

    `ssps`: descriptor to canonical id; `ssp_numbers`: descriptor to the number that stands for it
    in the ledger's records; `events`: JSON, see `Head`.
    """

    def __init__(self, data: mmap.mmap | Buffer) -> None:
        try:
            magic, length = _PREAMBLE.unpack_from(data)
            if magic != _MAGIC:
                raise CatalogError("not a catalog of this version")
            head = msgspec.json.decode(data[_PREAMBLE.size : _PREAMBLE.size + length], type=Head)
            self.rates = Rates.from_json(bytes(head.rates))
            index = memoryview(data)[_aligned(_PREAMBLE.size + length) :]
            if zlib.crc32(index) != head.checksum:
                raise CatalogError("the index is damaged")
            self.index = Index(index)
        except (struct.error, ValueError, KeyError) as error:
            raise CatalogError(f"not a catalog of this version: {error}") from error
        self.ssps = {descriptor: canonical for descriptor, (canonical, _) in head.ssps.items()}
        self.ssp_numbers = {descriptor: number for descriptor, (_, number) in head.ssps.items()}
        self.made_at = head.made_at
        self.events = bytes(head.events)

    def __len__(self) -> int:
        return len(self.index)

    def targets(self, *dimensions: str) -> bool:
        """Whether any campaign targets one of the dimensions."""
        return any(self.index.targets(DIMENSIONS[name]) for name in dimensions)

    @property
    def has_caps(self) -> bool:
        """Whether any campaign has frequency caps."""
        return self.index.has_caps

    @classmethod
    def open(cls, path: Path) -> "Catalog":
        """Maps the file. Raises FileNotFoundError or CatalogError."""
        with path.open("rb") as file:
            try:
                return cls(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            except ValueError as error:  # an empty file cannot be mapped
                raise CatalogError(f"not a catalog of this version: {error}") from error


def encode(
    ssps: Mapping[str, tuple[str, int]], rates: Rates, index: Buffer, events: bytes = b"null"
) -> list[Buffer]:
    """The file's content, in pieces; `ssps` and `events` as in `Head`."""
    table = msgspec.Raw(rates.to_json().encode())
    checksum = zlib.crc32(index)
    head = Head(dict(ssps), table, time.time(), checksum, msgspec.Raw(events))
    start = msgspec.json.encode(head)
    start = _PREAMBLE.pack(_MAGIC, len(start)) + start
    return [start.ljust(_aligned(len(start)), b"\0"), index]


def write(path: Path, pieces: list[Buffer]) -> None:
    """Puts the content in place of what is there, in one step."""
    beside = path.with_suffix(f".{os.getpid()}")
    with beside.open("wb") as file:
        file.writelines(pieces)
    beside.replace(path)


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
