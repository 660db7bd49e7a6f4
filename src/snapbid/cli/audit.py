"""`snapbid audit`: list changes of SSPs, campaigns, audiences, keys and other objects."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from snapbid.cli import console
from snapbid.cli.shell import ShellCommand

if TYPE_CHECKING:
    from snapbid.warehouse.audit import AuditEntry, Kind

KINDS = ("ssp", "campaign", "product", "key", "token", "creative", "person", "audience")


def _time(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"must be a time like 2026-01-31 or 2026-01-31T12:30, found {value[:60]!a}"
        ) from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


@click.command(
    cls=ShellCommand,
    examples=[
        "snapbid audit --since 2026-01-31",
        "snapbid audit acme --kind ssp",
    ],
)
@click.argument("object", metavar="[ID]", required=False)
@click.option("--kind", type=click.Choice(KINDS), help="Only changes of this kind of object.")
@click.option("--since", callback=_time, metavar="TIME", help="From this time on (UTC).")
@click.option("--until", callback=_time, metavar="TIME", help="Before this time (UTC).")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=1000, metavar="N",
              help="Only the newest N entries (default: 1000).")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def audit(
    object: str | None,
    kind: "Kind | None",
    since: datetime | None,
    until: datetime | None,
    limit: int,
    as_json: bool,
) -> None:
    """List changes, oldest first, with time, kind, object, action, user and details.

    ID is the id of an SSP, a campaign, an audience, a product or a key (as in `key list`).
    """
    from snapbid.warehouse import audit as trail

    entries = console.in_warehouse(
        trail.fetch, object=object, kind=kind, since=since, until=until, most=limit
    )
    if as_json:
        console.print_json(entries)
        return
    columns = ("time", "kind", "object", "action", "user", "details")
    console.print_table(columns, [_row(entry) for entry in entries])


def _row(entry: "AuditEntry") -> tuple[object, ...]:
    name = entry.object if entry.object is not None else f"({entry.count} of them)"
    time = entry.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (time, entry.kind, name, entry.action, _user(entry), _details(entry.detail))


def _user(entry: "AuditEntry") -> str:
    """Return who made a change: the system user of a command, or a PostgreSQL role."""
    if entry.actor is not None:
        return entry.actor
    address = "" if entry.address is None else f"@{entry.address}"
    application = f" ({entry.application})" if entry.application else ""
    return f"role {entry.role}{address}{application}"


def _details(detail: dict[str, Any] | None) -> str:
    return "; ".join(f"{name}{_change(value)}" for name, value in (detail or {}).items())


def _change(values: list[Any] | None) -> str:
    if values is None:  # too long to store
        return ""
    before, after = map(_text, values)
    return f" {before} -> {after}"


def _text(value: Any) -> str:
    import msgspec

    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.encode(value).decode()
