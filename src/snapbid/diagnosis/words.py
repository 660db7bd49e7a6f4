"""What the outcomes mean, and what an SSP can do about them."""

from typing import Final

from snapbid.exchange.bid import Reason

NO_BID: Final = {
    Reason.NO_CAMPAIGN: "no campaign matches the request, or its floor is above every bid",
    Reason.NO_MEDIA: "no impression has banner, video, audio or native: send one of them",
    Reason.CURRENCY: "cur has neither USD nor a currency with an exchange rate: add USD",
    Reason.FLOOR_CURRENCY: "bidfloorcur has no exchange rate: state the floor in USD",
    Reason.PRIVATE_AUCTION: "private_auction is 1, and no campaign has one of the deals",
    Reason.LIMITED: "the budgets or frequency caps of the campaigns that match are used up",
    Reason.LONG_ID: "an id is over 512 bytes: the notification URLs could not carry it",
    Reason.CUT_SHORT: "the request took too much time: send fewer impressions, shorter lists",
    Reason.LATE: "there was not enough time before tmax: allow more, or send from nearer by",
    Reason.OVERLOAD: "the bidder was at its capacity",
    Reason.RATE: "more requests in a second than agreed",
    Reason.STORE_DOWN: "the bidder could not store the bid: nothing to do on your side",
}
ERRORS: Final = {
    "bad_request": "the body is not what OpenRTB asks for: the broken fields are below",
    "unsupported_media_type": "send Content-Type: application/json, plain or as gzip",
    "too_large": "the body is over the limit",
    "forbidden": "the request came from an address that was not agreed",
    "request_timeout": "the body did not come in time",
    "internal": "the bidder's own fault",
}
