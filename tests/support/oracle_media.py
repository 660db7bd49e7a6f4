"""What impressions ask of the media of video and audio (OpenRTB 2.6, 3.2.7 and 3.2.8; contract 3).

What a creative does not say and the impression limits does not fit.
"""

from collections.abc import Iterator
from fractions import Fraction

from support.oracle_values import Document, bound, integer, numbers


def misfits_in_media(media: Document, creative: Document) -> Iterator[str]:
    """Apply bit rates, in kbit/s, and delivery methods: what is not said does not fit."""
    least, most = bound(media.get("minbitrate")), bound(media.get("maxbitrate"))
    bitrate = creative.get("bitrate")
    if (least is not None and (bitrate is None or bitrate < least)) or (
        most is not None and (bitrate is None or bitrate > most)
    ):
        yield "creative.bitrate"
    methods = numbers(media.get("delivery"))
    if methods and not methods & set(creative.get("delivery", [])):
        yield "creative.delivery"


def misfits_in_ads(media: Document, creative: Document) -> Iterator[str]:
    """Apply how many ads there may be: one in a pod's slot of fixed length, else `maxseq`."""
    ads, most = creative.get("ads", 1), bound(media.get("maxseq"))
    is_slot = media.get("podid") not in (None, "") and bound(media.get("poddur")) is None
    if ads > 1 and (is_slot or (most is not None and ads > most)):
        yield "creative.ads"


def misfits_in_player(video: Document, creative: Document, played: Document) -> Iterator[str]:
    """Apply linearity, skipping, and the player's size: what is not said does not fit.

    The sizes are those of the creative, which a bid has, and of the media files that are `played`.
    """
    linearity = integer(video.get("linearity"), 1)
    mode = {True: 1, False: 2, None: None}[creative.get("linear")]
    if linearity is not None and mode != linearity:
        yield "creative.linearity"
    is_unskippable = creative.get("skippable") is False
    if integer(video.get("skip")) == 0 and not is_unskippable:
        yield "creative.skip"
    player = integer(video.get("w"), 1), integer(video.get("h"), 1)
    boxed = integer(video.get("boxingallowed")) != 0
    sizes = [(each.get("w"), each.get("h")) for each in (creative, played)]
    if not boxed and not all(fills(player, size) for size in sizes):
        yield "creative.player"


def fills(player: tuple[int | None, int | None], media: tuple[int | None, int | None]) -> bool:
    """Tell if media are no larger than a player, and less than a pixel off its aspect ratio."""
    for side, own in zip(player, media, strict=True):
        if side is not None and (own is None or own > side):
            return False
    (width, height), (w, h) = player, media
    if width is None or height is None or w is None or h is None:
        return True
    return abs(h - Fraction(w * height, width)) < 1 or abs(w - Fraction(h * width, height)) < 1


def attributes(creative: Document) -> set[int]:
    """Give the attributes of a creative; 16 is that of a skip button."""
    return {*creative.get("attributes", []), *([16] if creative.get("skippable") else [])}
