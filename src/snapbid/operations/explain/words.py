"""Texts that describe campaigns and requests."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from snapbid.base.words import utc
from snapbid.bidding.lookups import NO_RATE
from snapbid.bidding.native_request import NATIVE_REQUESTS, AssetAsked
from snapbid.bidding.request import Audio, BidRequest, Deal, Dsa, Imp, Native, Video
from snapbid.campaigns import codes
from snapbid.campaigns.campaign import Creative, Declaration, Rendition
from snapbid.campaigns.native import NativeAd
from snapbid.campaigns.suspensions import CreativeSuspension
from snapbid.operations.explain.carried import asked, shown_hour

SHOWN: Final = 8  # values of a list
LONGEST: Final = 60  # characters of a value
NOTHING: Final = "nothing"
OF_FILES: Final = ("apis", "bitrate", "delivery", "player")  # rules about media files


def usd(micros: int) -> str:
    """Format a CPM with at least two decimals: `1.25 USD`."""
    return f"{amount(micros)} USD"


def amount(micros: int) -> str:
    """Format a CPM without its currency."""
    whole, rest = divmod(micros, 1_000_000)
    return f"{whole}.{f'{rest:06}'.rstrip('0').ljust(2, '0')}"


def some(values: Iterable[object]) -> str:
    """List the first `SHOWN` values, and the total count if there are more."""
    texts = [str(value) for value in values if value is not None and value != ""]
    short = (text if len(text) <= LONGEST else f"{text[:LONGEST]}…" for text in texts[:SHOWN])
    shown = ", ".join(short)
    return shown if len(texts) <= SHOWN else f"{shown}, … ({len(texts)} in all)"


def entries(dimension: str, values: Sequence[str | int]) -> str:
    """List a campaign's values for a dimension."""
    if dimension == "hour":
        return some(shown_hour(int(value)) for value in values)
    return some(codes.in_words(dimension, value) for value in values)


def lists(**named: Sequence[object] | None) -> str:
    """Describe a request's lists by name, omitting empty ones."""
    return "; ".join(f"{name} {some(values)}" for name, values in named.items() if values)


def categories(request: BidRequest) -> str:
    """List the request's allowed and blocked categories."""
    taxonomy = "" if request.cattax is None else f"; cattax {request.cattax}"
    parts = (blocked(request, "bcat"), lists(acat=request.acat))
    return "; ".join(filter(None, parts)) + taxonomy


def blocked(request: BidRequest, name: str) -> str:
    """List what the request and its impressions block: `bcat`, `badv` or `bapp`."""
    own = [entry for imp in request.imp or () for entry in getattr(imp, name, None) or ()]
    return lists(**{name: getattr(request, name), f"imp[].{name}": own})


def time(ms: int) -> str:
    """Format a time (epoch ms) in UTC, to the second."""
    return utc(ms / 1000)


def span(starts_ms: int | None, ends_ms: int | None) -> str:
    """Describe a period, which may be open at either end."""
    parts = [f"from {time(starts_ms)}"] if starts_ms is not None else []
    return " ".join([*parts, f"until {time(ends_ms)}"] if ends_ms is not None else parts)


def floor(micros: int, value: float | None, currency: str | None) -> str:
    """Describe a floor in USD, with the original amount if that was in another currency."""
    named = f"{str(value).removesuffix('.0')} {currency}"
    if micros == NO_RATE:
        return f"floor {named}, which has no exchange rate"
    if currency and currency.upper() != "USD" and micros:
        return f"floor {usd(micros)} ({named})"
    return f"floor {usd(micros)}"


def deal(offered: Deal, micros: int) -> str:
    """Describe a deal's terms."""
    terms = [
        floor(micros, offered.bidfloor, offered.bidfloorcur),
        by_duration(offered),
        lists(wseat=offered.wseat, wadomain=offered.wadomain),
        "guaranteed" if offered.guar == 1 else "",
    ]
    return f"{offered.id}: {'; '.join(term for term in terms if term)}"


def by_duration(of: Video | Audio | Deal) -> str:
    """Describe minimum prices by duration, in the currency of the floor."""
    spans = [
        f"{0 if span.mindur is None else span.mindur} to"
        f" {'any' if span.maxdur is None else span.maxdur} s {span.bidfloor:g}"
        for span in of.durfloors or ()
        if not (span.bidfloor or 0) <= 0  # NaN, too
    ]
    parts = [] if (of.mincpmpersec or 0) <= 0 else [f"mincpmpersec {of.mincpmpersec:g}"]
    return "; ".join([*parts, f"durfloors {some(spans)}"] if spans else parts)


def rivals(advertisers: Iterable[str]) -> str:
    """List the advertisers of the other impressions in a pod."""
    return f"other impressions of its pod have {some(sorted(set(advertisers)))}"


def declared(own: Declaration | None) -> str:
    """Describe a campaign's declaration under the Digital Services Act."""
    if own is None:
        return "declares nothing"
    return "declares" if own.adrender is None else f"declares, adrender {own.adrender}"


def declaring(asks: Dsa) -> str:
    """Describe the DSA declaration that a request requires."""
    required = f"dsarequired {asks.dsarequired}"
    return required if asks.pubrender is None else f"{required}, pubrender {asks.pubrender}"


def suspension(of: CreativeSuspension) -> str:
    """Describe why and until when a creative is suspended."""
    return f"{of.losses} losses at {of.ssp}, until {time(of.until * 1000)}"


def creative(of: Creative) -> str:
    """Describe a creative's format, with a banner's size."""
    return f"{of.media} {of.w}x{of.h}" if of.media == "banner" else of.media


def assets(ad: NativeAd | None) -> str:
    """List the assets of a native creative."""
    if ad is None:
        return NOTHING
    parts = [f"a title of {len(ad.title)} characters"] if ad.title is not None else []
    parts += [f"image type {image.type} {image.w}x{image.h}" for image in ad.images]
    parts += [f"data type {kind} of {len(text)} characters" for kind, text in ad.data.items()]
    return some([*parts, "a video"] if ad.video is not None else parts)


def required_assets(native: Native) -> str:
    """List the assets that a native impression requires."""
    request = NATIVE_REQUESTS.of(native)
    if request is None:
        return "a native request that cannot be read"
    required = [asset for asset in request.assets if asset.required == 1]
    return "requires " + some(map(_required_asset, required)) if required else "any of its assets"


def _required_asset(asset: AssetAsked) -> str:
    if asset.title is not None:
        return f"a title of {_length(asset.title.len)}"
    if asset.img is not None:
        sides = ((name, getattr(asset.img, name)) for name in ("type", "w", "h", "wmin", "hmin"))
        return " ".join(["image", *(f"{name} {value}" for name, value in sides if value)])
    if asset.data is not None:
        return f"data type {asset.data.type} of {_length(asset.data.len)}"
    return "a video"


def _length(most: int | None) -> str:
    return f"at most {most} characters" if most else "any length"


def misfit(of: Creative, cause: str) -> str:
    """Describe the property of a creative that breaks the rule `cause`."""
    match cause:
        case "secure":
            return "not secure"
        case "duration" | "price":
            ads = f" in {of.ads} ads" if (of.ads or 1) > 1 else ""
            return "no duration" if of.duration is None else f"{of.duration} s{ads}"
        case "ads":
            return f"a pod of {of.ads} ads"
        case "native":
            return assets(of.native)
        case "attributes" | "mimes" | "protocols":
            return some(getattr(of, cause))
        case "linear" | "skippable":
            return _stated(cause, getattr(of, cause))
        case _ if cause in OF_FILES and of.renditions:
            own = [(_of_media(each, cause), each.mime) for each in of.renditions]
            parts = [f"{text} ({mime})" for text, mime in own if text]
            return some([some(of.apis), *parts] if cause == "apis" else parts)
        case "language":
            return of.language or "no language"
        case "type":
            return f"ad type {of.type}"
    return _of_media(of, cause) or creative(of)


def _of_media(of: Creative | Rendition, cause: str) -> str:
    match cause:
        case "apis":
            return some(of.apis)
        case "bitrate":
            return "no bitrate" if of.bitrate is None else f"{of.bitrate} kbit/s"
        case "delivery":
            return some(of.delivery) or "no delivery"
        case "player":
            return f"media of {of.w}x{of.h}" if of.w and of.h else "media without a size"
    return ""


def _stated(name: str, value: bool | None) -> str:
    if value is None:
        return f"does not say whether it is {name}"
    return name if value else f"not {name}"


def wanted(of: Creative, request: BidRequest, imp: Imp, cause: str) -> str:
    """Describe what the impression requires under the rule `cause`, which the creative breaks."""
    asks = [_wanted(of, request, imp, cause)]
    if cause in OF_FILES and of.renditions:
        asks.append(lists(mimes=getattr(imp, of.media).mimes))
    return "; ".join(part for part in asks if part)


def _wanted(of: Creative, request: BidRequest, imp: Imp, cause: str) -> str:
    stream: Any = getattr(imp, of.media)
    match cause:
        case "secure":
            return "secure 1"
        case "attributes":
            return lists(battr=stream.battr)
        case "duration":
            bounds = _asks(stream, "minduration", "maxduration", "poddur")
            exact = lists(rqddurs=stream.rqddurs)
            return ", ".join([*bounds, exact] if exact else bounds)
        case "ads":
            return ", ".join(_asks(stream, "maxseq", "podid"))
        case "linear":
            return ", ".join(_asks(stream, "linearity"))
        case "skippable":
            return "skip 0"
        case "bitrate":
            return ", ".join(_asks(stream, "minbitrate", "maxbitrate"))
        case "delivery":
            return lists(delivery=stream.delivery)
        case "player":
            return f"boxingallowed 0, player {stream.w}x{stream.h}"
        case "price":
            currency = imp.bidfloorcur or "USD"
            return f"{by_duration(stream)} ({currency})"
        case "language":
            return lists(wlang=request.wlang, wlangb=request.wlangb)
        case "apis":
            return lists(api=stream.api) or "no api"
        case "type":
            return lists(btype=stream.btype)
        case "native":
            return required_assets(stream)
        case "mimes" | "protocols":
            protocol = getattr(stream, "protocol", None)  # of OpenRTB 2.1
            alone = protocol if isinstance(protocol, list) else [protocol]
            return some(getattr(stream, cause) or alone)
    return asked(imp)


def _asks(stream: Any, *names: str) -> list[str]:
    """List the fields in `names` that a video, audio or banner object sets, with their values."""
    return [f"{name} {value}" for name in names if (value := getattr(stream, name)) is not None]
