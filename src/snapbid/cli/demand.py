"""`snapbid export dte SSP`: demand signals as files (contract 11)."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from snapbid.cli import console

if TYPE_CHECKING:
    import asyncpg

    from snapbid.demand.clauses import Clauses


def export_signals(ssp: str, folder: Path | None) -> None:
    """Print the plain rules, or write them and the Dynamic Traffic Engine's files to a folder.

    The models are written for this hour and the next. Existing files are replaced.
    """
    import msgspec

    from snapbid.demand import dte
    from snapbid.demand.rules import rules_of
    from snapbid.reference import rates

    clauses = console.in_warehouse(lambda connection: _clauses(connection, ssp))
    rules = msgspec.json.encode(rules_of(ssp, clauses, rates.load().usd))
    if folder is None:
        click.echo(rules)
        return
    now = datetime.now(UTC)
    hours = [(now + timedelta(hours=ahead)).strftime("%Y-%m-%d/%H") for ahead in (0, 1)]
    files = dte.files(ssp, clauses, hours)
    files[f"{ssp}/rules.json"] = json.dumps(json.loads(rules), indent=2) + "\n"
    try:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f"{path.name}.part")
            part.write_text(text, encoding="utf-8")
            part.replace(path)
            click.echo(f"wrote {path}")
    except OSError as error:
        raise console.WrongInput(f"{folder} cannot be written: {error.strerror}") from error


async def _clauses(connection: "asyncpg.Connection", ssp: str) -> "Clauses":
    from snapbid.demand.making import read
    from snapbid.warehouse import registry

    known = await registry.fetch_all(connection)
    if ssp not in known:
        raise console.WrongInput(f"{ssp[:60]!a} is not registered: add it with snapbid ssp add")
    # A canonical id stands for all its variants.
    family = {name: id for name, id in known.items() if ssp in (name, id)}
    return (await read(connection, {ssp: family}))[ssp]
