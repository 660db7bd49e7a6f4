"""The meaning of each outcome and rule, and what an SSP can do about it."""

from typing import Final

from snapbid.bidding.bid import Reason
from snapbid.bidding.refusals import BUDGET, DEAL_FLOOR, NO_CAMPAIGNS, SIZE

NO_BID: Final = {
    Reason.NO_CAMPAIGN: "no campaign matches the request: see the rules that refused last",
    Reason.NO_MEDIA: "no impression has banner, video, audio or native: send one of them",
    Reason.CURRENCY: "cur has neither USD nor a currency with an exchange rate: add USD",
    Reason.FLOOR_CURRENCY: "bidfloorcur has no exchange rate: state the floor in USD",
    Reason.QUANTITY: "qty.multiplier is more than agreed: ask the operator",
    Reason.PRIVATE_AUCTION: "private_auction is 1, and no campaign has one of the deals",
    Reason.LIMITED: "the budgets or frequency caps of the campaigns that match are used up",
    Reason.TAKEN: "another SSP has bid on an auction and impression of these ids: make ids unique",
    Reason.LONG_ID: "an id is over 512 bytes: the notification URLs could not carry it",
    Reason.CUT_SHORT: "the request took too much time: send fewer impressions, shorter lists",
    Reason.LATE: "there was not enough time before tmax: allow more, or send from a nearer region",
    Reason.OVERLOAD: "the bidder was at its capacity",
    Reason.RATE: "more requests in a second than agreed",
    Reason.STORE_DOWN: "the bidder could not store the bid: nothing to do on your side",
}
RULES: Final = {
    NO_CAMPAIGNS: "no campaign is active",
    BUDGET: "the budgets of the campaigns that match are used up for now",
    "flight": "the campaigns that match have not started yet, or are over",
    "no recognised user": "campaigns with frequency caps need a user: user.id, device.ifa, an eid",
    "deal terms": "the deals' seats, domains or prices by duration exclude their campaigns",
    DEAL_FLOOR: "the deals' floors are above the bids",
    "private auction": "private_auction is 1, and no campaign has one of the deals",
    "floor": "the floor is above the bids of all campaigns that match",
    "seat": "wseat or bseat excludes the campaigns that match",
    "blocked app": "bapp blocks the campaigns that match",
    "blocked advertiser": "badv blocks the campaigns that match",
    "blocked category": "bcat or acat excludes the campaigns that match",
    "pod": "an advertiser has another impression of the pod already",
    "dsa": "dsarequired asks for what no campaign declares",
    "geo_radius": "lat and lon are outside the campaigns' areas, or missing",
    "creative": "mimes, battr, api, duration or the like exclude the creatives",
    "creative suspended": "the creatives were rejected before, and are tried again later",
    SIZE: "no campaign has a creative of these banner sizes",
    "format": "no campaign has a creative for this media type",
}
"""The last rules that refused campaigns; see `rule_meaning` for the rest."""
ERRORS: Final = {
    "bad_request": "the body does not conform to OpenRTB: the broken fields are below",
    "unsupported_media_type": "send Content-Type: application/json, plain or as gzip",
    "too_large": "the body is over the limit",
    "forbidden": "the request came from an address that was not agreed",
    "request_timeout": "the body did not arrive in time",
    "internal": "the bidder's own fault",
}


def rule_meaning(rule: str) -> str:
    """Return the meaning of a rule of `bidding.refusals`; unlisted ones are of targeting."""
    return RULES.get(rule) or f"no campaign is for this {rule.replace('_', ' ')}, or it is missing"
