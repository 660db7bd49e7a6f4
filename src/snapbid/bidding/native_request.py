"""Parser of `native.request` (Native 1.0 to 1.2, section 4).

The request is JSON text, which some exchanges encode twice; others send an object, or put the
request's members directly into the impression's `native`. The request may be wrapped in an object
with the single member `native`. It is parsed as tolerantly as a bid request. A request that is
malformed, or requires an asset of an unknown kind, cannot be answered and parses to None. Requests
are cached by their text.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, Final

import msgspec
from msgspec import Struct

from snapbid.base.errors import BadRequest
from snapbid.bidding.request import Enumeration, Flag, Listed, Native, Text, Texts
from snapbid.bidding.tolerance import decode_tolerantly
from snapbid.campaigns.native import kinds

MAX_ASSETS: Final = 100
MAX_VALUES: Final = 4_096  # of all assets; real requests have some 30
MAX_CACHED_TEXT: Final = 8_192  # characters; real requests have 500 to 3,000
MAX_CACHED: Final = 1_024
_VERSIONS: Final = {"1": "1.0", "1.0": "1.0", "1.1": "1.1", "1.2": "1.2"}


class TitleAsked(Struct, frozen=True):
    """The title that a native asset must have (Native 1.2, 4.3); `len` in characters."""

    len: int | None = None


class ImageAsked(Struct, frozen=True):
    """The image that a native asset must have (Native 1.2, 4.4); dimensions in pixels."""

    type: Enumeration = None
    w: int | None = None
    wmin: int | None = None
    h: int | None = None
    hmin: int | None = None


class VideoAsked(Struct, frozen=True):
    """The video that a native asset must have (Native 1.2, 4.5); durations in seconds."""

    mimes: Texts = None
    minduration: int | None = None
    maxduration: int | None = None
    protocols: list[Listed | None] | None = None


class DataAsked(Struct, frozen=True):
    """The text that a native asset must have (Native 1.2, 4.6); `len` in characters."""

    type: Enumeration = None
    len: int | None = None


class AssetAsked(Struct, frozen=True):
    """A requested native asset (Native 1.2, 4.2): one of `title`, `img`, `video` and `data`."""

    id: int | None = None
    required: Flag = None
    title: TitleAsked | None = None
    img: ImageAsked | None = None
    video: VideoAsked | None = None
    data: DataAsked | None = None


class TrackerAsked(Struct, frozen=True):
    """The trackers that a native request accepts for an event (Native 1.2, 4.7)."""

    event: Enumeration = None
    methods: list[Listed | None] | None = None


class NativeMarkup(Struct, frozen=True):
    """A native request as sent (Native 1.2, 4.1), which may be wrapped in `native`."""

    native: "NativeMarkup | None" = None
    ver: Text = None
    plcmttype: Enumeration = None
    assets: list[AssetAsked] | None = None
    eventtrackers: list[TrackerAsked] | None = None
    privacy: Flag = None


class NativeRequest(Struct, frozen=True):
    """A native request that can be answered; each asset is of one kind.

    `number` identifies a cached request; 0 if it is not cached. `version` is 1.0, 1.1 or 1.2.
    `plcmttype`: the placement type in the request; the impression's `native` may state another,
    which counts as well. `trackers`: the accepted pairs of event and method. `required_kinds`: the
    kinds of the required assets, as a mask (`campaigns.native`).
    """

    number: int
    version: str
    plcmttype: Enumeration
    assets: tuple[AssetAsked, ...]
    trackers: frozenset[tuple[int, int]]
    privacy: bool
    required_kinds: int


class NativeRequests(dict[tuple[str, Text], NativeRequest | None]):
    """A cache of native requests by their text and `imp.native.ver`; long texts are not kept."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = count(1)

    def of(self, native: Native) -> NativeRequest | None:
        """Parse the request of a native impression; None if it cannot be answered."""
        return self.read(request_of(native), native.ver)

    def read(self, request: Any, version: Text) -> NativeRequest | None:
        """Parse `native.request` and `native.ver`; None if the request cannot be answered."""
        if type(request) is not str:
            if not isinstance(request, dict):
                return None
            try:
                request = msgspec.json.encode(request).decode()
            except (ValueError, OverflowError, RecursionError):
                return None
        if len(request) > MAX_CACHED_TEXT:
            if request.count(",") >= MAX_VALUES:
                return None
            return read_native(request, version, 0)
        return self[request, version]

    def __missing__(self, key: tuple[str, Text]) -> NativeRequest | None:
        if len(self) >= MAX_CACHED:
            self.clear()
        self[key] = asked = read_native(*key, next(self._numbers))
        return asked


NATIVE_REQUESTS: Final = NativeRequests()
"""The process's cache of native requests."""

_decoder: Final = msgspec.json.Decoder(NativeMarkup, strict=False)
_text_decoder: Final = msgspec.json.Decoder(str)
_KINDS: Final = ("title", "img", "video", "data")


def request_of(native: Native) -> Any:
    """Return the request in `native.request` or, from some SSPs, in the fields beside it."""
    if native.request or native.assets is None:
        return native.request
    return {name: getattr(native, name) for name in ("assets", "eventtrackers", "privacy")}


def fault_of(request: Any) -> str:
    """Return why a native request cannot be answered: the broken rule, after the field's path.

    The path begins below `request`, as in `.ver: is not a known version of Native`.
    """
    if isinstance(request, dict):
        request = msgspec.json.encode(request).decode()
    markup = _decode(request) if isinstance(request, str) else None
    if markup is None:
        return ": is not a native request"
    return _fault_of_assets(markup.assets) or ".ver: is not a known version of Native"


def read_native(text: str, version: Text, number: int) -> NativeRequest | None:
    """Parse a native request; None if it cannot be answered.

    `version` is used if the request names none. `number`: see NativeRequest.
    """
    markup = _decode(text)
    if markup is None:
        return None
    known = _version(markup.ver if markup.ver not in (None, "") else version)
    if known is None or _fault_of_assets(markup.assets) is not None:
        return None
    assets = tuple(map(_of_one_kind, markup.assets or ()))
    required = [asset for asset in assets if asset.required == 1]
    return NativeRequest(
        number=number,
        version=known,
        plcmttype=markup.plcmttype,
        assets=assets,
        trackers=frozenset(_trackers(markup.eventtrackers or () if known == "1.2" else ())),
        privacy=known == "1.2" and markup.privacy == 1,
        required_kinds=_required_kinds(required),
    )


def _decode(text: str) -> NativeMarkup | None:
    """Decode a native request and remove its wrapper, if any; None if it is malformed."""
    try:
        if text.lstrip().startswith('"'):  # encoded twice
            text = _text_decoder.decode(text)
        markup = _decoder.decode(text)
    except (msgspec.ValidationError, UnicodeEncodeError):
        try:
            markup = decode_tolerantly(text, NativeMarkup)
        except BadRequest:
            return None
    except (msgspec.DecodeError, RecursionError):
        return None
    return markup.native or markup


def _fault_of_assets(assets: Sequence[AssetAsked] | None) -> str | None:
    """Return what is wrong with the assets, as `.path: rule`; None if they can be used."""
    if not assets:
        return ".assets: is missing or empty"
    if len(assets) > MAX_ASSETS:
        return f".assets: has more than {MAX_ASSETS} entries"
    ids = {asset.id for asset in assets}
    if None in ids:
        return ".assets[].id: is missing"
    if len(ids) < len(assets):
        return ".assets[].id: is the same as another's"
    required = [asset for asset in assets if asset.required == 1]
    if not all(asset.title or asset.img or asset.video or asset.data for asset in required):
        return ".assets[]: has neither title, img, video nor data"
    return None


def _of_one_kind(asset: AssetAsked) -> AssetAsked:
    """Reduce an asset to one kind: the first kind that is not empty, else the first one present.

    Some senders write all four kinds, and leave three of them empty.
    """
    kinds = {name: kind for name in _KINDS if (kind := getattr(asset, name)) is not None}
    if len(kinds) < 2:
        return asset
    own = next((name for name, kind in kinds.items() if kind != type(kind)()), next(iter(kinds)))
    return AssetAsked(id=asset.id, required=asset.required, **{own: kinds[own]})


def _version(ver: Text) -> str | None:
    """Reduce a version to its first two numbers, 1.2 by default; None if it is unknown."""
    if ver is None or ver == "":
        return "1.2"
    return _VERSIONS.get(".".join(str(ver).strip().split(".")[:2]))


def _trackers(trackers: Iterable[TrackerAsked]) -> Iterable[tuple[int, int]]:
    for tracker in trackers:
        for method in tracker.methods or ():
            if tracker.event is not None and method is not None:
                yield tracker.event, method


def _required_kinds(required: list[AssetAsked]) -> int:
    return kinds(
        title=any(asset.title is not None for asset in required),
        video=any(asset.video is not None for asset in required),
        images=[asset.img.type for asset in required if asset.img and asset.img.type],
        data=[asset.data.type for asset in required if asset.data and asset.data.type],
    )


def at_most(limit: int | None) -> float:
    """Return the maximum length requested; infinity if it is absent or not positive."""
    return limit if limit is not None and limit > 0 else math.inf
