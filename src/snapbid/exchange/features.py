"""From the request's structs to the flat values that the matcher takes (contract 3).

Both tuples are read by place in `native/_matcher.pyx`; their order is the same there. Values that
only need comparing are passed on as they came: the matcher ignores what no campaign names, folds
case, reads numbers as ids and drops integers out of range.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple, Protocol

from snapbid.exchange import privacy
from snapbid.exchange.identity import recognise
from snapbid.exchange.request import (
    Audio,
    Banner,
    BidRequest,
    Deal,
    Device,
    Geo,
    Imp,
    Text,
    Texts,
    User,
    Video,
)
from snapbid.match.vocabulary import host, primary_subtag, region
from snapbid.reference import agents, countries
from snapbid.reference.rates import Rates

NO_RATE = -1  # a floor that cannot be expressed in USD
UNREACHABLE = 2**62  # a floor beyond any price, micro-USD
MAX_SIDE = 2**24 - 1  # pixels

SITE, APP, DOOH = "site", "app", "dooh"


class CountryOfAddress(Protocol):
    """A geo database."""

    def country(self, ip: str) -> str | None: ...


class References(NamedTuple):
    """What features are looked up in, and what of it any campaign needs."""

    geo: CountryOfAddress
    rates: Rates
    needs_geo: bool = True
    needs_os: bool = True
    needs_browser: bool = True
    needs_user: bool = True
    gvl_id: int | None = None


class RequestFeatures(NamedTuple):
    """What one request carries; None or empty is absent. `inventory` is one of site, app, dooh."""

    auction: str
    now_ms: int
    ssp: str
    canonical: str
    country: str | None
    region: str | None
    city: Text
    postal: Text
    device_type: int | None
    connection: int | None
    os: str | None
    browser: str | None
    carrier: Text
    language: str | None
    inventory: Sequence[str]
    domain: str | None
    bundle: Text
    publishers: Sequence[Text]
    categories: Sequence[Text]
    segments: Sequence[Text]
    lat: float | None  # degrees
    lon: float | None
    bcat: Texts
    badv: Texts
    bapp: Texts
    bseat: Texts
    wseat: Texts
    user: str | None  # recognised, for frequency caps


class Stream(NamedTuple):
    """What an impression asks of a video or an audio; durations in seconds."""

    mimes: Texts
    protocols: Sequence[int | None] | None
    shortest: int | None
    longest: int | None
    battr: Sequence[int | None] | None


class DealFeatures(NamedTuple):
    """A deal; `floor_micros` may be NO_RATE."""

    id: Text
    floor_micros: int
    wseat: Texts
    wadomain: Texts


class ImpressionFeatures(NamedTuple):
    """What one impression asks for; `sizes` are w << 24 | h."""

    floor_micros: int
    secure: bool
    private: bool
    positions: Sequence[int | None]
    sizes: list[int] | None
    banner_battr: Sequence[int | None] | None
    video: Stream | None
    audio: Stream | None
    native: bool
    deals: list[DealFeatures] | None


# A NamedTuple's own constructor costs three times as much.
_make = tuple.__new__
_host = lru_cache(65_536)(host)
_language = lru_cache(4_096)(primary_subtag)
MAX_CACHED = 256  # characters of what is kept

_NO_DEVICE = Device()
_NO_GEO = Geo()
_NO_USER = User()
_NOTHING: Sequence[Text] = ()
_INVENTORIES = {
    (site, app, dooh): tuple(
        name for name, here in ((SITE, site), (APP, app), (DOOH, dooh)) if here
    )
    for site, app, dooh in product((False, True), repeat=3)
}


def read_request(
    request: BidRequest, ssp: str, canonical: str, now_ms: int, references: References
) -> RequestFeatures:
    """The request's part, read once for all its impressions."""
    device = request.device or _NO_DEVICE
    user = request.user or _NO_USER
    country, geo = _locate(device, user, references)
    os, browser = _agent(device, references)
    language = device.language or device.langb
    domain, bundle, publishers, categories = _publication(request)
    if _may_use_user_data(request, user, references.gvl_id):
        postal, segments, (lat, lon) = geo.zip, _segments(user), _point(geo)
        person = recognise(device, user) if references.needs_user else None
    else:
        postal, segments, lat, lon, person = None, (), None, None, None
    return _make(
        RequestFeatures,
        (
            request.id,
            now_ms,
            ssp,
            canonical,
            country,
            region(country, str(geo.region)) if country is not None and geo.region else None,
            geo.city,
            postal,
            device.devicetype,
            device.connectiontype,
            os,
            browser,
            device.carrier,
            _language(str(language)[:MAX_CACHED]) if language else None,
            _INVENTORIES[
                request.site is not None, request.app is not None, request.dooh is not None
            ],
            domain,
            bundle,
            publishers,
            categories,
            segments,
            lat,
            lon,
            request.bcat,
            request.badv,
            request.bapp,
            request.bseat,
            _named(request.wseat) if request.wseat else None,
            person,
        ),
    )


def read_impression(imp: Imp, rates: Rates) -> ImpressionFeatures | None:
    """One impression's part; None where its floor cannot be expressed in USD."""
    floor = floor_micros(imp.bidfloor, imp.bidfloorcur, rates)
    if floor == NO_RATE:
        return None
    banner, video, audio, pmp = imp.banner, imp.video, imp.audio, imp.pmp
    positions: tuple[int | None, ...] = ()
    if banner is not None:
        positions = (banner.pos,)
    if video is not None:
        positions += (video.pos,)
    deals = None
    if pmp is not None and pmp.deals:
        deals = [_deal(deal, rates) for deal in pmp.deals]
    return _make(
        ImpressionFeatures,
        (
            floor,
            imp.secure == 1,
            pmp is not None and pmp.private_auction == 1,
            positions,
            _sizes(banner) if banner is not None else None,
            banner.battr if banner is not None else None,
            _video(video) if video is not None else None,
            _audio(audio) if audio is not None else None,
            imp.native is not None,
            deals,
        ),
    )


def floor_micros(amount: float | None, currency: str | None, rates: Rates) -> int:
    """A floor as integer micro-USD CPM, rounded up; negative and NaN are absent."""
    if not amount or not amount > 0:
        return 0
    if amount == math.inf:
        return UNREACHABLE
    micros = rates.floor_micros(amount, currency or "USD")
    if micros is None:
        return NO_RATE
    return min(micros, UNREACHABLE)


def accepts_usd(cur: Texts) -> bool:
    """Whether the request's currencies, if it names any, include USD."""
    named = _named(cur)
    return not named or any(str(one).upper() == "USD" for one in named)


def _named(texts: Texts) -> Texts:
    """Without "" and null, which count as absent."""
    return [text for text in texts if text is not None and text != ""] if texts else None


def _known(numbers: Sequence[int | None] | None) -> Sequence[int | None] | None:
    """Without null, which counts as absent."""
    return [number for number in numbers if number is not None] if numbers else None


def _locate(device: Device, user: User, references: References) -> tuple[str | None, Geo]:
    """The country (alpha-3), and the geo object that the other places are read from."""
    geo = device.geo
    if geo is not None and geo.country and (country := countries.alpha3(str(geo.country))):
        return country, geo
    named = user.geo
    if named is not None and named.country and (country := countries.alpha3(str(named.country))):
        return country, named
    country = None
    if references.needs_geo:
        for address in (device.ip, device.ipv6):
            if address and (country := references.geo.country(str(address))):
                break
    return country, geo or _NO_GEO


def _agent(device: Device, references: References) -> tuple[str | None, str | None]:
    """Operating system and browser; parsed from the user agent only where it decides."""
    os = agents.fold_os(str(device.os)) if device.os and references.needs_os else None
    if device.ua and (references.needs_browser or (os is None and references.needs_os)):
        parsed_os, browser = agents.parse(str(device.ua))
        return os or parsed_os, browser
    return os, None


def _may_use_user_data(request: BidRequest, user: User, gvl_id: int | None) -> bool:
    regs = request.regs
    if regs is None:
        return True
    ext = regs.ext
    old: Any = ext if ext is not None else regs
    consent = user.consent or (user.ext.consent if user.ext is not None else None)
    return privacy.may_use_user_data(
        coppa=regs.coppa,
        gdpr=regs.gdpr if regs.gdpr is not None else old.gdpr,
        consent=consent,
        us_privacy=regs.us_privacy or old.us_privacy,
        gpp=regs.gpp or old.gpp,
        gpp_sid=regs.gpp_sid or old.gpp_sid or (),
        gvl_id=gvl_id,
    )


def _point(geo: Geo) -> tuple[float | None, float | None]:
    lat, lon = geo.lat, geo.lon
    if lat is None or lon is None or not -90 <= lat <= 90 or not -180 <= lon <= 180:
        return None, None
    return lat, lon


def _publication(
    request: BidRequest,
) -> tuple[str | None, Text, Sequence[Text], Sequence[Text]]:
    """Domain, bundle, publishers and categories of what the request names."""
    site, app, dooh = request.site, request.app, request.dooh
    domain, bundle = None, None
    publishers, categories = _NOTHING, _NOTHING
    if site is not None:
        domain = _host_of(site.domain) or _host_of(site.page)
        categories = _joined(site.cat, site.sectioncat, site.pagecat)
        if site.publisher is not None:
            publishers = (site.publisher.id,)
    if app is not None:
        bundle = app.bundle
        categories = (*categories, *_joined(app.cat, app.sectioncat, app.pagecat))
        if app.publisher is not None:
            publishers = (*publishers, app.publisher.id)
    if dooh is not None and dooh.publisher is not None:
        publishers = (*publishers, dooh.publisher.id)
    return domain, bundle, publishers, categories


def _host_of(url: Text) -> str | None:
    if not url:
        return None
    text = str(url)
    return _host(text) if len(text) <= MAX_CACHED else host(text)


def _joined(one: Texts, two: Texts, three: Texts) -> Sequence[Text]:
    if two or three:
        return (*(one or ()), *(two or ()), *(three or ()))
    return one or _NOTHING


def _segments(user: User) -> Sequence[Text]:
    if not user.data:
        return _NOTHING
    return [one.id for data in user.data if data.segment for one in data.segment]


def _sizes(banner: Banner) -> list[int]:
    sizes: list[int] = []
    if banner.format:
        for one in banner.format:
            if one.w and one.h:
                _add_size(sizes, one.w, one.h)
    if banner.w and banner.h:
        _add_size(sizes, banner.w, banner.h)
    return sizes


def _add_size(sizes: list[int], w: int, h: int) -> None:
    if 0 < w <= MAX_SIDE and 0 < h <= MAX_SIDE:
        sizes.append(w << 24 | h)


def _video(video: Video) -> Stream:
    protocols = _known(video.protocols)
    if not protocols and video.protocol is not None:
        protocols = [video.protocol]
    return Stream(_named(video.mimes), protocols, video.minduration, video.maxduration, video.battr)


def _audio(audio: Audio) -> Stream:
    return Stream(
        _named(audio.mimes),
        _known(audio.protocols),
        audio.minduration,
        audio.maxduration,
        audio.battr,
    )


def _deal(deal: Deal, rates: Rates) -> DealFeatures:
    return DealFeatures(
        deal.id,
        floor_micros(deal.bidfloor, deal.bidfloorcur, rates),
        _named(deal.wseat),
        _named(deal.wadomain),
    )
