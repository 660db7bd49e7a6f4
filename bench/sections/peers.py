"""The product beside other bidders (`bench/peers_run.py`)."""

from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import Figure, about, spread_figure, table
from bench.sections.socket import contenders, ratio, slow

TEXT: Final = """
## Other bidders

The server on one core, 64 keep-alive connections, client and stores on the other core; {rounds}
rounds in which all take turns of {seconds_a_turn:g} s, medians. All have the same {campaigns:,}
campaigns, banners by segment, country and device type (`peers_market.py`), and get the same
requests, on which all of them bid on every impression. "Late" is the share of bids that were
answered 204. Run it with checkouts of the peers, or of one:

    python -m bench peers --rust-rtb-bidder CHECKOUT --aws-bidder CHECKOUT --keep

- `snapbid` remembers each bid in Redis before it answers, with its markup; with "budget and cap"
  every campaign has both, so that Redis decides before the answer.
"""

PEERS: Final = {
    "rust-rtb-bidder": """\
- `rust-rtb-bidder` ({}, its release profile) keeps budgets and frequency caps in its process,
  stores no bid, and answers without markup. Its event stream and telemetry are off. It looks users'
  segments up in Redis and keeps them, here for an hour: with its default, a minute, its circuit
  breaker opened each time that a saturated process asked for them anew, and it bid without segments
  and caps until long after, at half to two thirds of the processor time.
""",
    "aws-bidder": """\
- `aws-bidder` ({}, Go) is the bidder of AWS' guidance for a real-time bidder. It reads three
  things of a request: its id, the impressions' ids and `device.ifa`. For every request it looks the
  device's audiences up in DynamoDB (here DynamoDB Local, on the client's core), and bids what the
  best campaign of these audiences pays, on the first impression alone: so it takes no part where
  there are two. It keeps budgets in its process, and reads them anew every two seconds. It has no
  countries, device types, sizes, floors, frequency caps, deals, privacy signals or win notices,
  stores no bid, and answers with a made-up link for markup. Here an audience is a segment in a
  country on a device type, which does that targeting ahead for it; its prices are compared with
  `snapbid`'s on every request and are equal. Settings are those of its chart, but that its event
  stream and its log of requests are off. DynamoDB Local answers more slowly than the bidder asks,
  so compare processor time, not requests/s.
""",
}
NOT_RUN: Final = "- `{}` was not run here: no checkout was given.\n"


def render(result: dict[str, Any]) -> str:
    method, ran = result["method"], result["method"]["commits"]
    parts = [
        TEXT.format(**method),
        *(PEERS[name].format(ran[name]) if name in ran else NOT_RUN.format(name) for name in PEERS),
        about(result),
    ]
    for kind, figures in result["figures"].items():
        size = method["request_bytes_median"][kind]
        parts += [
            f"Requests with {kind}, {size:,.0f} bytes with the head:\n\n",
            contenders(figures),
            slow(figures),
            "\n",
        ]
    parts += ["Ratios to each peer, of each round:\n\n", ratios_table(result["ratios"])]
    return "".join(parts)


def ratios_table(ratios: dict[str, Any]) -> str:
    rows = [
        (f"{name}, to {peer}'s, {kind}", ratio(own["requests"]), ratio(own["processor"]))
        for kind, name, peer, own in _each(ratios)
    ]
    return table(("", "requests/s", "by processor time"), rows)


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for kind, bidders in result["figures"].items():
        for name, own in bidders.items():
            yield spread_figure(f"{name}, {kind}, processor µs", own["processor_us"])
    for kind, name, peer, own in _each(result["ratios"]):
        title = f"ratio of {name} to {peer}, {kind}"
        yield spread_figure(title, own["processor"], less_is_better=False)


def _each(ratios: dict[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Kind of requests, our contender, the peer, the ratios."""
    for kind, peers in ratios.items():
        for peer, bidders in peers.items():
            for name, own in bidders.items():
                yield kind, name, peer, own
