"""Find settings of PostgreSQL that may lose data or refuse writes, and outdated schemas."""

from typing import Final

import asyncpg

from snapbid.base.risks import Risk, Severity
from snapbid.base.version import version
from snapbid.warehouse.migrate import fetch_standing, files

OLDEST: Final = 15
_QUERY: Final = """
    select current_setting('server_version') as version,
        current_setting('server_version_num')::int / 10000 as release,
        current_setting('fsync') as fsync,
        current_setting('synchronous_commit') as synchronous_commit,
        current_setting('full_page_writes') as full_page_writes,
        pg_is_in_recovery() as standby,
        current_setting('transaction_read_only') as read_only,
        (select source from pg_settings where name = 'default_transaction_read_only') as source,
        quote_ident(current_database()) as database, quote_ident(session_user) as role
"""
_LOSSES: Final = {
    "fsync": "a crash of its machine may destroy the whole warehouse",
    "synchronous_commit": "a crash loses the last counts and events, which Redis no longer has",
    "full_page_writes": "a crash of its machine may leave half-written pages",
}


async def fetch_risks(connection: asyncpg.Connection) -> list[Risk]:
    """Fetch the server's risks as they apply to this connection's role and database."""
    row = await connection.fetchrow(_QUERY)
    risks: list[Risk] = []

    def add(name: str, severity: Severity, text: str, remedy: str) -> None:
        text = f"PostgreSQL (SNAPBID_DATABASE_URL) {text}"
        risks.append(Risk("warehouse", name, severity, text, remedy))

    if row["release"] < OLDEST:
        remedy = f"{OLDEST} is the oldest that works"
        add("version", "unsupported", f"is {row['version']}", remedy)
    for name, loss in _LOSSES.items():
        if row[name] == "off":
            statements = f"alter system set {name} = on; select pg_reload_conf();"
            remedy = f"run `{statements}` in psql as a superuser"
            if name == "synchronous_commit":
                remedy += ", and reset it for the role and the database if it is set there"
            add(name, "weak", f"runs with {name} off: {loss}", remedy)
    if row["standby"]:
        remedy = "name the primary in SNAPBID_DATABASE_URL"
        add("standby", "readonly", "is a standby: it refuses writes", remedy)
    elif row["read_only"] == "on":
        remedy = f"find out who made it read-only, then run `{_writable(row)}` in psql"
        add("read_only", "readonly", "is read-only: counts and events wait in Redis", remedy)
    return [*risks, *await _of_schema(connection)]


def _writable(row: asyncpg.Record) -> str:
    """Return SQL statements that reset the setting that made the server read-only."""
    setting = "default_transaction_read_only"
    owner = {
        "database": f"database {row['database']}",
        "user": f"role {row['role']}",
        "database user": f"role {row['role']} in database {row['database']}",
    }.get(row["source"])
    reset = f"alter {owner or 'system'} reset {setting};"
    return f"set {setting} = off; {reset}" + ("" if owner else " select pg_reload_conf();")


async def _of_schema(connection: asyncpg.Connection) -> list[Risk]:
    """Return a risk if the schema must be migrated, or if this program is too old for it."""
    standing = await fetch_standing(connection)
    if not standing.is_readable:
        text = (
            f"the warehouse has the schema of {standing.reader} (migration {standing.newer}), "
            f"which this program ({version()}) cannot use"
        )
        remedy = f"install {standing.reader}, or restore the backup from before it"
        return [Risk("warehouse", "schema", "unsupported", text, remedy)]
    if standing.missing:
        has = "no schema" if len(standing.missing) == len(files()) else "an older schema"
        text = f"the warehouse has {has}: this program ({version()}) cannot work with it"
        return [Risk("warehouse", "schema", "weak", text, "run snapbid migrate")]
    return []
