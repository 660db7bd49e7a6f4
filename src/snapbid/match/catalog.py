"""The catalog: everything that decides a bid, as one immutable file.

A file holds a head (JSON: the registry of SSPs, the exchange rates, when it was made) and the
campaign index. The publisher writes a new one beside the old and renames it into place, so a
reader sees one or the other, whole; workers map it, so that any number of them share one copy.
"""

import mmap
import os
import struct
import time
from pathlib import Path
from typing import Final

import msgspec

from snapbid.match._builder import DIMENSIONS
from snapbid.match._matcher import Index
from snapbid.reference.rates import Rates

_PREAMBLE: Final = struct.Struct("<8sQ")  # magic, length of the head
_MAGIC: Final = b"SNAPCAT1"
_ALIGNMENT: Final = 64


class Head(msgspec.Struct, frozen=True):
    """`ssps`: descriptor to canonical id; `rates`: as Rates.to_json; `made_at`: epoch seconds."""

    ssps: dict[str, str]
    rates: msgspec.Raw
    made_at: float


class CatalogError(ValueError):
    """The file is no catalog of this version; it is made again by the publisher."""


class Catalog:
    """A catalog in memory."""

    def __init__(self, data: "mmap.mmap | bytes | bytearray") -> None:
        try:
            magic, length = _PREAMBLE.unpack_from(data)
            if magic != _MAGIC:
                raise CatalogError("not a catalog of this version")
            head = msgspec.json.decode(data[_PREAMBLE.size : _PREAMBLE.size + length], type=Head)
            self.rates = Rates.from_json(bytes(head.rates))
            self.index = Index(memoryview(data)[_aligned(_PREAMBLE.size + length) :])
        except (struct.error, ValueError, KeyError) as error:
            raise CatalogError(f"not a catalog of this version: {error}") from error
        self.ssps = head.ssps
        self.made_at = head.made_at

    def __len__(self) -> int:
        return len(self.index)

    def targets(self, *dimensions: str) -> bool:
        """Whether any campaign targets one of the dimensions."""
        return any(self.index.targets(DIMENSIONS[name]) for name in dimensions)

    @classmethod
    def open(cls, path: Path) -> "Catalog":
        """Maps the file. Raises FileNotFoundError or CatalogError."""
        with path.open("rb") as file:
            try:
                return cls(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            except ValueError as error:  # an empty file cannot be mapped
                raise CatalogError(f"not a catalog of this version: {error}") from error


def encode(ssps: dict[str, str], rates: Rates, index: "bytes | bytearray") -> list[bytes]:
    """The file's content, in pieces."""
    head = msgspec.json.encode(Head(ssps, msgspec.Raw(rates.to_json().encode()), time.time()))
    start = _PREAMBLE.pack(_MAGIC, len(head)) + head
    return [start.ljust(_aligned(len(start)), b"\0"), index]


def write(path: Path, pieces: list[bytes]) -> None:
    """Puts the content in place of what is there, in one step."""
    beside = path.with_suffix(f".{os.getpid()}")
    with beside.open("wb") as file:
        file.writelines(pieces)
    beside.replace(path)


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
