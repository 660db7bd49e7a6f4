"""`snapbid size`: what a given traffic needs, and what gives way first."""

from typing import TYPE_CHECKING

import click

from snapbid.cli import console
from snapbid.cli.shell import ShellCommand

if TYPE_CHECKING:
    from snapbid.load.capacity import Capacity

SHARE = click.FloatRange(0, 1)
COUNT = click.IntRange(1, 10_000_000)


@click.command(
    cls=ShellCommand,
    examples=["snapbid size --qps 100000 --bid-rate 0.3", "snapbid size --qps 5000 --json"],
)
@click.option("--qps", type=click.FloatRange(1, 1e8), required=True, help="Bid requests a second.")
@click.option("--bid-rate", type=SHARE, default=0.3, show_default=True,
              help="Share of requests that get a bid.")  # fmt: skip
@click.option("--win-rate", type=SHARE, default=0.08, show_default=True,
              help="Share of bids that are won and billed.")  # fmt: skip
@click.option("--loss-rate", type=SHARE, default=0.0, show_default=True,
              help="Share of the other bids that get a loss notice.")  # fmt: skip
@click.option("--limited", type=SHARE, default=1.0, show_default=True,
              help="Share of bids with a budget or a frequency cap.")  # fmt: skip
@click.option("--ssps", type=COUNT, default=10, show_default=True, help="SSPs that send.")
@click.option("--campaigns", type=COUNT, default=1_000, show_default=True,
              help="Campaigns that bid.")  # fmt: skip
@click.option("--bid-ttl", type=click.IntRange(1, 2_592_000), default=7_200, show_default=True,
              help="SNAPBID_BID_TTL, seconds.")  # fmt: skip
@click.option("--replicas", type=click.IntRange(0, 5), default=1, show_default=True,
              help="Of each Redis primary.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def size(
    qps: float,
    bid_rate: float,
    win_rate: float,
    loss_rate: float,
    limited: float,
    ssps: int,
    campaigns: int,
    bid_ttl: int,
    replicas: int,
    as_json: bool,
) -> None:
    """Say what a traffic needs: cores, primaries, memory, network, rows; and what gives way first.

    Worked out from measured costs of single steps, every part at half its load. What yours can do
    `snapbid load --find-capacity` measures.
    """
    import msgspec

    from snapbid.load.capacity import PlannedTraffic, capacity_of

    traffic = PlannedTraffic(
        qps, bid_rate, win_rate, loss_rate, limited, ssps, campaigns, bid_ttl, replicas
    )
    capacity = capacity_of(traffic)
    if as_json:
        document = {
            **capacity._asdict(),
            "parts": [
                {**part._asdict(), "one_carries": _finite(part.one_carries)}
                for part in capacity.parts
            ],
        }
        click.echo(msgspec.json.format(msgspec.json.encode(document)).decode())
        return
    _print(capacity, traffic.bids, traffic.notices)


def _print(capacity: "Capacity", bids: float, notices: float) -> None:
    click.echo(f"{bids:,.0f} bids and {notices:,.0f} notices a second, every part half loaded:")
    click.echo()
    rows = [
        (
            part.name,
            f"{part.busy:.2f} {part.unit} busy",
            "1" if part.needed is None else f"{part.needed:,}",
            f"{part.one_carries:,.0f}" if _finite(part.one_carries) else "",
        )
        for part in capacity.parts
    ]
    console.print_table(("part", "use", "have", "one carries (requests/s)"), rows)
    click.echo()
    click.echo(
        f"network: {capacity.bits_in / 1e9:.2f} Gbit/s in, {capacity.bits_out / 1e9:.2f} out, "
        f"{capacity.ledger_bits / 1e9:.2f} to and between Redis nodes"
    )
    click.echo(f"Redis' memory, replicas included: {capacity.memory_bytes / 1e9:,.1f} GB")
    click.echo(f"rows a day in the warehouse: about {capacity.rows:,}")
    click.echo(f"gives way first, where there is one of each: {capacity.parts[0].name}")


def _finite(value: float) -> float | None:
    return None if value == float("inf") else value
