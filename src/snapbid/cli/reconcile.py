"""`snapbid reconcile SSP LOG`: compare an SSP's own log with ours (contract 11)."""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, tzinfo
from functools import partial
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import click

from snapbid.base.outputs import replaced
from snapbid.base.settings import load
from snapbid.cli import console
from snapbid.cli.shell import ShellCommand

if TYPE_CHECKING:
    from snapbid.operations.reconcile.compare import Comparison, Dispute, Reported, Terms
    from snapbid.operations.reconcile.result import Coverage, TotalsRow

SHOWN: Final = 20
MOST_TOLERANCE: Final = 1_000_000
FIELDS: Final = ("auction", "imp", "time", "day", "price", "currency", "kind", "ssp")


def _columns(
    context: click.Context, option: click.Parameter, values: Sequence[str]
) -> dict[str, str]:
    for value in values:
        field, equals, _ = value.partition("=")
        if field not in FIELDS or not equals or value == "auction=":
            raise click.BadParameter(
                f"must be FIELD=NAME, where FIELD is one of {', '.join(FIELDS)}"
            )
    named = [value.partition("=")[::2] for value in values]
    twice = [field for field, number in Counter(field for field, _ in named).items() if number > 1]
    if twice:
        raise click.BadParameter(
            f"must name one column per field, found several for {', '.join(twice)}"
        )
    return dict(named)


def _currency(context: click.Context, option: click.Parameter, value: str) -> str:
    if not (value.isascii() and value.isalnum() and 2 <= len(value) <= 10):
        raise click.BadParameter(f"must be a code like EUR, found {value[:40]!a}")
    return value.upper()


def _tolerance(context: click.Context, option: click.Parameter, value: float) -> int:
    """Validate the tolerance (a difference in CPM), and convert it to millionths of its unit."""
    if not 0 <= value <= MOST_TOLERANCE:
        raise click.BadParameter(f"must be from 0 to {MOST_TOLERANCE:,}, found {value}")
    return round(value * 1_000_000)


def _zone(context: click.Context, option: click.Parameter, value: str) -> tzinfo:
    try:
        return UTC if value.upper() == "UTC" else ZoneInfo(value)
    except (ValueError, OSError, KeyError):
        raise click.BadParameter(
            f"must be a time zone like Europe/Paris, found {value[:40]!a}"
        ) from None


@click.command(
    cls=ShellCommand,
    examples=[
        "snapbid reconcile acme wins.csv.gz --date 2026-01-31 --out disputes.csv",
        "snapbid reconcile acme log.jsonl --column auction=tx --kind billing",
    ],
)
@click.argument("ssp", metavar="SSP")
@click.argument("log", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--auctions", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Directory of the auction log (default: SNAPBID_AUCTION_LOG).")  # fmt: skip
@click.option("--date", "day", type=console.day, help="Only this day (UTC).")
@click.option("--from", "first", type=console.day, help="The first day (UTC).")
@click.option("--to", "last", type=console.day, help="The last day (UTC).")
@click.option("--column", "columns", multiple=True, callback=_columns, metavar="FIELD=NAME",
              help="Column of a field in LOG. Common names are recognised; an empty NAME ignores "
              "the field.")  # fmt: skip
@click.option("--timezone", "zone", callback=_zone, default="UTC", show_default=True,
              help="Time zone of times without one.")  # fmt: skip
@click.option(
    "--day-order",
    type=click.Choice(["dmy", "mdy"]),
    help="Whether 05/06/2026 is in June or May (default: inferred from other lines).",
)
@click.option("--no-prices", is_flag=True, help="Do not compare prices.")
@click.option("--no-times", is_flag=True, help="Do not compare times or days.")
@click.option("--kind", type=click.Choice(["win", "billing", "loss", "bid"]), default="win",
              show_default=True, help="Kind of lines that do not state one.")  # fmt: skip
@click.option("--currency", default="USD", show_default=True, callback=_currency,
              help="Currency of prices that do not state one.")  # fmt: skip
@click.option("--price-in", type=click.Choice(["cpm", "impression", "micros"]), default="cpm",
              show_default=True, help="CPM, price per impression, or CPM micros.")  # fmt: skip
@click.option("--tolerance", type=float, default=0.005, show_default=True, callback=_tolerance,
              help="Largest difference at which CPMs agree.")  # fmt: skip
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path),
              help="Write all disputes as CSV.")  # fmt: skip
@click.option("--page", "page", type=click.Path(dir_okay=False, path_type=Path),
              help="Write the result as an HTML page.")  # fmt: skip
def reconcile(ssp: str, log: Path, columns: dict[str, str], **options: Any) -> None:
    """Compare an SSP's own log with the auction log and the report.

    SSP is a canonical id. LOG is CSV, JSON Lines or Parquet, optionally gzipped, with one line per
    win (or other --kind). Up to 20 disputed auctions are listed with their causes; --out writes
    all. Exit status: 0 if everything agrees, 1 if anything differs or could not be compared, 2 for
    wrong usage.
    """
    if find_spec("duckdb") is None:
        raise console.Refused("reconcile needs duckdb: pip install 'snapbid[parquet]'")
    from snapbid.operations.reconcile import claims, result
    from snapbid.operations.reconcile.compare import Comparison

    _refuse_same(log, options["out"], options["page"])
    settings = load(os.environ)
    auctions = options["auctions"] or settings.auction_log
    if auctions is None or not auctions.is_dir():
        raise console.WrongInput(
            "there is no auction log: pass --auctions or set SNAPBID_AUCTION_LOG"
        )
    day, first, last = options["day"], options["first"], options["last"]
    if day and (first or last):
        raise console.WrongInput("--date cannot be combined with --from or --to")
    first, last = day or first, day or last
    if first and last and last < first:
        raise console.WrongInput("--to must not be before --from")
    scale = claims.SCALES[options["price_in"]]
    wanted = {"prices": not options["no_prices"], "times": not options["no_times"]}
    off = {} if wanted["prices"] else {"price": ""}
    off |= {} if wanted["times"] else {"time": "", "day": ""}
    zone = options["zone"]
    currency, order = options["currency"], options["day_order"]
    form = claims.Form(columns | off, options["kind"], currency, scale, zone, order)
    terms = _terms(ssp, options["tolerance"], first, last)
    comparison = Comparison(terms, partial(_reported, ssp))
    shown: list[Dispute] = []
    with _naming_files(log):
        disputes = comparison.disputes(log, form, auctions)
        if options["out"] is not None:
            disputes = result.write_csv(options["out"], disputes)
        for dispute in disputes:
            if len(shown) < result.SHOWN:
                shown.append(dispute)
    rows = result.totals(comparison)
    covered = result.coverage(comparison, **wanted)
    if options["page"] is not None:
        page = result.page(ssp, comparison, rows, shown, covered)
        with _naming_files(log), replaced(options["page"]) as file:
            file.write_text(page, encoding="utf-8")
    _print(comparison, rows, shown, covered)
    is_complete = result.is_complete(comparison, **wanted)
    differs = bool(comparison.causes) or any(row.differs for row in rows)
    sys.exit(int(differs or not is_complete))


def _refuse_same(log: Path, out: Path | None, page: Path | None) -> None:
    """Raise WrongInput if any two of these paths are the same file."""
    given = (("LOG", log), ("--out", out), ("--page", page))
    named = [(name, path) for name, path in given if path is not None]
    for (name, path), (other, second) in combinations(named, 2):
        if _is_same(path, second):
            raise console.WrongInput(f"{other} must not be the same file as {name}: {second}")


def _is_same(path: Path, other: Path) -> bool:
    if path.exists() and other.exists():
        return path.samefile(other) and path.is_file()
    return path.resolve() == other.resolve()


@contextmanager
def _naming_files(log: Path) -> Iterator[None]:
    """Raise WrongInput, naming the file, if the log cannot be read or a file cannot be written."""
    from snapbid.operations.reconcile.exports import LogError

    try:
        yield
    except LogError as error:
        raise console.WrongInput(f"{log}: {error}") from error
    except OSError as error:
        raise console.WrongInput(f"{error.filename or log}: {error.strerror or error}") from error


def _terms(ssp: str, tolerance: int, first: date | None, last: date | None) -> "Terms":
    from snapbid.operations.reconcile.compare import Terms
    from snapbid.reference import history
    from snapbid.warehouse import rates, registry

    family = console.in_warehouse(registry.fetch_family, ssp)
    if not family:
        raise console.WrongInput(f"{ssp[:60]!a} is not the canonical id of a registered SSP")
    descriptors = frozenset(span.descriptor for span in family)
    table = history.DailyRates(history.load(), console.in_warehouse(rates.fetch_all))

    def convert(currency: str, day: date) -> Any:
        quote = table.quote(currency, day) or table.quote(currency, day, crypto=True)
        return None if quote is None else quote.usd

    today = datetime.now(UTC).date()
    return Terms(ssp, descriptors | {ssp}, convert, tolerance, first, last, tuple(family), today)


def _reported(ssp: str, first: date, last: date) -> "Reported":
    """Fetch the report's figures for the days from `first` to `last`, by kind of notice and day."""
    from snapbid.operations.reconcile.compare import ReportedDay
    from snapbid.warehouse import reports

    async def fetch(connection: Any) -> "Reported":
        reported = {}
        for day, figures in (await reports.fetch(connection, ssp, first, last)).items():
            reported["win", day] = ReportedDay(figures.wins, figures.win_cpm_micros)
            reported["billing", day] = ReportedDay(figures.imps, None)
        return reported

    return console.in_warehouse(fetch)


def _print(
    comparison: "Comparison",
    rows: "list[TotalsRow]",
    shown: "list[Dispute]",
    covered: "Coverage",
) -> None:
    from snapbid.operations.reconcile.compare import CAUSES
    from snapbid.operations.reconcile.result import COLUMNS, cells, differences, drifts

    click.echo(f"{console.counted(comparison.lines, 'line')}, {comparison.outside} on other days")
    for line in covered.lines():
        click.echo(line)
    click.echo()
    heads = ("kind", "day", "their log", "USD", "agreed", "our log", "USD", "report", "USD")
    console.print_table(heads, [tuple(row) for row in rows])
    if comparison.gaps:
        click.echo(f"\nour log has {console.counted(len(comparison.gaps), 'gap')} on these days")
    differing, drifting = differences(rows), drifts(comparison)
    if differing:
        click.echo()
    for line in differing:
        click.echo(line)
    if not comparison.causes:
        whole = "no line is in dispute" if differing else "nothing is in dispute"
        click.echo(f"\n{'no dispute in what was compared' if covered.missing else whole}")
    elif drifting:
        click.echo()
    for line in drifting:
        click.echo(line)
    if not comparison.causes:
        return
    click.echo()
    console.print_table(
        ("cause", "disputes", "what it means"),
        [(name, count, CAUSES[name]) for name, count in comparison.causes.most_common()],
    )
    click.echo()
    console.print_table(COLUMNS, [cells(dispute) for dispute in shown[:SHOWN]])
    if (total := comparison.causes.total()) > SHOWN:
        click.echo(f"… and {total - SHOWN} more: --out FILE writes all of them")
