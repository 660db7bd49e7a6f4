"""Chunks: memory-mapped files into which workers write rows (`native/snapbid/auctionlog`).

A chunk is a header, rows, and free space. The header has

    magic | end of the rows | first sequence number | last one converted | in flight
          | when a bid or notice last began (epoch ms) | lost rows | lost since (epoch ms) | closed
          | id of the operating system's boot (16 bytes)

each of 8 bytes unless noted, little endian, zero-padded to HEADER_SIZE. A row is `_ROW` and its
strings. It is published by moving the end of the rows past it, in one write to memory, so a process
killed at any moment leaves only whole rows, which the operating system keeps. `closed` is 1 once
the worker continues in another chunk, or has ended with nothing in flight.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

MAGIC: Final = b"SNAPLOG1"
HEADER_SIZE: Final = 128
CHUNK_SIZE: Final = 4 * 1024 * 1024
BID: Final = 0
GAP: Final = 8
TEST: Final = 1
REPLAYED: Final = 2
# descriptor, canonical id, auction, impression, campaign, creative, deal, currency, domain or
# bundle, country, operating system, the floor's currency
STRINGS: Final = 12
INVENTORIES: Final = (None, "site", "app", "dooh")

_HEADER: Final = Struct("<8sQQQqqqqQ16s")
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_CONVERTED: Final = Struct("<Q")
_CONVERTED_AT: Final = 24
_ROW: Final = Struct(f"<HBBBBhQqqqqdiii{STRINGS}H")  # size, and the fields of LoggedRow


def new_header() -> bytes:
    """Build the header of an empty chunk."""
    return _HEADER.pack(MAGIC, HEADER_SIZE, *(0,) * 7, boot())


def boot() -> bytes:
    """Return the id of the operating system's current boot."""
    return UUID(_BOOT.read_text().strip()).bytes


class ChunkState(NamedTuple):
    """The header of a chunk."""

    magic: bytes
    end: int
    first: int
    converted: int
    in_flight: int
    begun_ms: int
    lost: int
    lost_since_ms: int
    closed: int
    boot: bytes

    @classmethod
    def read(cls, mapped: mmap.mmap) -> "ChunkState":
        return cls(*_HEADER.unpack_from(mapped))


class LoggedRow(NamedTuple):
    """A row as written by a worker. Fields with defaults are only set for bids."""

    kind: int  # BID, GAP, or a notice's kind (`ledger.bids.records`)
    verdict: str  # the ledger's letter
    flags: int
    reason: int
    sequence: int
    time_ms: int
    price: int  # in a gap row: when the gap began (epoch ms)
    cost: int  # in a gap row: the number of missing rows
    sent: int
    strings: list[bytes]
    inventory: int = 0  # index into INVENTORIES
    floor: float = 0.0
    w: int = 0  # 0: unknown, as below
    h: int = 0
    device_type: int = 0


def rows(mapped: mmap.mmap, start: int, end: int) -> Iterator[tuple[LoggedRow, int]]:
    """Yield each row between two offsets, with the offset of the next row.

    Stops at a malformed row, which a crash of the operating system may have left.
    """
    unpack, at = _ROW.unpack_from, start
    previous = 0
    while at + _ROW.size <= end:
        (
            size, kind, verdict, flags, inventory, reason, sequence, time_ms, price, cost, sent,
            floor, w, h, device_type, *lengths
        ) = unpack(mapped, at)  # fmt: skip
        if size != _ROW.size + sum(lengths) or at + size > end or sequence <= previous:
            return
        position, strings = at + _ROW.size, []
        for length in lengths:
            strings.append(mapped[position : position + length])
            position += length
        at, previous = at + size, sequence
        letter = chr(verdict) if verdict else ""
        row = LoggedRow(
            kind, letter, flags, reason, sequence, time_ms, price, cost, sent, strings,
            inventory, floor, w, h, device_type,
        )  # fmt: skip
        yield row, at


def note_converted(mapped: mmap.mmap, sequence: int) -> None:
    """Record in a chunk that its rows up to `sequence` are in Parquet files."""
    _CONVERTED.pack_into(mapped, _CONVERTED_AT, sequence)
