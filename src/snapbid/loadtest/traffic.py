"""Generates bid requests with the mix, oddities and sizes of current exchange traffic.

The distributions and their sources are in `traffic.json`. Requests include fields that the bidder
does not read, since consent, identifiers and supply chains make up most of their size. All domains
end in `.example`, and all ids are invented.
"""

import json
from bisect import bisect
from functools import cache
from importlib.resources import files
from math import exp
from random import Random
from typing import Any, Final

from snapbid.loadtest.pools import Pool, zipf

Request = dict[str, Any]

USERS: Final = 50_000
NATIVE_REQUEST: Final = (
    '{"ver":"1.2","assets":[{"id":1,"required":1,"title":{"len":90}},'
    '{"id":2,"required":1,"img":{"type":3,"wmin":300,"hmin":250}},'
    '{"id":3,"img":{"type":1,"wmin":50,"hmin":50}},{"id":4,"data":{"type":2,"len":140}}],'
    '"eventtrackers":[{"event":1,"methods":[1,2]}],"privacy":1}'
)
_LANGUAGES: Final = {
    "DEU": "de", "AUT": "de", "FRA": "fr", "ITA": "it", "ESP": "es", "MEX": "es", "COL": "es",
    "ARG": "es", "BRA": "pt", "PRT": "pt", "JPN": "ja", "POL": "pl", "NLD": "nl", "TUR": "tr",
}  # fmt: skip
_CENTRES: Final = {
    "USA": ((40.71, -74.01), (34.05, -118.24), (41.88, -87.63)),
    "GBR": ((51.51, -0.13),), "DEU": ((52.52, 13.4),), "FRA": ((48.86, 2.35),),
}  # fmt: skip
_CARRIERS: Final = zipf(("Verizon", "AT&T", "T-Mobile", "Vodafone", "Jio", "Orange", "Claro"))
SITES: Final = zipf([f"{kind}{n}.example" for n in range(1, 1000) for kind in (
    "daily-news", "weather", "sport-live", "recipes", "travel-guide",
)])  # fmt: skip
BUNDLES: Final = zipf([f"com.studio{n % 97}.{kind}{n}" for n in range(1, 1000) for kind in (
    "puzzle", "runner", "radio",
)])  # fmt: skip
PUBLISHERS: Final = zipf([f"pub-{n * 7919 % 1_000_003:07d}" for n in range(1, 1500)])
SEGMENTS: Final = zipf([f"seg{n * 31337 % 100_003:05d}" for n in range(2000)], 0.7)
DEALS: Final = zipf([f"deal-{n:04d}" for n in range(300)], 0.8)
_BELOW: Final = {7: 17, 8: 17, 9: 17, 14: 8, 25: 7, 26: 4}  # IAB category -> subcategories used
_BLOCKED: Final = ("IAB24", *(f"IAB{n}-{m}" for n in _BELOW for m in range(1, 1 + _BELOW[n])))
_DEVICES: Final = {"web_phone": 4, "web_desktop": 2, "web_tablet": 5, "app_android": 4,
                   "app_ios": 4, "ctv": 3}  # fmt: skip


def generate(count: int, seed: int) -> list[Request]:
    """Generate `count` requests, the same for the same seed."""
    generator = _RequestGenerator(seed)
    return [generator.request() for _ in range(count)]


@cache
def _figures() -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(
        files("snapbid.loadtest").joinpath("traffic.json").read_text(encoding="utf-8")
    )
    return figures


class _RequestGenerator:
    """A seeded stream of requests."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._figures = figures = _figures()
        self._share: dict[str, Any] = figures["presence"]
        self._pools = {
            name: Pool(figures[name])
            for name in (
                "formats_per_banner", "countries", "connections", "classes", "site_categories",
                "app_categories", "floor_currencies", "imps_per_request", "media", "tmax", "at",
                "cur",
            )
        }  # fmt: skip
        self._sizes = {name: Pool(pairs) for name, pairs in figures["sizes"].items()}
        self._agents = {
            name: Pool(((ua, system), share) for ua, system, share in agents)
            for name, agents in figures["user_agents"].items()
        }

    def _draw(self, name: str) -> Any:
        return self._pools[name].draw(self._random)

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _hex(self, length: int) -> str:
        return f"{self._random.getrandbits(4 * length):0{length}x}"

    def request(self) -> Request:
        """Generate a request of a realistic size."""
        kind = self._draw("classes")
        inventory = self._inventory(kind)
        country = self._draw("countries")
        device = self._device(kind, inventory, country)
        request: Request = {
            "id": self._hex(32),
            "imp": [self._imp(n, kind, inventory) for n in range(self._draw("imps_per_request"))],
            inventory: {"app": self._app, "site": self._site, "dooh": self._screen}[inventory](),
            "device": device,
            "user": self._user(inventory),
            "at": self._draw("at"),
            "cur": [self._draw("cur")],
            "source": {"tid": self._hex(16)},
        }
        if not self._chance(self._figures["tmax_absent"]):
            request["tmax"] = self._draw("tmax")
        if self._chance(self._share["test"]):
            request["test"] = 1
        self._add_lists(request)
        self._add_regulations(request, country)
        if self._chance(self._share["schain"]):
            nodes = [{"asi": "exchange.example", "sid": self._hex(6), "hp": 1}]
            request["source"]["schain"] = {"ver": "1.0", "complete": 1, "nodes": nodes}
        self._grow(request)
        return request

    def _inventory(self, kind: str) -> str:
        if kind.startswith("app") or kind == "ctv":
            return "app"
        return "dooh" if self._chance(0.006) else "site"

    # -- impressions -----------------------------------------------------------------------------

    def _imp(self, number: int, kind: str, inventory: str) -> Request:
        media = "video" if kind == "ctv" else self._draw("media")
        imp: Request = {"id": str(number + 1), "tagid": f"slot-{self._random.randrange(500)}"}
        for name in media.split("+"):
            imp[name] = getattr(self, f"_{name}")(kind, inventory)
        if self._chance(self._share["secure"]):
            imp["secure"] = 1
        if self._chance(self._share["instl"]["app" if inventory == "app" else "web"]):
            imp["instl"] = 1
        self._add_floor(imp, "ctv" if kind == "ctv" else media.split("+")[0])
        if inventory == "dooh":  # seen by several
            seen = round(self._random.lognormvariate(2.0, 0.8) + 0.1, 1)
            imp["qty"] = {"multiplier": seen, "sourcetype": 1, "vendor": "measure.example"}
        if kind == "ctv":
            imp["video"] |= {"podid": "break-1", "slotinpod": 0}
        if self._chance(self._share["deals"]):
            deals = [
                {"id": deal, "bidfloor": round(self._random.uniform(0.5, 8), 2), "at": 1}
                for deal in DEALS.draw_several(self._random, 4)
            ]
            imp["pmp"] = {"private_auction": int(self._chance(0.1)), "deals": deals}
        return imp

    def _add_floor(self, imp: Request, media: str) -> None:
        figures = self._figures["floors"]
        if self._chance(figures["zero_or_absent"]):
            if self._chance(0.5):
                imp["bidfloor"] = 0
            return
        shape = figures["lognormal"].get(media, figures["lognormal"]["banner"])
        amount = shape["median"] * exp(self._random.gauss(0, shape["sigma"]))
        imp["bidfloor"] = 0.01 if self._chance(figures["share_exactly_0_01"]) else round(amount, 3)
        imp["bidfloorcur"] = self._draw("floor_currencies")

    def _banner(self, kind: str, inventory: str) -> Request:
        name = "app" if inventory == "app" else (
            "desktop_web" if kind == "web_desktop" else "mobile_web"
        )  # fmt: skip
        sizes = self._sizes[name]
        drawn = dict.fromkeys(
            sizes.draw(self._random) for _ in range(self._draw("formats_per_banner"))
        )
        formats = [dict(zip("wh", map(int, size.split("x")), strict=True)) for size in drawn]
        banner: Request = {**formats[0], "pos": self._random.choice((0, 1, 1, 3, 4)), "api": [3, 5]}
        if len(formats) > 1:
            banner["format"] = formats
        if self._chance(0.5):
            banner["battr"] = self._random.sample(range(1, 17), 3)
        return banner

    def _video(self, kind: str, inventory: str) -> Request:
        size = "1920x1080" if kind == "ctv" else self._sizes["video"].draw(self._random)
        w, h = map(int, size.split("x"))
        video: Request = {
            "mimes": ["video/mp4", "video/webm"][: self._random.randint(1, 2)],
            "minduration": self._random.choice((0, 3, 5)),
            "maxduration": self._random.choice((15, 30, 30, 60, 120)),
            "protocols": [2, 3, 5, 6, 7, 8],
            "w": w,
            "h": h,
            "linearity": 1,
            "plcmt": self._random.choice((1, 2, 4)),
            "battr": [13, 17],
            **self._media((300, 1500), (1500, 2500, 8000)),
        }
        if self._chance(0.45):
            video["skip"] = int(self._chance(0.6))
        if self._chance(0.25):
            video["boxingallowed"] = int(self._chance(0.9))
        return video

    def _native(self, kind: str, inventory: str) -> Request:
        return {"request": NATIVE_REQUEST, "ver": "1.2", "battr": [1, 3]}

    def _audio(self, kind: str, inventory: str) -> Request:
        mimes = ["audio/mpeg", "audio/mp4", "audio/aac"]
        rates = self._media((32, 64), (192, 320))
        return {"mimes": mimes, "maxduration": 60, "protocols": [2, 3, 9, 10], **rates}

    def _media(self, least: tuple[int, ...], most: tuple[int, ...]) -> Request:
        """Generate limits on media.

        `least` and `most`: values to choose the lowest and the highest bit rate from (kbit/s).
        """
        limits: Request = {}
        if self._chance(0.6):
            limits["delivery"] = self._random.choice(([2], [1, 2]))
        if self._chance(0.25):
            limits["minbitrate"] = self._random.choice(least)
            limits["maxbitrate"] = self._random.choice(most)
        return limits

    # -- where and who ---------------------------------------------------------------------------

    def _app(self) -> Request:
        bundle = BUNDLES.draw(self._random)
        return {
            "id": self._hex(8),
            "name": bundle.rpartition(".")[2].title(),
            "bundle": bundle,
            "storeurl": f"https://store.example/apps/{bundle}",
            "cat": [self._draw("app_categories")],
            "publisher": {"id": PUBLISHERS.draw(self._random)},
        }

    def _site(self) -> Request:
        domain = SITES.draw(self._random)
        return {
            "id": self._hex(8),
            "domain": domain,
            "page": f"https://www.{domain}/section/article-{self._random.randrange(10**5)}",
            "cat": self._pools["site_categories"].draw_several(self._random, 2),
            "publisher": {"id": PUBLISHERS.draw(self._random)},
        }

    def _screen(self) -> Request:
        return {"id": self._hex(8), "name": "Station hall", "venuetype": ["transit.train"]}

    def _device(self, kind: str, inventory: str, country: str) -> Request:
        ua, system = self._agents[kind].draw(self._random)
        address = ".".join(str(self._random.randrange(1, 250)) for _ in range(4))
        device: Request = {
            "ua": ua,
            "ip": address,
            "devicetype": _DEVICES[kind],
            "os": system,
            "language": _LANGUAGES.get(country, "en"),
            "geo": self._geo(country, inventory),
            "js": 1,
        }
        if self._chance(0.8):
            device["connectiontype"] = self._draw("connections")
        if kind not in ("ctv", "web_desktop") and self._chance(0.5):
            device["carrier"] = _CARRIERS.draw(self._random)
        if inventory == "app":
            platform = system if system in ("Android", "iOS") else "Android"
            known = self._chance(self._share["ifa_in_app"][platform])
            user = Random(self._random.randrange(USERS)).getrandbits(128)
            device["ifa"] = f"{user:032x}" if known else "00000000-0000-0000-0000-000000000000"
            device["lmt"] = int(self._chance(self._share["lmt_1"][platform]))
        return device

    def _geo(self, country: str, inventory: str) -> Request:
        presence = self._figures["place"]
        geo: Request = {"type": 2}
        if self._chance(presence["country_present"]):
            geo["country"] = country
        if country == "USA" and self._chance(presence["region_present"]):
            geo["region"] = self._random.choice(("CA", "TX", "FL", "NY", "PA", "IL", "OH", "WA"))
        if self._chance(presence["city_present"]):
            geo["city"] = f"City {self._random.randrange(400)}"
        if self._chance(presence["zip_present"]):
            geo["zip"] = f"{self._random.randrange(10_000, 99_999)}"
        shares = presence["latlon_present"]
        if self._chance(shares["app" if inventory == "app" else "web"]):
            centre = self._random.choice(_CENTRES.get(country, ((0.0, 0.0),)))
            lat, lon = (round(degrees + self._random.gauss(0, 2), 4) for degrees in centre)
            geo |= {"lat": lat, "lon": lon}
        return geo

    def _user(self, inventory: str) -> Request:
        user: Request = {}
        if self._chance(self._share["buyeruid"]["app" if inventory == "app" else "web"]):
            number = self._random.randrange(USERS)
            user["id"] = f"{Random(number).getrandbits(128):032x}"
            user["buyeruid"] = f"{Random(~number).getrandbits(96):024x}"
        if self._chance(self._share["user_data"]):
            segments = [{"id": segment} for segment in SEGMENTS.draw_several(self._random, 8)]
            user["data"] = [{"id": "dmp", "name": "dmp.example", "segment": segments}]
        return user

    # -- limits, regulations, size ---------------------------------------------------------------

    def _add_lists(self, request: Request) -> None:
        lists = self._figures["lists"]
        if self._chance(lists["bcat"]["present"]):
            count = min(len(_BLOCKED), int(6 * exp(self._random.gauss(0, 1.1))) + 1)
            request["bcat"] = self._random.sample(_BLOCKED, count)
        if self._chance(lists["badv"]["present"]):
            count = min(300, int(12 * exp(self._random.gauss(0, 1.5))) + 1)
            request["badv"] = [
                f"rival{self._random.randrange(10**5)}.example" for _ in range(count)
            ]
        if self._chance(lists["bapp"]["present"]):
            request["bapp"] = BUNDLES.draw_several(self._random, 5)
        if self._chance(lists["wseat"]["present"]):
            request["wseat"] = [f"seat-{self._random.randrange(40)}"]

    def _add_regulations(self, request: Request, country: str) -> None:
        regs: Request = {}
        flagged = self._share["gdpr_flag_in_EEA_GBR_CHE"]
        if country in self._figures["gdpr_countries"] and self._chance(flagged):
            regs["gdpr"] = 1
            if self._chance(self._share["consent_string_when_gdpr"]):
                request["user"]["consent"] = self._random.choice(self._figures["consents"])
        if country == "USA" and self._chance(self._share["us_privacy_in_USA"]):
            regs["us_privacy"] = self._random.choice(("1YNN", "1YNN", "1YYN", "1---"))
        if self._chance(self._share["coppa"]):
            regs["coppa"] = 1
        if regs:
            request["regs"] = regs

    def _grow(self, request: Request) -> None:
        """Add identifiers, resellers and a vendor's `ext` up to a randomly drawn size."""
        share = self._random.random()
        table = self._figures["body_bytes"]
        row = min(bisect(table, [share, 0]), len(table) - 1)
        (low, small), (high, large) = table[row - 1], table[row]
        missing = small + (large - small) * (share - low) / (high - low)
        missing -= len(json.dumps(request, separators=(",", ":")))
        if missing < 120:
            return
        if self._chance(self._share["eids"]):
            eids: list[Request] = []
            request["user"]["eids"] = eids
            while missing > 150 and len(eids) < 12:
                uid = {"id": self._hex(64), "atype": 1}
                eids.append({"source": f"id{len(eids)}.example", "uids": [uid]})
                missing -= 120
        nodes = request["source"].get("schain", {}).get("nodes", [])
        while missing > 150 and 0 < len(nodes) < 4:
            nodes.append({"asi": f"reseller{len(nodes)}.example", "sid": self._hex(8), "hp": 1})
            missing -= 55
        if missing > 40:
            request["ext"] = {"vendor": self._hex(int(missing) - 25)}
