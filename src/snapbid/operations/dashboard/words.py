"""The meaning and remedy of each outcome of a bid request, for the operator's page."""

from typing import Final

EXPLAIN: Final = "snapbid explain SSP FILE names the first rule that refuses each campaign"
CAPACITY: Final = "more workers, a faster Redis, or a longer tmax; the latency shows where it goes"
SENDER: Final = "the answer names the field: inform the SSP; snapbid golive SSP sums up"

MEANINGS: Final[dict[str, tuple[str, str]]] = {
    "no_campaign": ("no campaign matches the request", EXPLAIN),
    "limited": (
        "campaigns match, and their budgets or caps allow no bid",
        "see the budgets below, or snapbid campaign list --budgets",
    ),
    "currency": (
        "the request takes only currencies without an exchange rate",
        "snapbid rates import FILE adds rates",
    ),
    "floor_currency": (
        "floors are in a currency without an exchange rate",
        "snapbid rates import FILE adds rates",
    ),
    "quantity": (
        "impressions stand for more (qty.multiplier) than is allowed",
        "SNAPBID_MAX_QUANTITY bounds what one request may cost",
    ),
    "private_auction": ("a private auction, and no campaign targets its deals", EXPLAIN),
    "no_media": ("no impression asks for banner, video, native or audio that can be read", SENDER),
    "taken": (
        "another SSP has a bid on an auction and impression with the same ids",
        "ids are not unique, or somebody tries to take over auctions: ask the SSP",
    ),
    "long_id": ("the id is over 512 bytes, which notices could not carry", SENDER),
    "cut_short": (
        "the request ran out of time before an impression was decided",
        "SNAPBID_BID_CPU_MS and tmax limit it",
    ),
    "late": ("the answer would have come after tmax", CAPACITY),
    "overload": ("more requests than the workers complete", CAPACITY),
    "rate": ("more requests a second than the SSP may send", "snapbid ssp set SSP --qps N"),
    "store_down": ("Redis did not acknowledge the bid", "check Redis and its log"),
    "bad_request": ("the request cannot be read", SENDER),
    "too_large": ("the body is over SNAPBID_BID_MAX_BYTES", SENDER),
    "unsupported_media_type": ("the body's media type or encoding is not supported", SENDER),
    "request_timeout": ("the body did not arrive in time", SENDER),
    "forbidden": (
        "the SSP's requests come from another address",
        "snapbid ssp set SSP --allow CIDR; behind a proxy, SNAPBID_TRUSTED_PROXIES",
    ),
    "internal": ("an error of ours", "check the log of serve"),
}
"""By outcome: what it means, and what to do."""

STATES: Final[dict[str, str]] = {
    "open": "Its budget allows bids. Where it does not bid, its targeting, caps or creatives "
    "refuse the requests",
    "paced": "Today's share of its budget is used up for now; even pacing frees more as the day "
    "goes on",
    "spent": "Its budget has less headroom than one bid: a daily budget again tomorrow (UTC), a "
    "total budget after an import that raises it",
}
"""By state of a campaign's budget: what it means, and when that changes."""
