"""The bidder of AWS' guidance for a real-time bidder, from a checkout, with a DynamoDB Local.

It reads the ids of the request, of its impressions and of the device; it looks the device's
audiences up in DynamoDB, for every request, and bids what the best campaign of these audiences pays
on the first impression. Budgets are kept in the process and read anew every other second. It knows
no country, device type, size, floor, cap or notice, stores no bid, and answers with made-up markup.

So its audiences here are of a segment, a country and a device type at once, which leaves the same
campaigns as the others find by themselves. Settings are its chart's, but that its event stream and
its log of each request are off, and that a late answer is a 204.
"""

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from struct import pack
from typing import Final

from bench.peers.dynamodb_local import CREDENTIALS, REGION, Item, Store, binary, dynamodb_local
from bench.peers_market import DEVICES, TMAX_MS, Campaign
from bench.processes import BenchError, ServerProcess, pinned
from workload import requests
from workload.serving import LOOPBACK, free_ports

PATH: Final = "/bidrequest"
READY: Final = "/healthz"
MODULE: Final = Path("apps/bidder")
CHART: Final = Path("deployment/infrastructure/charts/bidder/values.yaml")
SETTING: Final = re.compile(r'^  ([A-Z0-9_]+): "(.*)"$', re.MULTILINE)
MICROS: Final = 10_000  # of a cent
ENOUGH: Final = 10**15  # a campaign's budget, in millionths

Audience = tuple[int, str, int]  # segment, country, OpenRTB's number of the device type


def build(checkout: Path, scratch: Path) -> Path:
    """Build the bidder, whose checkout stays as it is; the binary.

    Besides Go it needs a C compiler. Raises BenchError.
    """
    if shutil.which("go") is None:
        raise BenchError("aws-bidder needs go, which is not installed")
    binary = scratch / "aws-bidder"
    command = ["go", "build", "-o", str(binary), "./cmd"]
    if subprocess.run(command, cwd=checkout / MODULE).returncode:
        raise BenchError(f"{checkout / MODULE} cannot be built: {' '.join(command)} failed")
    return binary


@contextmanager
def aws_bidder(
    checkout: Path,
    scratch: Path,
    core: int,
    store_core: int,
    market: Sequence[Campaign],
    made: Sequence[requests.Request],
) -> Iterator[ServerProcess]:
    """The bidder on a core, its store on another; it knows the devices of these requests."""
    binary = build(checkout, scratch)
    port, diagnostics = free_ports(2)
    with ExitStack() as stack:
        with pinned(store_core):
            store = stack.enter_context(dynamodb_local(scratch))
        environ = dict(SETTING.findall((checkout / CHART).read_text())) | CREDENTIALS
        environ |= {
            "AWS_REGION": REGION,
            "LOG_LEVEL": "error",
            "SERVER_ADDRESS": f"{LOOPBACK}:{port}",
            "DIAGNOSTIC_SERVER_ADDRESS": f"{LOOPBACK}:{diagnostics}",
            "BIDREQUEST_TIMEOUT": f"{TMAX_MS}ms",
            "BIDREQUEST_TIMEOUT_STATUS": "204",
            "KINESIS_DISABLE": "true",
            "KINESIS_STREAM_NAME": "",
            "DYNAMODB_ENDPOINT": f"http://{LOOPBACK}:{store.port}",
            "DYNAMODB_DISABLE_SSL": "true",
            "DAX_ENDPOINT": "",
        }
        _fill(store, environ, market, made)
        log = scratch / "aws-bidder.log"
        with pinned(core):
            bidder = ServerProcess(log, environ, port, binary, forks=False, ready=READY)
        stack.callback(bidder.stop)
        bidder.await_ready()
        yield bidder


def _fill(
    store: Store,
    tables: dict[str, str],
    market: Sequence[Campaign],
    made: Sequence[requests.Request],
) -> None:
    """Its four tables, named by its settings."""
    known = list(map(_audiences, made))
    for setting, key, kind, items in (
        ("CAMPAIGN", "campaign_id", "B", list(map(_campaign, market))),
        ("AUDIENCE", "audience_id", "B", _targeting(market, set(chain.from_iterable(known)))),
        ("BUDGET", "i", "N", [_budgets(market)]),
        ("DEVICE", "d", "B", list(map(_device, made, known))),
    ):
        table = tables[f"DYNAMODB_{setting}_TABLE"]
        store.create(table, key, kind)
        store.put(table, items)


def _audiences(request: requests.Request) -> list[Audience]:
    """The audiences of the request's device."""
    country, kind = request["device"]["geo"]["country"], request["device"]["devicetype"]
    segments = request["user"]["data"][0]["segment"]
    return sorted({(int(segment["id"]), country, kind) for segment in segments})


def _targeting(market: Sequence[Campaign], known: set[Audience]) -> list[Item]:
    """The campaigns of each audience that a device is in."""
    kinds = {kind for _, _, kind in known}
    campaigns = defaultdict(list)
    for own in market:
        numbers = {number for device in own.devices for number in DEVICES[device]} or kinds
        for segment in own.segments:
            for country in own.countries:
                for kind in numbers:
                    campaigns[segment, country, kind].append(binary(_campaign_id(own)))
    return [
        {"audience_id": binary(_audience_id(each)), "campaign_ids": {"L": campaigns[each]}}
        for each in known & campaigns.keys()
    ]


def _campaign(own: Campaign) -> Item:
    return {
        "campaign_id": binary(_campaign_id(own)),
        "bid_price": {"N": str(own.cents * MICROS)},
    }


def _budgets(market: Sequence[Campaign]) -> Item:
    """All of them are one item."""
    packed = b"".join(_campaign_id(own) + pack("<q", ENOUGH) for own in market)
    return {"i": {"N": "1"}, "s": {"N": str(len(market))}, "b": binary(packed)}


def _device(request: requests.Request, known: Sequence[Audience]) -> Item:
    """Its ids are in threes, which Base64 needs not pad: the bidder takes padding for an id's bytes
    and would find one more audience, mixed from two.
    """
    device = bytes.fromhex(request["device"]["ifa"])
    ids = [_audience_id(each) for each in known]
    ids += ids[:1] * (-len(ids) % 3)
    return {"d": binary(device), "a": binary(b"".join(ids))}


def _campaign_id(own: Campaign) -> bytes:
    return b"%016d" % own.number


def _audience_id(audience: Audience) -> bytes:
    return "{}/{}/{}".format(*audience).ljust(16).encode()
