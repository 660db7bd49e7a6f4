"""Checks the media of a video or audio bid against the impression (OpenRTB 2.6, 3.2.7).

Properties that the bid's fields lack are read from the markup. The media files of a wrapper are in
another document, so they are not checked.
"""

import re
from typing import Final, NamedTuple

from snapbid.bidding.request import Audio, Video

SKIP_BUTTON: Final = 16  # the creative attribute
_DELIVERY: Final = {"streaming": 1, "progressive": 2}  # VAST's names of AdCOM's Delivery Methods
_MODES: Final = {1: re.compile(r"<Linear\b"), 2: re.compile(r"<NonLinear\b")}
_FILE = re.compile(r"<MediaFile\b([^>]*)>")
_BITRATE = re.compile(r"""\bbitrate\s*=\s*["'](\d{1,9})["']""")
_METHOD = re.compile(r"""\bdelivery\s*=\s*["'](\w+)["']""")


class MediaLimits(NamedTuple):
    """An impression's requirements for media; None, 0 or an empty set means no requirement.

    `skip` is False if the media must not be skippable.
    """

    linearity: int | None
    skip: bool
    minbitrate: int  # kbit/s
    maxbitrate: int
    delivery: frozenset[int]
    player: tuple[int, int] | None  # pixels, if media may not be boxed


def media_limits(medium: Video | Audio) -> MediaLimits | None:
    """Return the requirements of an impression's video or audio; None if there are none."""
    delivery = frozenset(method for method in medium.delivery or () if method)
    rates = medium.minbitrate or 0, medium.maxbitrate or 0
    limits = MediaLimits(None, True, *rates, delivery, None)
    if isinstance(medium, Video):
        player = (medium.w or 0, medium.h or 0) if medium.boxingallowed == 0 else (0, 0)
        skip, linearity = medium.skip != 0, medium.linearity or None
        limits = MediaLimits(linearity, skip, *rates, delivery, player if any(player) else None)
    return limits if limits != _NONE else None


_NONE: Final = MediaLimits(None, True, 0, 0, frozenset(), None)


def misfit(
    limits: MediaLimits, adm: str, attr: list[int], w: int | None, h: int | None
) -> tuple[str, str] | None:
    """Check a bid's media against an impression.

    Returns the first field of the impression that the media violate, and the reason; None if the
    media fit.
    """
    if not limits.skip and (SKIP_BUTTON in attr or "skipoffset" in adm):
        return "skip", "a video that can be skipped"
    if limits.player is not None and (w is None or h is None or not _fills(w, h, limits.player)):
        return "boxingallowed", f"{w}x{h} in a player of {limits.player}"
    modes = {mode for mode, mark in _MODES.items() if mark.search(adm)}
    if limits.linearity is not None and modes and limits.linearity not in modes:
        return "linearity", f"markup that is not of linearity {limits.linearity}"
    files = _FILE.findall(adm)
    if limits.delivery and files and not any(_delivers(file, limits.delivery) for file in files):
        return "delivery", f"no media file for {sorted(limits.delivery)}"
    if files and not any(_flows(file, limits) for file in files):
        return "bitrate", f"no media file of {limits.minbitrate} to {limits.maxbitrate} kbit/s"
    return None


def _fills(w: int, h: int, player: tuple[int, int]) -> bool:
    """Return whether media fit into the player, and have its aspect ratio to within a pixel."""
    width, height = player
    if (width and w > width) or (height and h > height):
        return False
    return not (width and height) or abs(w * height - h * width) < max(player)


def _delivers(file: str, methods: frozenset[int]) -> bool:
    method = _METHOD.search(file)
    return method is not None and _DELIVERY.get(method[1].lower()) in methods


def _flows(file: str, limits: MediaLimits) -> bool:
    if not (limits.minbitrate or limits.maxbitrate):
        return True
    rate = _BITRATE.search(file)
    if rate is None:
        return False
    return limits.minbitrate <= int(rate[1]) <= (limits.maxbitrate or int(rate[1]))
