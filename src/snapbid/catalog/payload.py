"""A campaign's payload in the index: the data that responses to bid requests need."""

import msgspec

from snapbid.campaigns.campaign import Budget, Campaign, Creative, Declaration, FrequencyCap
from snapbid.campaigns.domains import ANY, line_of
from snapbid.campaigns.native import NativeAd
from snapbid.campaigns.vocabulary import MEDIA_TYPES
from snapbid.catalog._builder import MEDIA as MEDIA
from snapbid.catalog._builder import Builder as Builder
from snapbid.reference.taxonomies import categories_of

__all__ = [
    "MEDIA",
    "Builder",
    "CampaignPayload",
    "CreativePayload",
    "build_payload",
    "decode_payload",
    "put",
]


class CreativePayload(msgspec.Struct, frozen=True, array_like=True):
    """The fields of a creative that a response needs; `mtype`: see OpenRTB 2.6, 4.2.3."""

    crid: str
    mtype: int
    adm: str
    w: int | None
    h: int | None
    attr: tuple[int, ...]
    iurl: str | None
    language: str | None = None
    apis: tuple[int, ...] = ()
    native: NativeAd | None = None
    duration: int | None = None
    protocol: int | None = None


class CampaignPayload(msgspec.Struct, frozen=True, array_like=True):
    """The fields of a campaign that a response needs, and the campaign's limits.

    `number` identifies the campaign in the ledger. `since_ms`: when it was created or when it
    starts, whichever is later (UTC epoch ms).
    """

    cid: str
    number: int
    adomain: str
    seat: str | None
    cat: tuple[str, ...]
    creatives: tuple[CreativePayload, ...]
    budget: Budget = Budget()
    caps: tuple[FrequencyCap, ...] = ()
    since_ms: int = 0
    dsa: Declaration | None = None
    cattax: int = 1


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(CampaignPayload)


def build_payload(campaign: Campaign, number: int, created_at_ms: int) -> CampaignPayload:
    return CampaignPayload(
        campaign.id,
        number,
        campaign.advertiser,
        campaign.seat,
        campaign.categories,
        tuple(map(_creative_payload, campaign.creatives)),
        campaign.budget,
        campaign.frequency_caps,
        max(created_at_ms, campaign.starts_at_ms or 0),
        campaign.dsa,
        campaign.cattax,
    )


def put(builder: Builder, campaign: Campaign, number: int, created_at_ms: int = 0) -> None:
    """Add or replace a campaign in the builder. Raises ValueError if an index cannot hold it."""
    payload = _encoder.encode(build_payload(campaign, number, created_at_ms))
    categories = categories_of(campaign.cattax, campaign.categories)
    builder.put(campaign, payload, categories, (*line_of(campaign.advertiser), ANY), MEDIA_TYPES)


def decode_payload(payload: bytes) -> CampaignPayload:
    """Decode the payload that `put` stored with a campaign."""
    return _decoder.decode(payload)


def _creative_payload(creative: Creative) -> CreativePayload:
    return CreativePayload(
        creative.id,
        MEDIA[creative.media],
        creative.adm,
        creative.w,
        creative.h,
        creative.attributes,
        creative.iurl,
        creative.language,
        creative.apis,
        creative.native,
        creative.duration,
        creative.protocols[0] if len(creative.protocols) == 1 else None,
    )
