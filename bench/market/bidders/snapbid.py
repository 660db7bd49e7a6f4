"""Snapbid: `snapbid serve` with one worker, on a Redis and a PostgreSQL of its own."""

import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from bench import served
from bench.constant import PATH
from bench.market.bidders import Place, Started
from bench.market.corpus import Campaign, Corpus
from bench.processes import ServerProcess
from bench.redis_time import processor_s_of
from workload.serving import LOOPBACK, confirm_budgets

NAME: Final = "snapbid"
ABOUT: Final = (
    "`snapbid serve` with one worker, Redis and PostgreSQL. It remembers each bid in Redis before"
    " it answers, with its markup, and settles each notice there before it answers."
)
LACKS: Final[Sequence[str]] = ()
REPOSITORY: Final = ""
SKIPPED: Final[dict[str, str]] = {}
MARKUP: Final = (
    '<a href="https://brand.example/{number}?c={{{{cachebuster}}}}">'
    '<img src="https://cdn.example/{number}.jpg" width="{w}" height="{h}"></a>'
)
WINS: Final = 'snapbid_notices_total{kind="win",outcome="counted"}'


def campaign_of(cid: str) -> int:
    return int(cid.removeprefix("campaign-"))


def start(stack: ExitStack, place: Place, corpus: Corpus, campaigns: Sequence[Campaign]) -> Started:
    documents = list(map(document, campaigns))
    product = served.product(place.scratch, place.core, place.store_core, documents)
    server = stack.enter_context(product)
    url = server.environ["SNAPBID_REDIS_URL"]
    if any(each.budget_micros for each in campaigns):
        confirm_budgets(url)
    return Started(server, PATH, lambda: wins(server), lambda: processor_s_of(url))


def document(campaign: Campaign) -> dict[str, Any]:
    """Return a campaign in the form that Snapbid imports."""
    targeting: dict[str, Any] = {
        "segment": {"include": [str(segment) for segment in campaign.segments]},
        "country": {"include": list(campaign.countries)},
    }
    if campaign.devices:
        targeting["device_type"] = {"include": list(campaign.device_types)}
    limits: dict[str, Any] = {}
    if campaign.budget_micros is not None:
        limits["budget"] = {"daily": campaign.budget_micros / 1e6}
    if campaign.cap is not None:
        limits["frequency_caps"] = [{"impressions": campaign.cap, "seconds": 3_600}]
    return {
        "id": f"campaign-{campaign.id}",
        "advertiser": campaign.advertiser,
        "cpm": campaign.cpm_cents / 100,
        "categories": [campaign.category],
        "targeting": targeting,
        "creatives": [
            {
                "id": f"{campaign.id}-{w}x{h}",
                "media": "banner",
                "w": w,
                "h": h,
                "adm": MARKUP.format(number=campaign.id, w=w, h=h),
            }
            for w, h in campaign.sizes
        ],
        **limits,
    }


def wins(server: ServerProcess) -> int:
    """Return how many wins Snapbid has counted so far."""
    port = server.environ["SNAPBID_OPS_PORT"]
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(WINS))
