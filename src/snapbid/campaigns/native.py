"""A native creative: what its assets are, and which kinds it has (contract 2, "Creative").

The kinds are a mask, so that the matcher passes over a creative without an asset that an impression
requires; whether the asset fits is then decided by `exchange.native_answer`.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

TITLE: Final = 1 << 0
VIDEO: Final = 1 << 1
_FIRST_IMAGE, _FIRST_DATA = 2, 10  # bits
_IMAGE_TYPES, _DATA_TYPES = 8, 16  # those with bits of their own; higher ones share the last


class NativeImage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An image; `type` as in Native 1.2, 7.4: 1 is an icon, 3 the main image."""

    type: int
    url: str
    w: int | None = None
    h: int | None = None


class NativeLink(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a click leads, and what hears of it."""

    url: str
    clicktrackers: tuple[str, ...] = ()


class NativeTracker(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What hears of an event; `event` and `method` as in Native 1.2, 7.6 and 7.7."""

    event: int
    method: int
    url: str


class NativeAd(msgspec.Struct, frozen=True, omit_defaults=True):
    """The assets of a native creative. `data` is by type (Native 1.2, 7.2), `video` is VAST, of
    which `mimes`, `protocols` and `duration` (seconds) are what the creative says.
    """

    link: NativeLink
    title: str | None = None
    images: tuple[NativeImage, ...] = ()
    data: dict[str, str] = {}
    video: str | None = None
    imptrackers: tuple[str, ...] = ()
    eventtrackers: tuple[NativeTracker, ...] = ()
    privacy: str | None = None
    mimes: tuple[str, ...] = ()
    protocols: tuple[int, ...] = ()
    duration: int | None = None

    @property
    def kinds(self) -> int:
        """The kinds of assets that there are."""
        return kinds(
            title=self.title is not None,
            video=self.video is not None,
            images=(image.type for image in self.images),
            data=map(int, self.data),
        )


def kinds(*, title: bool, video: bool, images: Iterable[int], data: Iterable[int]) -> int:
    """Return the mask of kinds of assets; images and data are given by type."""
    mask = TITLE * title | VIDEO * video
    for kind in images:
        mask |= 1 << _FIRST_IMAGE + min(max(kind, 1), _IMAGE_TYPES) - 1
    for kind in data:
        mask |= 1 << _FIRST_DATA + min(max(kind, 1), _DATA_TYPES) - 1
    return mask
