"""The SSP registry: descriptor -> canonical id, explicit (contract 2)."""

import re
from typing import Final, Literal

import asyncpg
import msgspec

_FORM: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}", re.ASCII)


class RegistryError(ValueError):
    """A refused registration; the message names the rule."""


class Registered(msgspec.Struct, frozen=True):
    """The outcome of `add`; `before` is the canonical id that an update replaced."""

    descriptor: str
    canonical: str
    outcome: Literal["added", "updated", "unchanged"]
    before: str | None = None


async def add(
    connection: asyncpg.Connection, descriptor: str, canonical: str | None = None
) -> Registered:
    """Register a descriptor, or change the canonical id of a known one (default: itself).

    Raises RegistryError if the spelling is not allowed, if the canonical id is not registered or
    is itself a variant, or if the descriptor is the canonical id of others.
    """
    canonical = descriptor if canonical is None else canonical
    _check_spelling(descriptor)
    async with connection.transaction():
        # Locked before the first read, or two writers could make variants of each other.
        await connection.execute("select catalog_lock()")
        known = await fetch_all(connection)
        _check(known, descriptor, canonical)
        before = known.get(descriptor)
        if before == canonical:
            return Registered(descriptor, canonical, "unchanged")
        await connection.execute(
            "insert into ssp (descriptor, canonical) values ($1, $2)"
            " on conflict (descriptor) do update set canonical = excluded.canonical",
            descriptor,
            canonical,
        )
    return Registered(descriptor, canonical, "updated" if before else "added", before)


async def fetch_all(connection: asyncpg.Connection) -> dict[str, str]:
    """Fetch descriptor -> canonical id, ordered by descriptor."""
    rows = await connection.fetch("select descriptor, canonical from ssp order by descriptor")
    return {row["descriptor"]: row["canonical"] for row in rows}


async def fetch_numbered(connection: asyncpg.Connection) -> dict[str, tuple[str, int]]:
    """Fetch descriptor -> (canonical id, number), ordered by descriptor.

    A number is never reused, not even after its descriptor has been removed.
    """
    rows = await connection.fetch(
        "select s.descriptor, s.canonical, n.number from ssp s join ssp_number n using (descriptor)"
        " order by s.descriptor"
    )
    return {row["descriptor"]: (row["canonical"], row["number"]) for row in rows}


def _check_spelling(descriptor: str) -> None:
    if not _FORM.fullmatch(descriptor):
        raise RegistryError(
            "ID must be 1 to 128 characters of A-Z a-z 0-9 . _ ~ -, "
            f"found {len(descriptor)}: {descriptor[:60]!a}"
        )


def _check(known: dict[str, str], descriptor: str, canonical: str) -> None:
    if canonical == descriptor:
        return
    if canonical not in known:
        raise RegistryError(f"the canonical id {canonical[:60]!a} is not registered; add it first")
    if known[canonical] != canonical:
        raise RegistryError(
            f"{canonical} is a variant of {known[canonical]}; name {known[canonical]} as canonical"
        )
    variants = [name for name, of in known.items() if of == descriptor and name != descriptor]
    if variants:
        raise RegistryError(
            f"{descriptor} is the canonical id of {', '.join(variants)}, so it cannot be a variant"
        )
