from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO, Self, final

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
    def put(
        self,
        id: str,
        price: int,
        active: bool,
        starts_ms: int | None,
        ends_ms: int | None,
        seat: str | None,
        bundle: str | None,
        advertiser: str,
        categories: Iterable[str],
        targeting: Iterable[tuple[int, Sequence[str | int], Sequence[str | int]]],
        circles: Sequence[tuple[float, float, float]],
        creatives: Sequence[tuple[Any, ...]],
        capped: bool,
        payload: bytes,
    ) -> None: ...
    def build(self) -> bytearray:
        """The index; where payloads are in a file, it belongs behind. Raises ValueError."""
