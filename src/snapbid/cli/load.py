"""`snapbid load`: the load test (contract 9)."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from snapbid.cli import console
from snapbid.settings import load as load_settings

if TYPE_CHECKING:
    import asyncpg

    from snapbid.load.options import Options
    from snapbid.load.result import Result

Out = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command()
@click.argument("target", required=False)
@click.option("--ssp", "ssps", multiple=True, metavar="ID[/CANONICAL][=WEIGHT]",
              help="Who sends; repeatable. Default: as recorded, else acme.")  # fmt: skip
@click.option("--rate", default=500.0, show_default=True, help="Bid requests a second.")
@click.option("--steps", metavar="RATE,RATE,…", help="Several rates, one after the other.")
@click.option("--find-capacity", is_flag=True,
              help="Search the highest rate that meets the objectives.")  # fmt: skip
@click.option("--max-rate", default=20_000.0, show_default=True, help="Where the search ends.")
@click.option("--duration", default="30s", show_default=True, help="Of the load, or of each step.")
@click.option("--warmup", default="5s", show_default=True, help="Shown, and not measured.")
@click.option("--ramp", default="0s", show_default=True, help="From 0 to the rate, not measured.")
@click.option("--arrivals", type=click.Choice(["random", "even"]), default="random",
              show_default=True, help="The gaps between requests.")  # fmt: skip
@click.option("--connections", default=64, show_default=True, help="Kept alive, for bids.")
@click.option("--timeout", default="1s", show_default=True, help="For an answer, or a connection.")
@click.option("--objective", "objectives", multiple=True, metavar="NAME=BOUND",
              help="p99=50ms, errors=0.1%, bid-rate=20%; repeatable. "
              "Default: p99=100ms, errors=0.1%.")  # fmt: skip
@click.option("--replay", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              metavar="FILE", help="Send what `serve --record` wrote instead.")  # fmt: skip
@click.option("--requests", default=5000, show_default=True, help="Different ones to generate.")
@click.option("--win-rate", default=0.1, show_default=True, help="Of the bids.")
@click.option("--bill-rate", default=0.95, show_default=True, help="Of the wins.")
@click.option("--loss-rate", default=0.2, show_default=True, help="Of the other bids.")
@click.option("--win-delay", default="20ms-200ms", show_default=True)
@click.option("--bill-delay", default="200ms-2s", show_default=True, help="After the win.")
@click.option("--loss-delay", default="20ms-200ms", show_default=True)
@click.option("--events", default=0.0, metavar="RATE", help="Event batches a second beside bids.")
@click.option("--batch", default=100, show_default=True, help="Events of a batch.")
@click.option("--api-key", envvar="SNAPBID_API_KEY", metavar="KEY",
              help="Of the events; or SNAPBID_API_KEY, or a new one.")  # fmt: skip
@click.option("--report-token", "tokens", multiple=True, envvar="SNAPBID_REPORT_TOKEN",
              metavar="TOKEN", help="One of each canonical SSP; or issued here.")  # fmt: skip
@click.option("--no-reconcile", is_flag=True, help="Do not compare with the report.")
@click.option("--seed", default=1, show_default=True, help="Of everything that is drawn.")
@click.option("--json", "json_file", type=Out, metavar="FILE", help="Write the result.")
@click.option("--html", "html_file", type=Out, metavar="FILE", help="Write a page with plots.")
@click.option("--i-own-this-target", "owned", is_flag=True,
              help="Needed for a target that is not this machine.")  # fmt: skip
def load(target: str | None, **raw: Any) -> None:
    """Load-test the bidder at TARGET (http://127.0.0.1:8000) and compare with its report.

    Requests leave on schedule whatever the answers do, and latency counts from the scheduled
    moment. Exit status: 0 passed; 1 an objective missed or the report differs; 2 refused.
    """
    from snapbid.load.auctions import ReplayError
    from snapbid.load.options import OptionError, refuse_misuse

    try:
        options = _options(target, raw)
        _check_files(raw["json_file"], raw["html_file"])
        refuse_misuse(options, raw["owned"])
        result = _run(options, raw)
    except (OptionError, ReplayError) as error:
        raise console.WrongSettings(f"snapbid load: {error}") from error
    _write(result, raw["json_file"], raw["html_file"])
    sys.exit(0 if result.verdict.ok else 1)


def _options(target: str | None, raw: dict[str, Any]) -> "Options":
    from snapbid.load import objectives, options
    from snapbid.load.notices import Habits

    aim = options.target(target or _default_target())
    click.echo(f"target: {aim.url}")
    weights, named = options.ssps(raw["ssps"])
    for name, low, high in (("rate", 1e-3, options.MAX_RATE), ("max_rate", 1, options.MAX_RATE),
                            ("connections", 1, options.MAX_CONNECTIONS), ("events", 0, 1000),
                            ("batch", 1, 600), ("requests", 1, 200_000), ("win_rate", 0, 1),
                            ("bill_rate", 0, 1), ("loss_rate", 0, 1)):  # fmt: skip
        if not low <= raw[name] <= high:
            flag = name.replace("_", "-")
            raise options.OptionError(
                f"--{flag} must be from {low:g} to {high:g}, found {raw[name]:g}"
            )
    try:
        bounds = [objectives.parse(one) for one in raw["objectives"] or objectives.DEFAULTS]
    except ValueError as error:
        raise options.OptionError(f"--objective {error}") from error
    delays = [options.delay(f"--{kind}-delay", raw[f"{kind}_delay"])
              for kind in ("win", "bill", "loss")]  # fmt: skip
    return options.Options(
        target=aim,
        ssps=weights,
        canonical=named,
        rates=options.rates(raw["steps"]) if raw["steps"] else [raw["rate"]],
        find_capacity=raw["find_capacity"],
        max_rate=raw["max_rate"],
        duration_s=options.duration("--duration", raw["duration"], least=0.1, most=3600),
        warmup_s=options.duration("--warmup", raw["warmup"], most=600),
        ramp_s=options.duration("--ramp", raw["ramp"], most=600),
        even=raw["arrivals"] == "even",
        connections=raw["connections"],
        timeout_s=options.duration("--timeout", raw["timeout"], least=0.001, most=60),
        objectives=bounds,
        replay=raw["replay"],
        requests=raw["requests"],
        habits=Habits(raw["win_rate"], raw["bill_rate"], raw["loss_rate"], *delays),
        events=None,
        tokens=None,
        seed=raw["seed"],
    )


def _run(options: "Options", raw: dict[str, Any]) -> "Result":
    """The run, on an event loop of its own."""
    import asyncio

    import uvloop
    from msgspec.structs import replace

    from snapbid.load import text
    from snapbid.load.reports import ReportError
    from snapbid.load.run import Run, load_auctions

    auctions = load_auctions(options)
    descriptors = {auction.ssp for auction in auctions}
    if not raw["no_reconcile"]:
        canonical, tokens = _access(descriptors, options.canonical, raw["tokens"])
        options = replace(options, canonical=canonical, tokens=tokens)
    if raw["events"]:
        from snapbid.load.options import EventLoad

        key = raw["api_key"] or _issue_key()
        options = replace(options, events=EventLoad(raw["events"], raw["batch"], key))
    shows = text.progress()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            result = runner.run(Run.made(options, auctions, shows))
    except (OSError, ReportError) as error:
        raise console.Refused(f"snapbid load: {options.target.url}: {error}") from error
    finally:
        shows.close()
    click.echo(text.summary(result))
    return result


def _default_target() -> str:
    """The running embedded instance, else where the settings say."""
    settings = load_settings(os.environ)
    env = console.running(settings)
    if env is not None:
        settings = load_settings(env)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def _access(
    descriptors: set[str], named: dict[str, str], given: tuple[str, ...]
) -> tuple[dict[str, str], dict[str, str]]:
    """Canonical ids by descriptor and report tokens by canonical id.

    Tokens that are not given are issued, as `snapbid token issue` does. Raises OptionError.
    """
    from snapbid.load.options import OptionError
    from snapbid.report import tokens
    from snapbid.warehouse import registry

    if given:
        found = dict(map(_subject, given))
        canonical = {one: named.get(one, one) for one in descriptors}
    else:
        try:
            key, issuer = console.signing(load_settings(os.environ))
            known = console.in_warehouse(registry.fetch_all)
        except console.WrongSettings as error:
            raise OptionError(
                "to compare with the report give --report-token for each canonical SSP, or the "
                f"bidder's settings ({error.message}); or say --no-reconcile"
            ) from error
        strangers = sorted(descriptors - known.keys())
        if strangers:
            raise OptionError(
                f"{', '.join(strangers)} is not registered: snapbid ssp add, or --ssp"
            )
        canonical = {one: named.get(one, known[one]) for one in descriptors}
        found = {one: tokens.issue(one, key, issuer) for one in canonical.values()}
    missing = sorted(set(canonical.values()) - set(found))
    if missing:
        raise OptionError(
            f"no --report-token for {', '.join(missing)}; for a variant say --ssp ID/CANONICAL"
        )
    return canonical, {one: found[one] for one in canonical.values()}


def _subject(token: str) -> tuple[str, str]:
    """The SSP that a token names, with the token; its signature is the target's business."""
    import jwt

    from snapbid.load.options import OptionError

    try:
        return str(jwt.decode(token, options={"verify_signature": False})["sub"]), token
    except (jwt.InvalidTokenError, KeyError) as error:
        raise OptionError("--report-token must be a token of snapbid token issue") from error


def _issue_key() -> str:
    """A key of the product `load-test`, known to every worker when it is given back."""
    import time

    from snapbid.warehouse import products

    async def work(connection: "asyncpg.Connection") -> str:
        return await products.issue(connection, "load-test", ("igaming",), products.MAX_RATE)

    key = console.in_warehouse(work)
    click.echo("issued a key of product load-test")
    time.sleep(2.5)  # within 2 s it is everywhere (contract 1)
    return key


def _check_files(*files: Path | None) -> None:
    """Raises OptionError before a long run rather than after it."""
    from snapbid.load.options import OptionError

    for file in files:
        if file is not None and not file.absolute().parent.is_dir():
            raise OptionError(f"{file} cannot be written: its directory does not exist")


def _write(result: "Result", json_file: Path | None, html_file: Path | None) -> None:
    import msgspec

    try:
        if json_file is not None:
            text = msgspec.json.format(msgspec.json.encode(result), indent=1)
            json_file.write_bytes(text + b"\n")
        if html_file is not None:
            from snapbid.load.page import page

            html_file.write_text(page(result), encoding="utf-8")
    except OSError as error:
        raise console.Refused(f"snapbid load: {error.filename}: {error.strerror}") from error
