from collections.abc import Callable
from typing import BinaryIO, Self, final

from snapbid.match.campaign import Campaign

DIMENSIONS: dict[str, int]
MEDIA: dict[str, int]

@final
class Builder:
    """Holds campaigns and writes them as an index.

    `payloads`: a new file, in which payloads are kept instead of in memory. `normalise`: called
    once for each targeting value, as (dimension, value), gives its normal form or None where it is
    no value of the dimension; without it values are in their normal form.
    """

    def __new__(
        cls,
        payloads: BinaryIO | None = None,
        normalise: Callable[[int, str | int], str | int | None] | None = None,
    ) -> Self: ...
    def __len__(self) -> int: ...
    def discard(self, id: str) -> None: ...
    def hide(self, id: str) -> None: ...
    def put(self, campaign: Campaign, payload: bytes) -> None: ...
    def build(self) -> bytearray:
        """The index; where payloads are in a file, it belongs behind. Raises ValueError."""
