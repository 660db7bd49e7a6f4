"""The normalised form of a campaign, which the warehouse stores along with its document.

The import checks a document and stores its normalised form, with the version of the rules. Loading
decodes that form without checking it. A document written with plain SQL, or imported under another
version of the rules, has no usable normalised form and is checked when it is loaded.
"""

from typing import Final

import msgspec

from snapbid.campaigns.campaign import Campaign
from snapbid.campaigns.document import parse_json

RULES: Final = 19
"""The version of the rules. Add 1 when a document is newly refused or admitted, when its meaning
changes, or when forms stored earlier no longer decode to a correct `Campaign`. A new optional field
needs no new version: earlier forms decode to its default."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Campaign)


def encode(campaign: Campaign) -> bytes:
    """Encode a campaign as MessagePack, to be stored with the version of the rules (`RULES`)."""
    return _encoder.encode(campaign)


def load(content: bytes, *, is_normalised: bool, is_active: bool) -> Campaign:
    """Load a stored campaign: its normalised form (`is_normalised`) or its document.

    `is_active`: whether the campaign is active now, which overrides its status at import. Raises
    CampaignError, which lists all mistakes, or another ValueError if the content cannot be read.
    """
    if not is_normalised:
        return parse_json(content)
    campaign = _decoder.decode(content)
    if (campaign.status == "active") is not is_active:
        status = "active" if is_active else "paused"
        return msgspec.structs.replace(campaign, status=status)
    return campaign
