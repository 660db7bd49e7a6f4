from typing import BinaryIO, Self, final

from snapbid.campaigns.campaign import Campaign
from snapbid.reference.taxonomies import Categories

DIMENSIONS: dict[str, int]
MEDIA: dict[str, int]

@final
class Builder:
    """A builder of campaign indexes, which keeps the campaigns between builds.

    `payloads`: an empty file to write the payloads to, so that they take no memory.
    """

    n_unused: int  # values of earlier builds that no campaign named in the last one
    def __new__(cls, payloads: BinaryIO | None = None) -> Self: ...
    def __len__(self) -> int: ...
    def discard(self, id: str) -> None:
        """Remove a campaign; unknown ids are ignored."""
    def hide(self, id: str) -> None:
        """Mark an id as deleted, so that an overlay hides the base's campaign with this id."""
    def put(
        self,
        campaign: Campaign,
        payload: bytes,
        categories: Categories,
        advertiser: tuple[str, ...],
        types: dict[str, tuple[str, ...]],
    ) -> None:
        """Add or replace a campaign.

        `payload`: data for `Index.payload` to return; `advertiser`: the advertiser's domain and its
        parents, from `domains.line_of`; `types` maps each name of a media type to all of its names.
        Raises ValueError if the campaign has no creative, or if an id, a value or a list is too
        long.
        """
    def build(self) -> bytearray:
        """Return the index, without the payload file, which the caller must append.

        Raises ValueError if the index is too large.
        """
