"""The product beside other bidders (`bench/peers_run.py`)."""

from collections.abc import Iterator
from typing import Any, Final

from bench.sections.parts import Figure, about, spread_figure, table
from bench.sections.socket import contenders, ratio

TEXT: Final = """
## Other bidders

The server on one core, 64 keep-alive connections, client and stores on the other core; {rounds}
rounds in which all take turns of {seconds_a_turn:g} s, medians. All have the same {campaigns:,}
campaigns, banners by segment, country and device type (`peers_market.py`), and get the same
requests, on which all of them bid on every impression. Run it with a checkout of the peer:

    python -m bench peers --rust-rtb-bidder CHECKOUT --keep

- `snapbid` remembers each bid in Redis before it answers, with its markup; with "budget and cap"
  every campaign has both, so that Redis decides before the answer.
- `rust-rtb-bidder` ({commit}, its release profile) keeps budgets and frequency caps in its process,
  stores no bid, and answers without markup. It looks users' segments up in Redis and keeps them for
  a minute; its event stream and telemetry are off.
"""


def render(result: dict[str, Any]) -> str:
    method = result["method"]
    parts = [TEXT.format(**method, commit=method["commits"]["rust-rtb-bidder"]), about(result)]
    for kind, figures in result["figures"].items():
        size = method["request_bytes_median"][kind]
        parts += [
            f"Requests with {kind}, {size:,.0f} bytes with the head:\n\n",
            contenders(figures),
        ]
        parts += ["\nTo rust-rtb-bidder, of each round:\n\n", _ratios(result["ratios"][kind]), "\n"]
    return "".join(parts).rstrip("\n") + "\n"


def _ratios(own: dict[str, Any]) -> str:
    rows = [(name, ratio(each["requests"]), ratio(each["processor"])) for name, each in own.items()]
    return table(("", "requests/s", "by processor time"), rows)


def figures(result: dict[str, Any]) -> Iterator[Figure]:
    for kind, bidders in result["figures"].items():
        for name, own in bidders.items():
            yield spread_figure(f"{name}, {kind}, processor µs", own["processor_us"])
    for kind, bidders in result["ratios"].items():
        for name, own in bidders.items():
            title = f"ratio of {name}, {kind}"
            yield spread_figure(title, own["requests"], less_is_better=False)
