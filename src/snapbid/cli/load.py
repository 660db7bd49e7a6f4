"""`snapbid load`: the load test (contract 9)."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from snapbid.base.reasons import reason
from snapbid.base.settings import load as load_settings
from snapbid.base.settings import reachable, url_of
from snapbid.cli import console
from snapbid.cli.shell import ShellCommand

if TYPE_CHECKING:
    import asyncpg

    from snapbid.loadtest.objectives import Objective
    from snapbid.loadtest.options import Options
    from snapbid.loadtest.plan import Phase
    from snapbid.loadtest.result import LoadResult
    from snapbid.reference.rates import Rates

Out = click.Path(dir_okay=False, writable=True, path_type=Path)

# Validity of report tokens: a run takes four hours at most once all its generators have joined.
TOKEN_S: Final = 24 * 3600
OUTPUTS: Final = ("json_file", "html_file", "junit_file", "metrics_file")
Given = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(
    cls=ShellCommand, examples=["snapbid load compare before.json after.json --html both.html"]
)
@click.argument("a", type=Given)
@click.argument("b", type=Given)
@click.option("--html", "html_file", type=Out, metavar="FILE", help="Write a page with plots.")
def compare(a: Path, b: Path, html_file: Path | None) -> None:
    """Compare two results of `snapbid load --json`, A and B.

    Figures that are more than 5% worse in B are marked.
    """
    from snapbid.loadtest import compare

    try:
        runs = compare.read(a), compare.read(b)
        text = compare.text(*runs)
        if html_file is not None:
            html_file.write_text(compare.page(*runs), encoding="utf-8")
    except compare.ResultError as error:
        raise console.WrongSettings(f"snapbid load compare: {error}") from error
    except OSError as error:
        raise console.Refused(f"snapbid load: {html_file}: {error.strerror}") from error
    click.echo(text)


class LoadCommand(ShellCommand):
    """`snapbid load`, which runs `snapbid load compare` if its first argument is `compare`."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **more: Any,
    ) -> click.Context:
        if args[:1] == [compare.name]:
            return compare.make_context(f"{info_name} compare", args[1:], parent, **more)
        return super().make_context(info_name, args, parent, **more)


@click.command(
    cls=LoadCommand,
    examples=[
        "snapbid load --rate 500 --duration 30s --html load.html",
        "snapbid load --find-capacity --objective p99=50ms",
        "snapbid load --rate 20000 --generators 2 --listen 127.0.0.1:9700",
        "snapbid load --join 127.0.0.1:9700",
        "snapbid load compare before.json after.json",
    ],
)
@click.argument("target", required=False)
@click.option("--ssp", "ssps", multiple=True, metavar="ID[/CANONICAL][=WEIGHT]",
              help="SSP to send as; repeatable. Default: as recorded, else acme.")  # fmt: skip
@click.option("--rate", default=500.0, show_default=True, help="Bid requests per second.")
@click.option("--steps", metavar="RATE,RATE,…", help="Several rates in turn.")
@click.option("--find-capacity", is_flag=True,
              help="Search for the highest rate that meets the objectives.")  # fmt: skip
@click.option("--max-rate", default=20_000.0, show_default=True, help="Upper end of the search.")
@click.option(
    "--duration", default="30s", show_default=True, help="Length of the load, or of each step."
)
@click.option(
    "--warmup", default="5s", show_default=True, help="Length of the warm-up; unmeasured."
)
@click.option(
    "--ramp", default="0s", show_default=True, help="Length of the rise from 0; unmeasured."
)
@click.option("--arrivals", type=click.Choice(["random", "even"]), default="random",
              show_default=True, help="Gaps between requests.")  # fmt: skip
@click.option(
    "--connections", default=64, show_default=True, help="Keep-alive connections for bids."
)
@click.option(
    "--timeout", default="1s", show_default=True, help="Wait for an answer, or a free connection."
)
@click.option("--objective", "objectives", multiple=True, metavar="NAME=BOUND",
              help="p99=50ms, errors=0.1%, bid-rate=20%; repeatable. "
              "Default: p99=100ms. errors=0.1% also holds unless errors is given.")  # fmt: skip
@click.option("--abort-on", "abort_on", multiple=True, metavar="NAME=BOUND",
              help="End the run as failed once this objective is missed; repeatable.")  # fmt: skip
@click.option("--scenario", type=Given, metavar="FILE",
              help="TOML file of phases, instead of --rate, --warmup and --ramp.")  # fmt: skip
@click.option("--replay", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              metavar="FILE", help="Send the requests recorded by `serve --record`.")  # fmt: skip
@click.option("--corpus", type=click.Path(exists=True, file_okay=False, path_type=Path),
              metavar="DIRECTORY", help="Send the bid requests in its *.json files.")  # fmt: skip
@click.option("--target-path", metavar="PATH",
              help="Endpoint of another bidder; implies --no-reconcile.")  # fmt: skip
@click.option("--requests", default=5000, show_default=True, help="Distinct requests to generate.")
@click.option("--win-rate", default=0.1, show_default=True, help="Share of bids that win.")
@click.option("--bill-rate", default=0.95, show_default=True, help="Share of wins that are billed.")
@click.option(
    "--loss-rate",
    default=0.2,
    show_default=True,
    help="Share of the other bids that get a loss notice.",
)
@click.option("--win-delay", default="20ms-200ms", show_default=True, help="Time after the bid.")
@click.option("--bill-delay", default="200ms-2s", show_default=True, help="Time after the win.")
@click.option("--loss-delay", default="20ms-200ms", show_default=True, help="Time after the bid.")
@click.option(
    "--events", default=0.0, metavar="RATE", help="Event batches per second, along with bids."
)
@click.option("--batch", default=100, show_default=True, help="Events in a batch.")
@click.option("--api-key", envvar="SNAPBID_API_KEY", metavar="KEY",
              help="Key for the events. "
              "Default: SNAPBID_API_KEY, else a new key for this run.")  # fmt: skip
@click.option("--report-token", "tokens", multiple=True, envvar="SNAPBID_REPORT_TOKEN",
              metavar="TOKEN", help="One per canonical SSP. "
              "Default: SNAPBID_REPORT_TOKEN (separated by spaces), else new ones.")  # fmt: skip
@click.option("--no-reconcile", is_flag=True, help="Do not compare the counts with the report.")
@click.option("--generators", default=1, show_default=True, metavar="N",
              help="Divide the load among N generators, measured as one.")  # fmt: skip
@click.option("--listen", metavar="HOST:PORT", help="Address at which other generators join.")
@click.option("--join", metavar="HOST:PORT",
              help="Join the run that listens at this address.")  # fmt: skip
@click.option("--seed", default=1, show_default=True, help="Seed of all random choices.")
@click.option("--json", "json_file", type=Out, metavar="FILE", help="Write the result as JSON.")
@click.option(
    "--html", "html_file", type=Out, metavar="FILE", help="Write the result as a page with plots."
)
@click.option("--junit", "junit_file", type=Out, metavar="FILE",
              help="Write the result as JUnit XML.")  # fmt: skip
@click.option("--metrics", "metrics_file", type=Out, metavar="FILE",
              help="Write the result as Prometheus text.")  # fmt: skip
@click.option("--i-own-this-target", "owned", is_flag=True,
              help="Required for a target that is not this machine.")  # fmt: skip
def load(target: str | None, **raw: Any) -> None:
    """Load-test the bidder at TARGET (http://127.0.0.1:8000) and check its report.

    Requests are sent on schedule, however slow the answers, and latency counts from the scheduled
    time. Exit status: 0 if everything passed, 1 if an objective was missed, notices failed, the
    report differs or the target does not answer, 2 for wrong usage.
    """
    from snapbid.loadtest.auctions import ReplayError
    from snapbid.loadtest.options import OptionError, refuse_misuse

    try:
        if raw["join"]:
            _join(raw["join"], raw["owned"])
            return
        options = _options(target, raw)
        _check_files(*(raw[name] for name in OUTPUTS))
        refuse_misuse(options, raw["owned"])
        result = _run(options, raw)
    except (OptionError, ReplayError) as error:
        raise console.WrongSettings(f"snapbid load: {error}") from error
    _write(result, {name: raw[name] for name in OUTPUTS})
    sys.exit(0 if result.verdict.ok else 1)


def _options(target: str | None, raw: dict[str, Any]) -> "Options":
    from snapbid.loadtest import objectives, options, scenario
    from snapbid.loadtest.notice_sender import NoticeHabits

    address = options.target(target or _default_target())
    click.echo(f"target: {address.url}")
    weights, canonical = options.ssps(raw["ssps"])
    for name, low, high in (("rate", 1e-3, options.MAX_RATE), ("max_rate", 1, options.MAX_RATE),
                            ("connections", 1, options.MAX_CONNECTIONS), ("events", 0, 1000),
                            ("batch", 1, 600), ("requests", 1, 200_000), ("win_rate", 0, 1),
                            ("bill_rate", 0, 1), ("loss_rate", 0, 1),
                            ("generators", 1, options.MAX_GENERATORS)):  # fmt: skip
        if not low <= raw[name] <= high:
            flag = name.replace("_", "-")
            raise options.OptionError(
                f"--{flag} must be from {low:g} to {high:g}, found {raw[name]:g}"
            )
    bounds = _objectives("--objective", raw["objectives"] or objectives.DEFAULTS)
    delays = [options.delay(f"--{kind}-delay", raw[f"{kind}_delay"])
              for kind in ("win", "bill", "loss")]  # fmt: skip
    if raw["corpus"] and raw["replay"]:
        raise options.OptionError("--corpus and --replay cannot be combined")
    if (raw["generators"] > 1) != (raw["listen"] is not None):
        raise options.OptionError(
            "--generators 2 or more requires --listen, and --listen requires --generators"
        )
    mix = options.Mix(weights, raw["corpus"] or raw["replay"])
    phases: list[Phase] = []
    mixes = [mix]
    if raw["scenario"] is not None:
        phases, mixes = scenario.planned(scenario.read(raw["scenario"]), mix)
    return options.Options(
        target=address,
        path=options.bid_path(raw["target_path"]),
        canonical=canonical,
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
        abort_on=_objectives("--abort-on", raw["abort_on"]),
        phases=phases,
        mixes=mixes,
        requests=raw["requests"],
        habits=NoticeHabits(raw["win_rate"], raw["bill_rate"], raw["loss_rate"], *delays),
        events=None,
        tokens=None,
        seed=raw["seed"],
        generators=raw["generators"],
        listen=options.listener("--listen", raw["listen"]) if raw["listen"] else ("", 0),
    )


def _objectives(option: str, texts: Sequence[str]) -> "list[Objective]":
    from snapbid.loadtest import objectives
    from snapbid.loadtest.options import OptionError

    try:
        return [objectives.parse(text) for text in texts]
    except ValueError as error:
        raise OptionError(f"{option} {error}") from error


def _run(options: "Options", raw: dict[str, Any]) -> "LoadResult":
    """Run the test on a new event loop and print its summary."""
    import asyncio

    import uvloop
    from msgspec.structs import replace

    from snapbid.loadtest import terminal
    from snapbid.loadtest.joining import JoinError
    from snapbid.loadtest.options import EventLoad
    from snapbid.loadtest.reports import ReportError
    from snapbid.loadtest.run import execute, load_auctions
    from snapbid.reference import rates

    auctions = load_auctions(options, _bid_rates() if options.ours else rates.load())
    descriptors = {auction.ssp for mix in auctions for auction in mix}
    if options.ours and not raw["no_reconcile"]:
        canonical, tokens = _access(descriptors, options.canonical, raw["tokens"])
        options = replace(options, canonical=canonical, tokens=tokens)
    with contextlib.ExitStack() as ending:
        if raw["events"]:
            key = raw["api_key"] or ending.enter_context(_issued_key())
            options = replace(options, events=EventLoad(raw["events"], raw["batch"], key))
        progress = terminal.progress()
        ending.callback(progress.close)
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                result = runner.run(execute(options, auctions, progress))
        except (OSError, JoinError, ReportError) as error:
            why = reason(error, options.target.url) if isinstance(error, OSError) else error
            raise console.Refused(f"snapbid load: {options.target.url}: {why}") from error
    click.echo(terminal.summary(result))
    return result


def _join(address: str, owned: bool) -> None:
    """Join another generator's run, with its options.

    `owned`: whether the user declares that the target is theirs (`--i-own-this-target`).
    """
    import asyncio

    import uvloop

    from snapbid.loadtest import joining, terminal
    from snapbid.loadtest.generator import Generator
    from snapbid.loadtest.options import Options, listener, refuse_misuse
    from snapbid.loadtest.run import load_auctions
    from snapbid.reference import rates

    host, port = listener("--join", address)
    _refuse_others("join", "owned")
    known = _bid_rates()
    progress = terminal.progress()
    progress.say(f"joining the run at {address}")

    def prepared(options: Options) -> Generator:
        progress.say(f"target: {options.target.url}")
        refuse_misuse(options, owned)
        return Generator(options, load_auctions(options, known if options.ours else rates.load()))

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(joining.join(host, port, prepared, progress.phase))
    except (OSError, joining.JoinError) as error:
        why = reason(error, address) if isinstance(error, OSError) else error
        raise console.Refused(f"snapbid load --join {address}: {why}") from error
    finally:
        progress.close()


def _bid_rates() -> "Rates":
    """Return our bidder's rates: the European Central Bank's and, if known, the operator's own."""
    from snapbid.reference import rates
    from snapbid.warehouse import rates as operator_rates

    bank = rates.load()
    try:
        return bank.overridden(console.in_warehouse(operator_rates.fetch_all))
    except console.WrongSettings:  # the bidder is not on this machine
        return bank


def _refuse_others(*names: str) -> None:
    """Raise OptionError if the command line sets any parameter other than `names`."""
    from snapbid.loadtest.options import OptionError

    context = click.get_current_context()
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if parameter.name not in names and source is ParameterSource.COMMANDLINE:
            raise OptionError(
                f"--join uses the options of the run it joins: leave out {parameter.opts[0]}"
            )


def _default_target() -> str:
    """Return the server's URL, from the running embedded instance or else from the settings."""
    settings = load_settings(os.environ)
    env = console.running(settings)
    if env is not None:
        settings = load_settings(env)
    return url_of(reachable(settings.host), settings.port)


def _access(
    descriptors: set[str], stated: dict[str, str], given: tuple[str, ...]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return canonical ids by descriptor, and report tokens by canonical id.

    If no tokens are given, issue them with the bidder's own signing key. Raises OptionError.
    """
    from snapbid.loadtest.options import OptionError
    from snapbid.report import tokens
    from snapbid.warehouse import registry

    if given:
        by_ssp = dict(map(_with_subject, given))
        canonical = {ssp: stated.get(ssp, ssp) for ssp in descriptors}
    else:
        try:
            key, issuer = console.signing()
            known = console.in_warehouse(registry.fetch_all)
        except console.WrongSettings as error:
            raise OptionError(
                "comparing with the report requires --report-token for each canonical SSP, or the "
                f"bidder's settings ({error.message}): give either, or --no-reconcile"
            ) from error
        unknown = sorted(descriptors - known.keys())
        if unknown:
            raise OptionError(
                f"the bidder does not know {', '.join(unknown)}: run snapbid ssp add, or pass --ssp"
            )
        canonical = {ssp: stated.get(ssp, known[ssp]) for ssp in descriptors}
        until = int(time.time()) + TOKEN_S

        async def issue_all(connection: "asyncpg.Connection") -> dict[str, str]:
            return {
                ssp: await tokens.issue_recorded(connection, ssp, key, issuer, until)
                for ssp in sorted(set(canonical.values()))
            }

        by_ssp = console.in_warehouse(issue_all)
    missing = sorted(set(canonical.values()) - set(by_ssp))
    if missing:
        raise OptionError(
            f"--report-token is missing for {', '.join(missing)}: pass one, or --ssp ID/CANONICAL "
            "for a descriptor with another canonical id"
        )
    return canonical, {ssp: by_ssp[ssp] for ssp in canonical.values()}


def _with_subject(token: str) -> tuple[str, str]:
    """Return a token's SSP and the token; the target verifies the signature later."""
    import jwt

    from snapbid.loadtest.options import OptionError

    try:
        return str(jwt.decode(token, options={"verify_signature": False})["sub"]), token
    except (jwt.InvalidTokenError, KeyError) as error:
        raise OptionError("--report-token must be a token from snapbid token issue") from error


@contextlib.contextmanager
def _issued_key() -> Iterator[str]:
    """Issue a key for the product `load-test`, and revoke it when the context ends.

    Waits until every worker knows the key.
    """
    from snapbid.warehouse import products

    key = console.in_warehouse(products.issue, "load-test", ("igaming",), products.MAX_RATE)
    try:
        click.echo("issued a key for product load-test")
        time.sleep(2.5)  # a new key reaches every worker within 2 s (contract 1)
        yield key
    finally:
        try:
            console.in_warehouse(products.revoke, key)
        except (console.Refused, products.ProductError) as error:
            click.echo(f"warning: the key of load-test was not revoked: {error}", err=True)


def _check_files(*files: Path | None) -> None:
    """Check before a run that its files can be written. Raises OptionError if not."""
    from tempfile import TemporaryFile

    from snapbid.loadtest.options import OptionError

    for file in files:
        if file is None or (file.exists() and not file.is_file()):
            continue
        folder = file.resolve().parent
        if not folder.is_dir():
            raise OptionError(f"{file} cannot be written: its directory does not exist")
        try:
            TemporaryFile(dir=folder).close()
        except OSError as error:
            raise OptionError(
                f"{file} cannot be written: its directory refuses new files ({error.strerror})"
            ) from error


def _write(result: "LoadResult", files: dict[str, Path | None]) -> None:
    """Write the result to files; `files` has a path or None for each name in `OUTPUTS`.

    Each file replaces an earlier one only once it is complete, since a collector may read metrics
    at any moment. Raises Refused, naming every file that could not be written.
    """
    import msgspec

    from snapbid.base.outputs import replaced
    from snapbid.loadtest import exports
    from snapbid.loadtest.page import page

    forms: dict[str, Callable[[], bytes]] = {
        "json_file": lambda: msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n",
        "html_file": lambda: page(result).encode(),
        "junit_file": lambda: exports.junit(result),
        "metrics_file": lambda: exports.prometheus(result),
    }
    failures = []
    for name, file in files.items():
        if file is not None:
            try:
                with replaced(file) as beside:
                    beside.write_bytes(forms[name]())
            except OSError as error:
                failures.append(f"snapbid load: {file}: {error.strerror}")
    if failures:
        raise console.Refused("\n".join(failures))
