"""Products and their API keys, shown once and stored as hashes (contract 7, Key).

A key has 256 random bits, too many to guess, so a plain SHA-256 protects it as well as a slow hash
would, at hardly any cost per request.
"""

import re
import secrets
from datetime import datetime
from hashlib import sha256
from typing import Final, NamedTuple

import asyncpg

from snapbid.campaigns.vocabulary import AUDIENCE_NAME

RATE: Final = 6000
"""Default limit of a key: requests in a rolling minute."""

MAX_RATE: Final = 1_000_000

EVENTS: Final = 60_000
"""Default limit of a key: events in a rolling minute."""

MIN_EVENTS: Final = 1_024  # what the largest request counts for
MAX_EVENTS: Final = 100_000_000

_PREFIX: Final = "sbk_"  # keeps a key from looking like an option
_ID: Final = re.compile(r"[0-9a-f]{12}", re.ASCII)
_ISSUED: Final = (
    "select left(encode(k.hash, 'hex'), 12), p.name, p.presets, k.rate, k.events, k.issued_at"
    " from {} k join product p on p.name = k.product"
)


class ProductError(ValueError):
    """A product or key is refused; the message names the broken rule."""


class KeyGrant(NamedTuple):
    """A key's product with its presets, and the key's limits: requests and events per minute."""

    product: str
    presets: tuple[str, ...]
    rate: int
    events: int


class IssuedKey(NamedTuple):
    """An issued key as shown to the operator; `id` is the beginning of its hash."""

    id: str
    product: str
    presets: tuple[str, ...]
    rate: int
    events: int
    issued_at: datetime


async def add(connection: asyncpg.Connection, product: str, presets: tuple[str, ...]) -> None:
    """Add a product, or subscribe an existing one to more presets.

    Raises ProductError if the name is not allowed.
    """
    if not AUDIENCE_NAME.fullmatch(product):
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
    connection: asyncpg.Connection,
    product: str,
    presets: tuple[str, ...] = (),
    rate: int = RATE,
    events: int = EVENTS,
) -> str:
    """Issue a new key for a product, adding the product if it is new; return the key.

    Raises ProductError if the product's name or a limit is not allowed.
    """
    if not 1 <= rate <= MAX_RATE:
        raise ProductError(f"--rate must be from 1 to {MAX_RATE}, found {rate}")
    if not MIN_EVENTS <= events <= MAX_EVENTS:
        raise ProductError(f"--events must be from {MIN_EVENTS} to {MAX_EVENTS}, found {events}")
    key = _PREFIX + secrets.token_urlsafe(32)
    async with connection.transaction():
        await add(connection, product, presets)
        await connection.execute(
            "insert into api_key (hash, product, rate, events) values ($1, $2, $3, $4)",
            sha256(key.encode()).digest(),
            product,
            rate,
            events,
        )
    return key


async def fetch_keys(connection: asyncpg.Connection) -> dict[str, KeyGrant]:
    """Fetch the grants of all keys, by the key's hash (hexadecimal)."""
    rows = await connection.fetch(
        "select encode(k.hash, 'hex') as hash, p.name, p.presets, k.rate, k.events"
        " from api_key k join product p on p.name = k.product order by k.hash"
    )
    return {
        row["hash"]: KeyGrant(row["name"], tuple(row["presets"]), row["rate"], row["events"])
        for row in rows
    }


async def fetch_issued(connection: asyncpg.Connection) -> list[IssuedKey]:
    """Fetch all issued keys, ordered by product, then oldest first."""
    rows = await connection.fetch(f"{_ISSUED.format('api_key')} order by p.name, k.issued_at")
    return [_issued(row) for row in rows]


async def revoke(connection: asyncpg.Connection, given: str) -> IssuedKey:
    """Revoke a key, given in full or by its id.

    Raises ProductError if there is no such key; the message does not quote `given`.
    """
    is_id = _ID.fullmatch(given) is not None
    which = "left(encode(hash, 'hex'), 12) = $1" if is_id else "encode(hash, 'hex') = $1"
    value = given if is_id else sha256(given.encode(errors="surrogateescape")).hexdigest()
    rows = await connection.fetch(
        f"with gone as (delete from api_key where {which} returning *) {_ISSUED.format('gone')}",
        value,
    )
    if not rows:
        raise ProductError("KEY_OR_ID matches no valid key: see snapbid key list")
    return _issued(rows[0])


def _issued(row: asyncpg.Record) -> IssuedKey:
    id, product, presets, rate, events, issued_at = row
    return IssuedKey(id, product, tuple(presets), rate, events, issued_at)


async def fetch_names(connection: asyncpg.Connection) -> list[str]:
    """Fetch the names of all products, including products named only by an audience."""
    rows = await connection.fetch(
        "select name from product union select product from audience where product is not null"
    )
    return [row["name"] for row in rows]
