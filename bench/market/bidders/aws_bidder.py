"""The bidder of AWS' guidance for a real-time bidder, from a checkout, with a DynamoDB Local.

An audience is made for each combination of segment, country and device type, so that the bidder
finds the same campaigns as the others. Each bid takes the price of a thousand impressions from a
budget, so budgets are a thousand times as large here. The settings are those of its chart, except
that its event stream and its log of requests are off, and that a late answer is a 204.
"""

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from struct import pack
from typing import Final

from bench.market.bidders import NOTICES, Place, Started
from bench.market.corpus import TMAX_MS, Campaign, Corpus
from bench.market.dynamodb_local import (
    CREDENTIALS,
    REGION,
    Item,
    Store,
    binary,
    dynamodb_local,
)
from bench.processes import BenchError, ServerProcess, pinned, processor_s
from workload import requests
from workload.serving import LOOPBACK, free_ports

NAME: Final = "aws-bidder"
ABOUT: Final = (
    "The bidder of AWS' guidance for a real-time bidder (Go). For every request it looks the"
    " device's audiences up in DynamoDB, here DynamoDB Local on the client's core, which answers"
    " more slowly than the bidder asks: compare processor time. An audience is a segment in a"
    " country on a device type, which does that targeting ahead for it. Its event stream and its"
    " log of requests are off."
)
LACKS: Final = (
    "It reads the request's id, the impressions' ids and `device.ifa` alone, and bids on the first"
    " impression alone.",
    "It knows no countries, device types, sizes, floors, blocks, frequency caps and privacy"
    " signals.",
    "It reads budgets anew from DynamoDB every other second, and nothing of it writes what is"
    " spent there.",
    "It stores no bid, takes no notices, and answers with a made-up link for markup.",
)
REPOSITORY: Final = (
    "https://github.com/aws-solutions-library-samples/"
    "guidance-for-building-a-real-time-bidder-for-advertising-on-aws"
)
SKIPPED: Final = {NOTICES: "it takes no notices"}
PATH: Final = "/bidrequest"
READY: Final = "/healthz"
MODULE: Final = Path("apps/bidder")
CHART: Final = Path("deployment/infrastructure/charts/bidder/values.yaml")
SETTING: Final = re.compile(r'^  ([A-Z0-9_]+): "(.*)"$', re.MULTILINE)
MICROS: Final = 10_000  # of a cent
ENOUGH: Final = 10**15  # micro-USD; a campaign's budget

Audience = tuple[int, str, int]  # segment, country, OpenRTB's number of the device type


def build(checkout: Path, scratch: Path) -> Path:
    """Build the bidder outside its checkout, which is not changed; return the binary.

    Besides Go it needs a C compiler. Raises BenchError.
    """
    if shutil.which("go") is None:
        raise BenchError("aws-bidder needs go, which is not installed")
    binary = scratch / "aws-bidder"
    command = ["go", "build", "-o", str(binary), "./cmd"]
    if subprocess.run(command, cwd=checkout / MODULE).returncode:
        raise BenchError(f"{checkout / MODULE} cannot be built: {' '.join(command)} failed")
    return binary


def campaign_of(cid: str) -> int:
    return int(bytes.fromhex(cid))


def start(stack: ExitStack, place: Place, corpus: Corpus, campaigns: Sequence[Campaign]) -> Started:
    assert place.checkout is not None
    binary = build(place.checkout, place.scratch)
    port, diagnostics = free_ports(2)
    with pinned(place.store_core):
        store = stack.enter_context(dynamodb_local(place.scratch))
    environ = dict(SETTING.findall((place.checkout / CHART).read_text())) | CREDENTIALS
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
    _fill(store, environ, campaigns, corpus.all_requests())
    log = place.scratch / "aws-bidder.log"
    with pinned(place.core):
        bidder = ServerProcess(log, environ, port, binary, forks=False, ready=READY)
    stack.callback(bidder.stop)
    bidder.await_ready()
    return Started(bidder, PATH, store_s=lambda: processor_s(store.pid))


def _fill(
    store: Store,
    tables: dict[str, str],
    campaigns: Sequence[Campaign],
    made: Sequence[requests.Request],
) -> None:
    """Create and fill the bidder's four tables, named by its settings."""
    known = list(map(_audiences, made))
    for setting, key, kind, items in (
        ("CAMPAIGN", "campaign_id", "B", list(map(_campaign, campaigns))),
        ("AUDIENCE", "audience_id", "B", _targeting(campaigns, set(chain.from_iterable(known)))),
        ("BUDGET", "i", "N", [_budgets(campaigns)]),
        ("DEVICE", "d", "B", list(map(_device, made, known))),
    ):
        table = tables[f"DYNAMODB_{setting}_TABLE"]
        store.create(table, key, kind)
        store.put(table, items)


def _audiences(request: requests.Request) -> list[Audience]:
    """Return the audiences to which a request's device belongs."""
    country, kind = request["device"]["geo"]["country"], request["device"]["devicetype"]
    segments = request["user"]["data"][0]["segment"]
    return sorted({(int(segment["id"]), country, kind) for segment in segments})


def _targeting(campaigns: Sequence[Campaign], known: set[Audience]) -> list[Item]:
    """Return the campaigns of each audience that has a device."""
    kinds = {kind for _, _, kind in known}
    taking = defaultdict(list)
    for own in campaigns:
        numbers = set(own.device_types) or kinds
        for segment in own.segments:
            for country in own.countries:
                for kind in numbers:
                    taking[segment, country, kind].append(binary(_campaign_id(own)))
    return [
        {"audience_id": binary(_audience_id(each)), "campaign_ids": {"L": taking[each]}}
        for each in known & taking.keys()
    ]


def _campaign(own: Campaign) -> Item:
    return {
        "campaign_id": binary(_campaign_id(own)),
        "bid_price": {"N": str(own.cpm_cents * MICROS)},
    }


def _budgets(campaigns: Sequence[Campaign]) -> Item:
    """Return the budgets of all campaigns as a single item."""
    packed = b"".join(_campaign_id(own) + pack("<q", _budget(own)) for own in campaigns)
    return {"i": {"N": "1"}, "s": {"N": str(len(campaigns))}, "b": binary(packed)}


def _budget(own: Campaign) -> int:
    return ENOUGH if own.budget_micros is None else min(own.budget_micros * 1_000, ENOUGH)


def _device(request: requests.Request, known: Sequence[Audience]) -> Item:
    """Return a device with its audiences.

    An id is repeated until their number is a multiple of three, which needs no Base64 padding: the
    bidder would decode padding as part of an id, and find another audience.
    """
    device = bytes.fromhex(request["device"]["ifa"])
    ids = [_audience_id(each) for each in known]
    ids += ids[:1] * (-len(ids) % 3)
    return {"d": binary(device), "a": binary(b"".join(ids))}


def _campaign_id(own: Campaign) -> bytes:
    return b"%016d" % own.id


def _audience_id(audience: Audience) -> bytes:
    return "{}/{}/{}".format(*audience).ljust(16).encode()
