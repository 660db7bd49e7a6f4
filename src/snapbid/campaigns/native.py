"""A native creative: its assets, and the mask of their kinds (contract 2, "Creative").

The matcher uses the mask to skip creatives that lack a required asset; `bidding.native_answer` then
decides whether the assets fit.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

TITLE: Final = 1 << 0
VIDEO: Final = 1 << 1
_FIRST_IMAGE, _FIRST_DATA = 2, 10  # bits
_IMAGE_TYPES, _DATA_TYPES = 8, 16  # types with bits of their own; higher ones share the last


class NativeImage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An image; its `type` is from Native 1.2, 7.5: 1 is an icon, 3 the main image."""

    type: int
    url: str
    w: int | None = None
    h: int | None = None


class NativeLink(msgspec.Struct, frozen=True, omit_defaults=True):
    """A click's destination and trackers; `fallback` is for devices that cannot open `url`."""

    url: str
    clicktrackers: tuple[str, ...] = ()
    fallback: str | None = None


class NativeTracker(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An event tracker; `event` and `method` as in Native 1.2, 7.6 and 7.7."""

    event: int
    method: int
    url: str


class NativeAd(msgspec.Struct, frozen=True, omit_defaults=True):
    """The assets of a native creative. `data`: texts by type (Native 1.2, 7.4).

    `video` is VAST; `mimes`, `protocols` and `duration` (seconds) describe the video.
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
        """The kinds of assets that the creative has, as a mask."""
        return kinds(
            title=self.title is not None,
            video=self.video is not None,
            images=(image.type for image in self.images),
            data=map(int, self.data),
        )


def kinds(*, title: bool, video: bool, images: Iterable[int], data: Iterable[int]) -> int:
    """Build a mask of asset kinds; `images` and `data` are the types of image and data assets."""
    mask = TITLE * title | VIDEO * video
    for kind in images:
        mask |= 1 << _FIRST_IMAGE + min(max(kind, 1), _IMAGE_TYPES) - 1
    for kind in data:
        mask |= 1 << _FIRST_DATA + min(max(kind, 1), _DATA_TYPES) - 1
    return mask
