"""The audit trail: who changed which SSP, campaign, product, key or token, and when.

Triggers write it (`schema/0001_baseline.sql`) in the same transaction as the change, so changes by
plain SQL are also recorded. Changes made over a connection from `connect` are recorded with the
system user that runs the program.
"""

import os
import pwd
import socket
from datetime import datetime
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from typing import Any, Final, Literal

import asyncpg
import msgspec

from snapbid.warehouse import unavailable

Kind = Literal["ssp", "campaign", "product", "key", "token", "creative", "person", "audience"]


class AuditEntry(msgspec.Struct, frozen=True):
    """One change or, if `object` is None, one statement that changed `count` objects.

    `detail` maps each changed field to [before, after], or to None if the values are long. For
    an entry about many campaigns it is {"revisions": [first, last]} instead.
    """

    id: int
    at: datetime
    kind: Kind
    object: str | None
    action: str
    count: int
    detail: dict[str, Any] | None
    actor: str | None  # the system user as stated by the program; None for plain SQL
    role: str  # of the database, as verified by PostgreSQL
    application: str
    address: str | None  # of the client; None on a Unix socket


def this_user() -> str:
    """Return this process's system user and machine: `root@host (sudo by alice)`."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # no such user, as in a container
        name = str(uid)
    behind = os.environ.get("SUDO_USER") if uid == 0 else None
    return f"{name}@{socket.gethostname()}" + (f" (sudo by {behind})" if behind else "")


async def connect(dsn: str, application: str) -> asyncpg.Connection:
    """Open a connection whose changes are recorded as made by `application` and the system user."""
    own = {"application_name": application}
    connection = await asyncpg.connect(dsn, server_settings=own, timeout=unavailable.CONNECT_S)
    # The trigger that records a change takes a key's id from its hash as text.
    await unavailable.apply(connection, {"snapbid.actor": this_user(), "bytea_output": "hex"})
    return connection


async def record(
    connection: asyncpg.Connection,
    kind: Kind,
    object: str,
    action: str,
    detail: dict[str, Any] | None = None,
) -> None:
    """Record an action that changes no table, such as issuing a token."""
    await connection.execute(
        "insert into audit (kind, object, action, detail) values ($1, $2, $3, $4)",
        kind,
        object,
        action,
        None if detail is None else msgspec.json.encode(detail).decode(),
    )


async def fetch(
    connection: asyncpg.Connection,
    *,
    object: str | None = None,
    kind: Kind | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    most: int = 1000,
) -> list[AuditEntry]:
    """Fetch up to `most` of the newest entries, oldest first; `until` itself is excluded.

    If `object` is the id of a campaign, even a deleted one, the result includes entries that cover
    many campaigns at once, since any of them may concern this one.
    """
    rows = await connection.fetch(
        "select id, at, kind, object, action, count, detail, actor, role, application, address"
        " from audit where ($1::text is null or object = $1"
        "  or (object is null and kind = 'campaign'"
        "   and exists (select from campaign_number n where n.id = $1)))"
        " and ($2::text is null or kind = $2)"
        " and ($3::timestamptz is null or at >= $3) and ($4::timestamptz is null or at < $4)"
        " order by id desc limit $5",
        object,
        kind,
        since,
        until,
        most,
    )
    return [_entry(row) for row in reversed(rows)]


def _entry(row: asyncpg.Record) -> AuditEntry:
    detail, address = row["detail"], row["address"]
    return AuditEntry(
        **{name: row[name] for name in AuditEntry.__struct_fields__ if name not in _READ},
        detail=None if detail is None else msgspec.json.decode(detail),
        address=None if address is None else _shown(address),
    )


_READ: Final = {"detail", "address"}


def _shown(address: IPv4Address | IPv6Address | IPv4Interface | IPv6Interface) -> str:
    return str(getattr(address, "ip", address))
