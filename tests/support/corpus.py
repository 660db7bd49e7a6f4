"""Generates bid requests as exchanges send them: plausible mixes and real oddities.

Shares, in per mille, follow published counts and captures; the oddities are deviations from the
standard that captured traffic shows.
"""

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from support import consent

Document = dict[str, Any]

PUBLIC = Path(__file__).parents[3] / "shared" / "data" / "openrtb"
"""The directory of real requests, one per file, unless SNAPBID_CORPUS names another."""


def public_corpus() -> dict[str, Document]:
    """The real requests by file name; empty if there are none."""
    folder = Path(os.environ.get("SNAPBID_CORPUS") or PUBLIC)
    return {path.name: json.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))}


COUNTRIES = {"USA": 315, "IND": 81, "BRA": 50, "IDN": 42, "JPN": 38, "GBR": 34, "DEU": 32}
MEDIA = {
    ("banner",): 620,
    ("video",): 200,
    ("native",): 80,
    ("banner", "video"): 70,
    ("banner", "native"): 15,
    ("banner", "video", "native"): 10,
    ("audio",): 5,
}
SIZES = {(300, 250): 389, (728, 90): 243, (320, 50): 117, (160, 600): 117, (300, 600): 49}
IMPRESSIONS = {1: 860, 2: 60, 3: 30, 4: 20, 5: 10, 6: 8, 8: 6, 10: 6}
INVENTORY = {"app": 560, "site": 437, "dooh": 3}
SYSTEMS = {"Android": 470, "iOS": 270, "Windows": 145, "macOS": 45, "Roku OS": 16, "": 54}
TMAX = {80: 50, 100: 140, 120: 180, 150: 120, 200: 120, 250: 90, 300: 110, 500: 70, 1000: 50}
CURRENCIES = {"USD": 930, "EUR": 40, "GBP": 7, "JPY": 8, "RUB": 5}
CATEGORIES = ("IAB12", "IAB1", "IAB17-2", "IAB19", "IAB9-30", "IAB15", "IAB8", "IAB7-1", "IAB25-3")
AGENTS = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 "
    "(KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 "
    "(KHTML, like Gecko) Chrome/134.0.0.0 Safari/537.36 OPR/119.0.0.0",
    "Mozilla/5.0 (Android 10; Mobile; rv:139.0) Gecko/139.0 Firefox/139.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 "
    "(KHTML, like Gecko) Chrome/137.0.0.0 Safari/537.36",
    "Dalvik/2.1.0 (Linux; U; Android 14; SM-A546B Build/UP1A.231005.007)",
    "",
)


class Maker:
    """Makes requests from a random source."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def requests(self, count: int) -> Iterator[Document]:
        """`count` requests, about a third of them with an oddity."""
        for _ in range(count):
            request = self.request()
            if self.chance(0.35):
                for oddity in self._rng.sample(ODDITIES, self._rng.randint(1, 3)):
                    oddity(self, request)
            yield request

    def chance(self, share: float) -> bool:
        return self._rng.random() < share

    def pick(self, shares: Mapping[Any, int]) -> Any:
        return self._rng.choices(list(shares), list(shares.values()))[0]

    def one_of(self, *values: Any) -> Any:
        return self._rng.choice(values)

    def request(self) -> Document:
        """A request that conforms to the standard."""
        request: Document = {
            "id": f"{self._rng.getrandbits(128):032x}",
            "at": self.one_of(1, 1, 1, 2),
            "imp": [self.imp(number) for number in range(1, self.pick(IMPRESSIONS) + 1)],
            "device": self.device(),
            "user": {"id": f"{self._rng.getrandbits(64):x}"},
            "cur": [self.pick(CURRENCIES)],
            "source": {"ext": {"schain": {"ver": "1.0", "complete": 1, "nodes": []}}},
        }
        kind = self.pick(INVENTORY)
        request[kind] = self.inventory(kind)
        if self.chance(0.94):
            request["tmax"] = self.pick(TMAX)
        if self.chance(0.55):
            request["bcat"] = self._rng.sample(CATEGORIES, self._rng.randint(1, 5))
        if self.chance(0.45):
            request["badv"] = [f"blocked{n}.example" for n in range(self._rng.randint(1, 150))]
        if self.chance(0.2):
            request["user"]["data"] = [{"segment": [{"id": str(n)} for n in range(5)]}]
        self.regulate(request)
        return request

    def regulate(self, request: Document) -> None:
        """Add privacy signals where OpenRTB 2.5 or 2.6 has them."""
        user, regs = request["user"], request.setdefault("regs", {})
        where = regs if self.chance(0.4) else regs.setdefault("ext", {})
        if self.chance(0.3):
            where["gdpr"] = self.one_of(0, 1, 1)
            holder = user if where is regs else user.setdefault("ext", {})
            holder["consent"] = self.one_of(*consent.TCF)
        if self.chance(0.3):
            where["us_privacy"] = self.one_of(*consent.US_PRIVACY)
        if self.chance(0.3):
            where["gpp"] = self.one_of(*consent.GPP)
            where["gpp_sid"] = self.one_of([7], [8], [6, 7], [-1])

    def inventory(self, kind: str) -> Document:
        room: Document = {"id": str(self._rng.randint(1, 10**6)), "cat": [self.one_of(*CATEGORIES)]}
        room["publisher"] = {"id": f"pub-{self._rng.randint(1, 999)}"}
        if kind == "site":
            room["domain"] = f"site{self._rng.randint(1, 999)}.example"
            room["page"] = f"https://{room['domain']}/a?b=c"
        if kind == "app":
            room["bundle"] = self.one_of("com.example.game", "284882215", "com.example.tv")
        return room

    def device(self) -> Document:
        address = ".".join(str(self._rng.randint(1, 254)) for _ in range(4))
        return {
            "ua": self.one_of(*AGENTS),
            "ip": address,
            "os": self.pick(SYSTEMS),
            "devicetype": self.one_of(1, 2, 3, 4, 4, 4, 5),
            "connectiontype": self.one_of(0, 2, 2, 2, 3, 6, 7),
            "carrier": self.one_of("Verizon", "310-005", "Jio"),
            "language": self.one_of("en", "en", "de", "pt-BR"),
            "lmt": self.one_of(0, 0, 1),
            "geo": {
                "country": self.pick(COUNTRIES),
                "region": self.one_of("CA", "NY", "TX"),
                "lat": round(self._rng.uniform(-60, 60), 2),
                "lon": round(self._rng.uniform(-180, 180), 2),
            },
        }

    def imp(self, number: int) -> Document:
        imp: Document = {"id": str(number), "tagid": "slot", "secure": self.one_of(1, 1, 1, 0)}
        for media in self.pick(MEDIA):
            imp[media] = getattr(self, f"_{media}")()
        if self.chance(0.75):
            imp["bidfloor"] = round(self._rng.lognormvariate(-1, 1.1), 4)
            imp["bidfloorcur"] = self.pick(CURRENCIES)
        if self.chance(0.15):
            deals = [{"id": f"deal-{n}", "bidfloor": n / 2, "at": 1} for n in range(3)]
            imp["pmp"] = {"private_auction": self.one_of(0, 0, 1), "deals": deals}
        return imp

    def _banner(self) -> Document:
        w, h = self.pick(SIZES)
        return {"w": w, "h": h, "pos": self.one_of(0, 1, 3), "battr": [1, 3], "format": []}

    def _video(self) -> Document:
        video = {"mimes": ["video/mp4", "video/webm"], "protocols": [2, 3, 5, 6], "w": 640}
        return {**video, "minduration": 5, "maxduration": 30, "h": 360, "linearity": 1}

    def _audio(self) -> Document:
        return {"mimes": ["audio/mp4"], "protocols": [9, 10], "minduration": 5, "maxduration": 60}

    def _native(self) -> Document:
        request: Any = self.one_of("{}", '{"native":{"ver":"1.2","assets":[]}}', {"native": {}})
        return {"request": request, "ver": "1.2", "api": [3]}


Oddity = Callable[[Maker, Document], None]


def _setter(path: str, *values: Any) -> Oddity:
    """An oddity that sets a member to one of several values; `imp.` and `banner.` are the first."""
    *parents, last = path.split(".")

    def change(maker: Maker, request: Document) -> None:
        place = request
        for name in parents:
            if name != "imp" and not isinstance(place.get(name), dict):
                place[name] = {}
            place = place["imp"][0] if name == "imp" else place[name]
        place[last] = maker.one_of(*values)

    return change


def _same_imp_ids(_: Maker, request: Document) -> None:
    request["imp"].append(dict(request["imp"][0]))


ODDITIES: tuple[Oddity, ...] = (
    _setter("device.carrier", 70120, "", None),
    _setter("bcat", [10, 60], [], None, [""], "IAB1"),
    _setter("app.cat", [60, 3], None),
    _setter("device.dnt", True, "", 0.0),
    _setter("imp.instl", True, "", 1.0),
    _setter("imp.native", None, {}, {"ver": 1, "battr": 3, "api": 3}, {"request": "not JSON"}),
    _setter("imp.video", None, {"mimes": None}, {"protocol": [2]}, {"protocol": 2}, {}),
    _setter("imp.banner", None, {}, {"w": "300", "h": "250"}, {"w": 300.0, "h": 250.0}, {"w": 0}),
    _setter("imp.banner.pos", "1", "", None, 99),
    _setter("imp.banner.battr", [1.0, "3"], None, [None]),
    _setter("imp.banner.format", None, [], [{"w": 1, "h": 1}, {}]),
    _setter("imp.secure", "1", True, "", 1.0, None),
    _setter("imp.id", 1, 1.0, "", None),
    _setter("imp.pmp", None, {}, {"deals": None}, {"private_auction": True}),
    _setter("imp.bidfloor", 0, -1, "0.5", None, ""),
    _setter("imp.bidfloorcur", "", "usd", "RUB", "nonsense", None),
    _setter("tmax", "300", 300.0, "", None, 0),
    _setter("test", True, "", 1.0, 0),
    _setter("at", "SECOND_PRICE", "", 500, 3),
    _setter("device.devicetype", "4", 4.0, "", 0, None),
    _setter("device.connectiontype", "2", 2.0, "wifi", 99),
    _setter("device.ip", "", "unknown", "2001:db8::1", None),
    _setter("device.ua", "", None, "x" * 5000),
    _setter("device.os", "android", "ios", "iPhone OS", "", None),
    _setter("device.geo", None, {}, {"country": "TST"}, {"country": ""}, {"country": "usa"}),
    _setter("device.geo.lat", 95.2, "12.5", 0, None),
    _setter("device.geo.long", 12.5),
    _setter("device", None, {}),
    _setter("user", None, {}, {"data": None}, {"geo": None, "gender": "Null", "yob": ""}),
    _setter("regs", None, {}, {"coppa": ""}, {"gdpr": None}),
    _setter("cur", ["usd"], [], None, ["EUR", "USD"], "USD"),
    _setter("site", None, {}, {"page": "site.example/no/scheme"}, {"id": 5, "cat": None}),
    _setter("app", None, {}, {"bundle": 284882215, "paid": True}),
    _setter("source", "text", None),
    _setter("wseat", None, [], [""], ["seat"]),
    _setter("is_test", 1, {"protobuf": "x" * 500}),
    _same_imp_ids,
)
