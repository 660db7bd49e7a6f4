"""The SSP registry: each descriptor's canonical id and access rules (contract 2 and 4)."""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Final, Literal, NamedTuple

import asyncpg
import msgspec

from snapbid.base.access import Network, SspAccess

_FORM: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}", re.ASCII)


class RegistryError(ValueError):
    """A registration is refused; the message names the rule."""


class FamilySpan(NamedTuple):
    """The UTC days, both ends included, on which a descriptor belongs to a family."""

    descriptor: str
    since: date
    until: date


class Registered(msgspec.Struct, frozen=True):
    """The result of registering a descriptor or changing its canonical id."""

    descriptor: str
    canonical: str
    outcome: Literal["added", "updated", "unchanged"]
    before: str | None = None  # the canonical id that an update replaced
    family: str | None = None  # for which the descriptor is still reported
    until: date | None = None  # the last day on which it is


async def add(
    connection: asyncpg.Connection,
    descriptor: str,
    canonical: str | None = None,
    *,
    open_days: bool = False,
) -> Registered:
    """Register a descriptor, or change the canonical id of a registered one.

    `canonical` is the descriptor itself by default. A changed canonical id applies from the next
    day (UTC) on or, with `open_days`, to all days whose reports can still change. Raises
    RegistryError if the spelling is not allowed. A `canonical` other than the descriptor is also
    refused if it is not registered or is itself a variant, or if the descriptor has variants.
    """
    canonical = descriptor if canonical is None else canonical
    _check_spelling(descriptor)
    async with connection.transaction():
        # Locked before the first read, or two writers could make each a variant of the other.
        await connection.execute("select catalog_lock()")
        known = await fetch_all(connection)
        _check(known, descriptor, canonical)
        before = known.get(descriptor)
        if before != canonical:
            await connection.execute(
                "insert into ssp (descriptor, canonical) values ($1, $2)"
                " on conflict (descriptor) do update set canonical = excluded.canonical",
                descriptor,
                canonical,
            )
        if open_days:
            await connection.execute("select ssp_regroup($1)", descriptor)
        family = await connection.fetchrow(
            "select canonical, until from ssp_family where descriptor = $1 and canonical <> $2"
            " and until >= utc_today() order by since desc limit 1",
            descriptor,
            canonical,
        )
    if before == canonical:
        return Registered(descriptor, canonical, "unchanged", None, *(family or ()))
    outcome: Literal["added", "updated"] = "updated" if before else "added"
    return Registered(descriptor, canonical, outcome, before, *(family or ()))


async def set_access(
    connection: asyncpg.Connection,
    descriptor: str,
    *,
    allow: Sequence[Network] | None = None,
    qps: int | Literal["any"] | None = None,
    signed: bool | None = None,
) -> SspAccess:
    """Set who may send an SSP's requests, how many, and whether its notices are signed.

    None leaves a value unchanged. An empty list allows any network, and "any" allows any number of
    requests per second. Raises RegistryError if the SSP is not registered.
    """
    async with connection.transaction():
        await connection.execute("select catalog_lock()")
        if descriptor not in await fetch_all(connection):
            raise _unregistered(descriptor)
        await connection.execute(
            "update ssp set allow = coalesce($2::text[]::cidr[], allow),"
            " qps = case when $3 then $4 else qps end, signed = coalesce($5, signed)"
            " where descriptor = $1",
            descriptor,
            None if allow is None else [str(network) for network in allow],
            qps is not None,
            None if qps == "any" else qps,
            signed,
        )
        return (await fetch_access(connection)).get(descriptor, SspAccess())


async def remove(connection: asyncpg.Connection, descriptor: str) -> None:
    """Remove an SSP, whose requests then get a 404.

    Its figures stay with its family, and it gets the same number if it is registered again. Raises
    RegistryError if it is not registered, or is the canonical id of other descriptors.
    """
    async with connection.transaction():
        await connection.execute("select catalog_lock()")
        known = await fetch_all(connection)
        if descriptor not in known:
            raise _unregistered(descriptor)
        variants = _variants(known, descriptor)
        if variants:
            raise RegistryError(
                f"{descriptor} is the canonical id of {', '.join(variants)}: remove them first"
            )
        await connection.execute("delete from ssp where descriptor = $1", descriptor)


async def fetch_all(connection: asyncpg.Connection) -> dict[str, str]:
    """Map each descriptor to its canonical id, ordered by descriptor."""
    rows = await connection.fetch("select descriptor, canonical from ssp order by descriptor")
    return {row["descriptor"]: row["canonical"] for row in rows}


async def fetch_families(connection: asyncpg.Connection) -> dict[str, str]:
    """Map each descriptor to its canonical id, and each canonical id to itself."""
    known = await fetch_all(connection)
    return {canonical: canonical for canonical in known.values()} | known


async def fetch_numbered(connection: asyncpg.Connection) -> dict[str, tuple[str, int]]:
    """Map each descriptor to (canonical id, number), ordered by descriptor.

    A number is never reused, even after its descriptor has been removed.
    """
    rows = await connection.fetch(
        "select s.descriptor, s.canonical, n.number from ssp s join ssp_number n using (descriptor)"
        " order by s.descriptor"
    )
    return {row["descriptor"]: (row["canonical"], row["number"]) for row in rows}


async def fetch_counted(connection: asyncpg.Connection) -> dict[int, str]:
    """Map numbers to the descriptors that may have counts of today.

    These are the registered descriptors, and those removed yesterday or today.
    """
    rows = await connection.fetch(
        "select number, descriptor from ssp_number"
        " where removed_on is null or removed_on >= utc_today() - 1"
        " order by removed_on nulls first, descriptor"
    )
    return {row["number"]: row["descriptor"] for row in rows}


async def fetch_former(connection: asyncpg.Connection) -> list[str]:
    """Fetch the descriptors that have reports of their own from before they joined a family."""
    rows = await connection.fetch(
        "select distinct s.descriptor from ssp s join ssp_family f"
        " on f.canonical = s.descriptor and f.since <= utc_today()"
        " where s.canonical <> s.descriptor order by 1"
    )
    return [row["descriptor"] for row in rows]


async def fetch_former_ids(connection: asyncpg.Connection) -> dict[str, tuple[str, ...]]:
    """Map descriptors to their former canonical ids, under which their users may still be known."""
    rows = await connection.fetch(
        "select descriptor, array_agg(distinct f.canonical) as former"
        " from ssp s join ssp_family f using (descriptor) where f.canonical <> s.canonical"
        " group by descriptor order by descriptor"
    )
    return {row["descriptor"]: tuple(row["former"]) for row in rows}


async def fetch_family(connection: asyncpg.Connection, ssp: str) -> list[FamilySpan]:
    """Fetch the current and former descriptors of an SSP's family.

    Each is returned with the days on which it belongs to the family.
    """
    rows = await connection.fetch(
        "select descriptor, since, until from ssp_family where canonical = $1 order by 1, 2", ssp
    )
    return [FamilySpan(*row) for row in rows]


async def fetch_access(connection: asyncpg.Connection) -> dict[str, SspAccess]:
    """Map the descriptors that have access rules to their rules."""
    rows = await connection.fetch(
        "select descriptor, allow::text[] as allow, qps, signed from ssp"
        " where qps is not null or cardinality(allow) > 0 or signed"
    )
    return {
        row["descriptor"]: SspAccess(tuple(row["allow"]), row["qps"], bool(row["signed"]))
        for row in rows
    }


def _unregistered(descriptor: str) -> RegistryError:
    return RegistryError(f"{descriptor[:60]!a} is not registered: add it with snapbid ssp add")


def _variants(known: Mapping[str, str], descriptor: str) -> list[str]:
    return [name for name, of in known.items() if of == descriptor and name != descriptor]


def _check_spelling(descriptor: str) -> None:
    if not _FORM.fullmatch(descriptor):
        raise RegistryError(
            "ID must be 1 to 128 characters of A-Z a-z 0-9 . _ ~ -, "
            f"found {len(descriptor)}: {descriptor[:60]!a}"
        )
    if descriptor in (".", ".."):  # clients resolve such a path segment before they send it
        raise RegistryError(f"ID must not be {descriptor!a}, which clients remove from URLs")


def _check(known: dict[str, str], descriptor: str, canonical: str) -> None:
    if canonical == descriptor:
        return
    if canonical not in known:
        raise RegistryError(f"the canonical id {canonical[:60]!a} is not registered: add it first")
    if known[canonical] != canonical:
        raise RegistryError(
            f"{canonical} is a variant of {known[canonical]}: use {known[canonical]} instead"
        )
    variants = _variants(known, descriptor)
    if variants:
        raise RegistryError(
            f"{descriptor} is the canonical id of {', '.join(variants)}, so it cannot be a variant"
        )
