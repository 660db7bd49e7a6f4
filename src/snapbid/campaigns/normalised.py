"""The normalised form of a campaign, which the warehouse keeps beside its document.

The import checks a document and stores what the rules made of it, with their version; loading
decodes that form and checks nothing. A document that plain SQL has written, or that was imported
under another version of the rules, has no such form and is checked when it is loaded.
"""

from typing import Final

import msgspec

from snapbid.campaigns.campaign import Campaign
from snapbid.campaigns.document import parse_json

RULES: Final = 12
"""The version of the rules. Add 1 when a document is refused or admitted that was not before, when
its meaning changes, or when forms stored earlier no longer decode to a right `Campaign`. A new
optional field needs no new version: earlier forms decode to its default."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Campaign)


def encode(campaign: Campaign) -> bytes:
    """Encode a campaign for the warehouse, as MessagePack; `RULES` is stored with it."""
    return _encoder.encode(campaign)


def load(content: bytes, *, is_normalised: bool, is_active: bool) -> Campaign:
    """Read a campaign of the warehouse: from its normalised form, or else from its document.

    `is_active` is the status that holds now; an import has stored the status of its time. Raises
    CampaignError with every mistake, or another ValueError where the content cannot be read.
    """
    if not is_normalised:
        return parse_json(content)
    campaign = _decoder.decode(content)
    if (campaign.status == "active") is not is_active:
        status = "active" if is_active else "paused"
        return msgspec.structs.replace(campaign, status=status)
    return campaign
