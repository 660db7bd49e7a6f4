"""An index of a single campaign, so that explanations run the same code as decisions."""

from snapbid.campaigns.campaign import Campaign
from snapbid.catalog._builder import DIMENSIONS, Builder
from snapbid.catalog._index import FORMAT_DIMENSION, Index
from snapbid.catalog._index import Refusal as Refusal
from snapbid.catalog.payload import put

__all__ = ["DIMENSION_NAMES", "FORMAT_NAME", "Refusal", "dimension_name", "index_of"]

FORMAT_NAME = "format"
_NAMES = {number: name for name, number in DIMENSIONS.items()} | {FORMAT_DIMENSION: FORMAT_NAME}
DIMENSION_NAMES = tuple(_NAMES.values())


def dimension_name(number: int) -> str:
    """Return the name of a dimension, given its number from `Query.explain`."""
    return _NAMES[number]


def index_of(campaign: Campaign) -> Index:
    """Build an index of one campaign, whose rank is 0."""
    builder = Builder()
    put(builder, campaign, 1)
    return Index(builder.build())
