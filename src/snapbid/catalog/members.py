"""The members of audiences, in immutable files beside the catalog (contract 12).

A member file holds a head (JSON) and the memberships that have changed since the base was made. The
base is a separate file, named by the head. The publisher writes a new member file and renames it
over the old one; workers map both files, so any number of them share a single copy.
`_members.pyx` describes how memberships are laid out in both files.
"""

import mmap
import struct
import zlib
from collections.abc import Iterable
from datetime import MAXYEAR, datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from snapbid.catalog import catalog
from snapbid.catalog._members import ENTRY_SIZE, EPOCH_S, Members, starts_of
from snapbid.catalog.catalog import Buffer, CatalogError

MEMBERS: Final = "members"  # the file's name, beside the catalog
NEVER: Final = 2**31 - 1
ENTRY: Final = struct.Struct(">qii")  # member, audience, until (seconds since EPOCH_S)

_MAGIC: Final = b"SNAPMEM1"


class MemberBase(msgspec.Struct, frozen=True):
    """A file with all members at a revision. `id`: its id in the warehouse; `made_at`: epoch s."""

    name: str
    count: int
    checksum: int
    revision: int
    id: str
    made_at: float


class MemberHead(msgspec.Struct, frozen=True):
    """The head of a member file: the key of the hashes, and the names of audiences and products.

    `audiences` and `products` map numbers to names. `count`: the number of changed memberships in
    the file; `checksum`: CRC-32 of the data after the head.
    """

    key: bytes
    audiences: dict[int, str]
    products: dict[int, str]
    count: int
    checksum: int
    base: MemberBase | None = None


class OpenMembers(NamedTuple):
    """Mapped members and their base. `mapped`: the base's mapping, for the next file to reuse."""

    members: Members
    base: MemberBase | None
    mapped: mmap.mmap | None


def encode(
    key: bytes,
    audiences: dict[int, str],
    products: dict[int, str],
    changed: Iterable[tuple[int, int, int]],
    base: MemberBase | None = None,
) -> list[Buffer]:
    """Encode a member file as pieces to write; `changed`: (member, audience, until), ascending."""
    entries = b"".join(ENTRY.pack(*each) for each in changed)
    section = entries + starts_of(entries)
    count, checksum = len(entries) // ENTRY_SIZE, zlib.crc32(section)
    head = MemberHead(key, audiences, products, count, checksum, base)
    return catalog.pack(_MAGIC, msgspec.json.encode(head), section)


def until_of(moment: datetime) -> int:
    """Convert the end of a membership to the number in its entry: seconds since EPOCH_S.

    A time in the year 9999, which stands for PostgreSQL's infinity, becomes NEVER.
    """
    if moment.year == MAXYEAR:
        return NEVER
    return max(0, min(int(moment.timestamp()) - EPOCH_S, NEVER))


def read_head(data: mmap.mmap | bytes) -> tuple[MemberHead, memoryview]:
    """Read the head of a member file; return it and the data after it. Raises CatalogError."""
    try:
        start, section = catalog.unpack(_MAGIC, data)
        head = msgspec.json.decode(start, type=MemberHead)
    except (struct.error, ValueError) as error:
        raise CatalogError(f"not a member file of this version: {error}") from error
    if zlib.crc32(section) != head.checksum:
        raise CatalogError("the member file is corrupt")
    return head, section


def open_members(path: Path, before: OpenMembers | None = None) -> OpenMembers:
    """Map the file, and its base unless `before` has already mapped it.

    Raises OSError (FileNotFoundError if a file is missing), or CatalogError if a file is
    damaged or of another version.
    """
    head, section = read_head(catalog.map_file(path))
    base = head.base
    mapped = before.mapped if before is not None and before.base == base else None
    if base is not None and mapped is None:
        mapped = catalog.map_base(path.with_name(base.name), base.checksum)
    try:
        members = Members(
            head.key, head.audiences, head.products, section, head.count, mapped,
            base.count if base is not None else 0,
        )  # fmt: skip
    except ValueError as error:
        raise CatalogError(str(error)) from error
    return OpenMembers(members, base, mapped)
