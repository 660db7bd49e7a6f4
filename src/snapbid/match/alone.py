"""The matcher asked about one campaign, for those who explain: the same code as for all of them."""

from snapbid.match._builder import DIMENSIONS, Builder
from snapbid.match._matcher import FORMAT_DIMENSION, Index
from snapbid.match._matcher import Refusal as Refusal
from snapbid.match.campaign import Campaign
from snapbid.match.compile import put

__all__ = ["FORMAT_NAME", "Refusal", "dimension_name", "index_of"]

FORMAT_NAME = "format"
_NAMES = {number: name for name, number in DIMENSIONS.items()} | {FORMAT_DIMENSION: FORMAT_NAME}


def dimension_name(number: int) -> str:
    """The name of a dimension as `Query.explain` gives it."""
    return _NAMES[number]


def index_of(campaign: Campaign) -> Index:
    """An index of this campaign alone; its rank is 0."""
    builder = Builder()
    put(builder, campaign, 1)
    return Index(builder.build())
