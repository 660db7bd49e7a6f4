from typing import BinaryIO, Self, final

from snapbid.campaigns.campaign import Campaign
from snapbid.reference.taxonomies import Categories

DIMENSIONS: dict[str, int]
MEDIA: dict[str, int]

@final
class Builder:
    """Holds campaigns and writes them as an index.

    `payloads`: a new file, in which payloads are kept instead of in memory.
    """

    def __new__(cls, payloads: BinaryIO | None = None) -> Self: ...
    def __len__(self) -> int: ...
    def discard(self, id: str) -> None: ...
    def hide(self, id: str) -> None: ...
    def put(
        self,
        campaign: Campaign,
        payload: bytes,
        categories: Categories,
        advertiser: tuple[str, ...],
    ) -> None: ...
    def build(self) -> bytearray:
        """The index; where payloads are in a file, it belongs behind. Raises ValueError."""
