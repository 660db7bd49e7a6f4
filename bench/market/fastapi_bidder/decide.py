"""Chooses the campaign for each impression (contract 3)."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import asin, cos, radians, sin, sqrt
from typing import NamedTuple
from zlib import crc32

from bench.market.fastapi_bidder.index import Index, Value, parents, places
from bench.market.fastapi_bidder.models import (
    BidRequest,
    Deal,
    Device,
    Geo,
    Imp,
    Publication,
    Regs,
    Stream,
    User,
)
from snapbid.bidding.privacy import PrivacySignals, may_use_user_data
from snapbid.campaigns.campaign import Campaign, Circle, Creative
from snapbid.campaigns.domains import host
from snapbid.campaigns.vocabulary import primary_subtag, region
from snapbid.reference import agents, countries
from snapbid.reference.geo import GeoDatabase
from snapbid.reference.rates import Rates

EARTH_KM = 6371.0088
NOTHING = Publication()
_host = lru_cache(65_536)(host)
_parents = lru_cache(65_536)(parents)


class Facts(NamedTuple):
    """Facts about the whole request: the campaigns that it admits, and its location."""

    candidates: int
    lat: float | None
    lon: float | None


class Choice(NamedTuple):
    """The campaign, creative and deal chosen for an impression."""

    imp: Imp
    campaign: Campaign
    creative: Creative
    deal: str | None


class Decider:
    """Chooses campaigns with an index; `registry` maps descriptors to canonical ids."""

    def __init__(
        self, index: Index, registry: dict[str, str], rates: Rates, geo: GeoDatabase
    ) -> None:
        self._index = index
        self._registry = registry
        self._rates = rates
        self._geo = geo

    def decide(self, request: BidRequest, ssp: str, now_ms: int) -> list[Choice]:
        """Choose the best campaign for each impression; leave out impressions without any."""
        if request.cur and "USD" not in request.cur:
            return []
        facts = self._read(request, ssp, now_ms)
        if not facts.candidates:
            return []
        found = (self._best(imp, facts, request.id) for imp in request.imp)
        return [choice for choice in found if choice is not None]

    def _read(self, request: BidRequest, ssp: str, now_ms: int) -> Facts:
        index, device, user = self._index, request.device or Device(), request.user or User()
        country, geo = self._locate(device, user)
        own = _may_use_user_data(request.regs, user)
        lat, lon = (geo.lat, geo.lon) if own else (None, None)
        found = index.everyone if lat is not None and lon is not None else ~index.located
        for name, value in self._values(device, geo, country, own, now_ms):
            found &= index.dimensions[name].one(value)
        site, app = request.site or NOTHING, request.app or NOTHING
        for name, values in (
            ("ssp", {ssp, self._registry[ssp]}),
            ("inventory", [name for name in ("site", "app") if getattr(request, name)]),
            ("domain", _domains(site)),
            ("publisher", [one.publisher.id for one in (site, app) if one.publisher]),
            ("category", [*_categories(site), *_categories(app)]),
            ("segment", [one.id for data in user.data for one in data.segment] if own else ()),
        ):
            found &= index.dimensions[name].any(values)
        found &= index.dimensions["bundle"].one(app.bundle)
        found &= ~index.categories.any(request.bcat) & ~index.domains.any(request.badv)
        found &= ~index.bundles.any(request.bapp) & ~index.seats.any(request.bseat)
        if request.wseat:
            found &= index.seats.any(request.wseat)
        return Facts(found, lat, lon)

    def _values(
        self, device: Device, geo: Geo, country: str | None, own: bool, now_ms: int
    ) -> Iterator[tuple[str, Value | None]]:
        system = agents.fold_os(device.os) if device.os else None
        browser = None
        if device.ua:
            parsed, browser = agents.parse(device.ua)
            system = system or parsed
        yield "country", country
        yield "region", region(country, geo.region) if country and geo.region else None
        yield "city", geo.city.casefold() if geo.city else None
        yield "postal", geo.zip.casefold() if own and geo.zip else None
        yield "device_type", device.devicetype
        yield "connection", device.connectiontype
        yield "os", system
        yield "browser", browser
        yield "carrier", device.carrier.casefold() if device.carrier else None
        yield "language", primary_subtag(device.language) if device.language else None
        yield "hour", (now_ms // 3_600_000 + 72) % 168

    def _locate(self, device: Device, user: User) -> tuple[str | None, Geo]:
        for geo in (device.geo, user.geo):
            if geo and geo.country and (country := countries.alpha3(geo.country)):
                return country, geo
        country = self._geo.country(device.ip) if device.ip else None
        return country, device.geo or Geo()

    def _best(self, imp: Imp, facts: Facts, auction: str) -> Choice | None:
        index = self._index
        floor = self._rates.floor_micros(imp.bidfloor, imp.bidfloorcur)
        deals = imp.pmp.deals if imp.pmp else []
        if floor is None:
            return None
        found = facts.candidates & index.dimensions["deal"].any([deal.id for deal in deals])
        private = imp.pmp is not None and imp.pmp.private_auction == 1
        found &= index.dealing if private else index.dealing | index.paying(floor)
        media = (imp.banner, imp.video)
        found &= index.dimensions["position"].any(
            [one.pos for one in media if one and one.pos is not None]
        )
        if found:
            found &= self._formats(imp)
        best: list[Choice] = []
        for place in places(found):
            campaign = index.campaigns[place]
            if best and campaign.cpm_micros < best[0].campaign.cpm_micros:
                break
            choice = self._verify(imp, campaign, deals, facts, auction)
            if choice is not None:
                best.append(choice)
        return max(best, key=lambda one: _score(auction, one.campaign.id), default=None)

    def _formats(self, imp: Imp) -> int:
        index, found = self._index, 0
        if imp.banner:
            found |= index.sizes.any(_sizes(imp))
        kinds = [name for name in ("video", "audio", "native") if getattr(imp, name)]
        return found | index.media.any(kinds)

    def _verify(
        self, imp: Imp, campaign: Campaign, deals: list[Deal], facts: Facts, auction: str
    ) -> Choice | None:
        deal = None
        if (wanted := campaign.targeting.get("deal")) and wanted.include:
            qualified = [
                (floor, one.id)
                for one in deals
                if one.id in wanted.include
                and (floor := self._rates.floor_micros(one.bidfloor, one.bidfloorcur)) is not None
                and floor <= campaign.cpm_micros
                and (not one.wseat or campaign.seat in one.wseat)
                and (not one.wadomain or {*one.wadomain} & {*parents(campaign.advertiser)})
            ]
            if not qualified:
                return None
            deal = max(qualified, key=lambda one: one[0])[1]
        if campaign.geo_radius and not _within(campaign.geo_radius, facts):
            return None
        fitting = [one for one in campaign.creatives if _fits(imp, one)]
        if not fitting:
            return None
        creative = max(fitting, key=lambda one: _score(auction, one.id))
        return Choice(imp, campaign, creative, deal)


def _may_use_user_data(regs: Regs | None, user: User) -> bool:
    if regs is None:
        return True
    places = [regs, regs.ext or regs]
    consents = {user.consent, user.ext.consent if user.ext else None}
    signals = PrivacySignals(
        coppa=regs.coppa == 1,
        gdpr=any(place.gdpr == 1 for place in places),
        consents=[consent for consent in consents if consent],
        us_privacy={place.us_privacy for place in places if place.us_privacy},
        gpp={place.gpp for place in places if place.gpp},
        gpp_sid={section for place in places for section in place.gpp_sid},
    )
    return may_use_user_data(signals, None)


def _domains(site: Publication) -> list[str]:
    named = (_host(one) for one in (site.domain, site.page) if one)
    domain = next((one for one in named if one), None)
    return _parents(domain) if domain else []


def _categories(publication: Publication) -> Iterator[str]:
    for one in (*publication.cat, *publication.sectioncat, *publication.pagecat):
        yield one
        yield one.partition("-")[0]


def _sizes(imp: Imp) -> set[int]:
    assert imp.banner
    return {(one.w << 16) + one.h for one in (imp.banner, *imp.banner.format) if one.w and one.h}


def _fits(imp: Imp, creative: Creative) -> bool:
    asked = getattr(imp, creative.media)
    if asked is None or (imp.secure and not creative.secure):
        return False
    if creative.media == "native":
        return True
    if asked.battr and not {*asked.battr}.isdisjoint(creative.attributes):
        return False
    if creative.media == "banner":
        return (creative.w << 16) + creative.h in _sizes(imp)
    return _plays(asked, creative)


def _plays(asked: Stream, creative: Creative) -> bool:
    for wanted, own in ((asked.mimes, creative.mimes), (asked.protocols, creative.protocols)):
        if wanted and own and {*wanted}.isdisjoint(own):
            return False
    if creative.duration is None:
        return asked.minduration is None and asked.maxduration is None
    shortest, longest = asked.minduration, asked.maxduration
    return (shortest is None or shortest <= creative.duration) and (
        longest is None or creative.duration <= longest
    )


def _within(circles: Iterable[Circle], facts: Facts) -> bool:
    lat, lon = facts.lat, facts.lon
    if lat is None or lon is None:
        return False
    return any(_distance_km(lat, lon, one.lat, one.lon) <= one.km for one in circles)


def _distance_km(lat: float, lon: float, lat2: float, lon2: float) -> float:
    one, two = radians(lat), radians(lat2)
    chord = sin((two - one) / 2) ** 2
    chord += cos(one) * cos(two) * sin(radians(lon2 - lon) / 2) ** 2
    return 2 * EARTH_KM * asin(min(1.0, sqrt(chord)))


def _score(auction: str, name: str) -> int:
    """Return a score that breaks ties evenly; it depends only on the auction and the name."""
    return crc32(name.encode(), crc32(auction.encode()))
