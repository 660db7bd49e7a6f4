"""The native response (Native 1.0 to 1.2, section 5), filled from a creative's assets.

Each asset that the request asks for is filled with a fitting asset of the creative. An optional
asset is left out if no asset of the creative fits. The creative's other assets are not sent. Event
trackers and the privacy notice are sent if the request allows them. If the request names no
trackers, as before 1.2, impression pixels are sent as `imptrackers`.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from snapbid.bidding.native_request import (
    AssetAsked,
    ImageAsked,
    NativeRequest,
    VideoAsked,
    at_most,
)
from snapbid.bidding.request import Text
from snapbid.campaigns.native import NativeAd, NativeImage
from snapbid.campaigns.vocabulary import MAX_INTEGER, media_type

Answered = dict[str, Any]
_IMPRESSION_PIXEL: Final = (1, 1)  # an event and a method
_json: Final = msgspec.json.encode


def fits(asked: NativeRequest, ad: NativeAd) -> bool:
    """Return whether the creative has every required asset, and at least one requested asset."""
    return _assets(asked, ad) is not None


def native_markup(asked: NativeRequest, ad: NativeAd) -> str:
    """Return the native response as JSON, for version 1.0 wrapped in `{"native": …}`.

    Raises ValueError if the creative does not fit.
    """
    assets = _assets(asked, ad)
    if assets is None:
        raise ValueError("the creative does not fit the native request")
    link: Answered = {"url": ad.link.url}
    if ad.link.clicktrackers:
        link["clicktrackers"] = ad.link.clicktrackers
    if ad.link.fallback is not None:
        link["fallback"] = ad.link.fallback
    answer: Answered = {"ver": asked.version, "assets": assets, "link": link}
    impressions = list(ad.imptrackers)
    trackers = []
    for tracker in ad.eventtrackers:
        kind = tracker.event, tracker.method
        if kind in asked.trackers:
            trackers.append(tracker)
        elif kind == _IMPRESSION_PIXEL and not asked.trackers:
            impressions.append(tracker.url)
    if impressions:
        answer["imptrackers"] = impressions
    if trackers:
        answer["eventtrackers"] = trackers
    if asked.privacy and ad.privacy is not None:
        answer["privacy"] = ad.privacy
    return _json({"native": answer} if asked.version == "1.0" else answer).decode()


def _assets(asked: NativeRequest, ad: NativeAd) -> list[Answered] | None:
    """Return the answer's assets; None if the list is empty or lacks a required asset."""
    assets = []
    typed = asked.version == "1.2"  # earlier answers have no types
    for asset in asked.assets:
        filled = _filled(asset, ad, typed)
        if filled is not None:
            assets.append({"id": asset.id, **filled})
        elif asset.required == 1:
            return None
    return assets or None


def _filled(asset: AssetAsked, ad: NativeAd, typed: bool) -> Answered | None:
    """Fill one requested asset; None if no asset of the creative fits.

    `typed`: whether the answer states the types of images and data (Native 1.2 and later).
    """
    if asset.title is not None:
        if ad.title is not None and len(ad.title) <= at_most(asset.title.len):
            return {"title": {"text": ad.title}}
    elif asset.img is not None:
        if image := _image(asset.img, ad.images):
            size: Answered = {"w": image.w, "h": image.h} if image.w and image.h else {}
            kind: Answered = {"type": image.type} if typed else {}
            return {"img": kind | {"url": image.url} | size}
    elif asset.video is not None:
        if ad.video is not None and _fits_video(asset.video, ad):
            return {"video": {"vasttag": ad.video}}
    elif asset.data is not None:
        text = ad.data.get(str(asset.data.type))
        if text is not None and len(text) <= at_most(asset.data.len):
            kind = {"type": asset.data.type} if typed else {}
            return {"data": {**kind, "value": text}}
    return None


def _image(asked: ImageAsked, images: tuple[NativeImage, ...]) -> NativeImage | None:
    """Return an image of the requested type that fits, or None; an exact size is preferred."""
    fitting = [
        image
        for image in images
        if asked.type in (None, 0, image.type)
        and _fits_side(image.w, asked.w, asked.wmin)
        and _fits_side(image.h, asked.h, asked.hmin)
    ]
    exact = [image for image in fitting if (image.w, image.h) == (asked.w, asked.h)]
    return next(iter(exact + fitting), None)


def _fits_side(length: int | None, exactly: int | None, least: int | None) -> bool:
    """Return whether `length` is at least `least` or, without that limit, equals `exactly`.

    A limit that is absent or not positive does not apply (Native 1.2, 4.4).
    """
    if least is not None and least > 0:
        return length is not None and length >= least
    return exactly is None or exactly <= 0 or length == exactly


def _fits_video(asked: VideoAsked, ad: NativeAd) -> bool:
    mimes = set(_media_types(asked.mimes or ()))
    if mimes and ad.mimes and mimes.isdisjoint(map(media_type, ad.mimes)):
        return False
    protocols = {protocol for protocol in asked.protocols or () if protocol}
    if protocols and ad.protocols and protocols.isdisjoint(ad.protocols):
        return False
    shortest, longest = _seconds(asked.minduration), _seconds(asked.maxduration)
    if ad.duration is None:
        return shortest is None and longest is None
    return (shortest or 0) <= ad.duration and (longest is None or ad.duration <= longest)


def _media_types(listed: Iterable[Text]) -> Iterator[str]:
    """Yield media types in their normal form, splitting entries that hold several."""
    for entry in listed:
        for part in str("" if entry is None else entry).split(","):
            if part.strip():
                yield media_type(part)


def _seconds(number: int | None) -> int | None:
    """Return a duration (s); None, which sets no limit, if it is too large or not positive."""
    return number if number is not None and 0 < number <= MAX_INTEGER else None
