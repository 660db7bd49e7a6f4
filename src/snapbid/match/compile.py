"""A campaign as the index builder takes it, and what is stored beside it for the answer."""

import msgspec

from snapbid.match._builder import MEDIA
from snapbid.match._builder import Builder as Builder
from snapbid.match.campaign import Budget, Campaign, Creative, FrequencyCap

__all__ = ["Advertisement", "Builder", "Document", "describe", "put", "read_document"]


class Advertisement(msgspec.Struct, frozen=True, array_like=True):
    """What the answer says of a creative; `mtype` as in OpenRTB 2.6, 4.2.3."""

    crid: str
    mtype: int
    adm: str
    w: int | None
    h: int | None
    attr: tuple[int, ...]
    iurl: str | None


class Document(msgspec.Struct, frozen=True, array_like=True):
    """What the answer says of a campaign, the number by which the ledger counts for it, and its
    limits. `since_ms`: when it came to be, or starts if that is later (UTC epoch ms).
    """

    cid: str
    number: int
    adomain: str
    seat: str | None
    cat: tuple[str, ...]
    creatives: tuple[Advertisement, ...]
    budget: Budget = Budget()
    caps: tuple[FrequencyCap, ...] = ()
    since_ms: int = 0


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Document)


def describe(campaign: Campaign, number: int, created_at_ms: int = 0) -> Document:
    """What is stored beside the campaign."""
    return Document(
        campaign.id,
        number,
        campaign.advertiser,
        campaign.seat,
        campaign.categories,
        tuple(map(_advertisement, campaign.creatives)),
        campaign.budget,
        campaign.frequency_caps,
        max(created_at_ms, campaign.starts_at_ms or 0),
    )


def put(builder: Builder, campaign: Campaign, number: int, created_at_ms: int = 0) -> None:
    """Adds or replaces the campaign in the builder."""
    builder.put(campaign, _encoder.encode(describe(campaign, number, created_at_ms)))


def read_document(payload: bytes) -> Document:
    """What `put` stored with the campaign."""
    return _decoder.decode(payload)


def _advertisement(creative: Creative) -> Advertisement:
    return Advertisement(
        creative.id,
        MEDIA[creative.media],
        creative.adm,
        creative.w,
        creative.h,
        creative.attributes,
        creative.iurl,
    )
