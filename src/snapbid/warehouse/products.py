"""Products and their API keys, shown once and stored as hashes (contract 7, Key).

A key is 256 random bits. Nobody can try that many, so that a plain SHA-256 keeps it as safe as a
slow hash would, and checking costs a request nothing.
"""

import re
import secrets
from datetime import datetime
from hashlib import sha256
from typing import Final, NamedTuple

import asyncpg

RATE: Final = 6000
"""Requests of a key in a rolling minute, where it was issued without another number."""

MAX_RATE: Final = 1_000_000

_FORM: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}", re.ASCII)
_PREFIX: Final = "sbk_"  # a key never begins like an option
_ID: Final = re.compile(r"[0-9a-f]{12}", re.ASCII)
_ISSUED: Final = (
    "select left(encode(k.hash, 'hex'), 12), p.name, p.presets, k.rate, k.issued_at"
    " from {} k join product p on p.name = k.product"
)


class ProductError(ValueError):
    """A product or key that is refused; the message names the rule."""


class Key(NamedTuple):
    """What a key stands for: its product, the presets that has, its requests per minute."""

    product: str
    presets: tuple[str, ...]
    rate: int


class Issued(NamedTuple):
    """A key as the operator may see it; `id` is the beginning of its hash."""

    id: str
    product: str
    presets: tuple[str, ...]
    rate: int
    issued_at: datetime


async def add(connection: asyncpg.Connection, product: str, presets: tuple[str, ...]) -> None:
    """Add a product, or subscribe a known one to presets; those it has stay.

    Raises ProductError where the spelling is not allowed.
    """
    if not _FORM.fullmatch(product):
        raise ProductError(
            "PRODUCT must be 1 to 128 characters of A-Z a-z 0-9 . _ ~ -, "
            f"found {len(product)}: {product[:60]!a}"
        )
    await connection.execute(
        "insert into product (name, presets) values ($1, $2) on conflict (name) do update"
        " set presets = array(select distinct unnest(product.presets || excluded.presets)"
        " order by 1) where not product.presets @> excluded.presets",
        product,
        list(presets),
    )


async def issue(
    connection: asyncpg.Connection, product: str, presets: tuple[str, ...] = (), rate: int = RATE
) -> str:
    """Issue a new key of a product, which is added where it is new; give the key.

    Raises ProductError.
    """
    if not 1 <= rate <= MAX_RATE:
        raise ProductError(f"--rate must be from 1 to {MAX_RATE}, found {rate}")
    key = _PREFIX + secrets.token_urlsafe(32)
    async with connection.transaction():
        await add(connection, product, presets)
        await connection.execute(
            "insert into api_key (hash, product, rate) values ($1, $2, $3)",
            sha256(key.encode()).digest(),
            product,
            rate,
        )
    return key


async def fetch_keys(connection: asyncpg.Connection) -> dict[str, Key]:
    """Give hash (hexadecimal) -> what the key stands for, of every key."""
    rows = await connection.fetch(
        "select encode(k.hash, 'hex') as hash, p.name, p.presets, k.rate"
        " from api_key k join product p on p.name = k.product order by k.hash"
    )
    return {row["hash"]: Key(row["name"], tuple(row["presets"]), row["rate"]) for row in rows}


async def fetch_issued(connection: asyncpg.Connection) -> list[Issued]:
    """Give the keys of all products, of each the oldest first."""
    rows = await connection.fetch(f"{_ISSUED.format('api_key')} order by p.name, k.issued_at")
    return [_issued(row) for row in rows]


async def revoke(connection: asyncpg.Connection, given: str) -> Issued:
    """End a key, given itself or its id.

    Raises ProductError, which does not quote what may be a key.
    """
    is_id = _ID.fullmatch(given) is not None
    which = "left(encode(hash, 'hex'), 12) = $1" if is_id else "encode(hash, 'hex') = $1"
    value = given if is_id else sha256(given.encode(errors="surrogateescape")).hexdigest()
    rows = await connection.fetch(
        f"with gone as (delete from api_key where {which} returning *) {_ISSUED.format('gone')}",
        value,
    )
    if not rows:
        raise ProductError("KEY_OR_ID is no key that holds: see snapbid key list")
    return _issued(rows[0])


def _issued(row: asyncpg.Record) -> Issued:
    id, product, presets, rate, issued_at = row
    return Issued(id, product, tuple(presets), rate, issued_at)
