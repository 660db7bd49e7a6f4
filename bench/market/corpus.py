"""The corpus: campaigns in a form that favours no bidder, and an exchange's bid requests.

    python -m bench.market.corpus DIRECTORY     writes campaigns.jsonl and requests.jsonl

The requests have the fields, sizes, floors, blocks and numbers of impressions of public captures of
exchange traffic (`snapbid/loadtest/traffic.json`). Every impression is a banner, since campaigns
for banners by segment, country and device type are what all bidders can express. Requests state
their user's segments, for bidders that do not look them up, and a device of their own, for a bidder
that looks up nothing else. Only the contract's rules keep a bidder from bidding: there are no
deals, seats, privacy signals, test requests or currencies other than USD.
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from snapbid.loadtest import traffic
from snapbid.loadtest.pools import Pool, zipf
from workload import pools
from workload.requests import Request

TMAX_MS: Final = 250
SOLD: Final = ((300, 250), (320, 50), (728, 90), (160, 600))  # sizes that campaigns have
UNSOLD: Final = ((970, 250), (336, 280))
SIZES: Final = Pool([*zip(SOLD, (40, 35, 12, 8), strict=True), (UNSOLD[0], 3), (UNSOLD[1], 2)])
COUNTRIES: Final = zipf(("USA", "IND", "BRA", "IDN", "JPN", "GBR", "DEU", "MEX", "FRA", "CAN"), 0.8)
UNSOLD_COUNTRY: Final = "NZL"
SEGMENTS: Final = zipf(range(1, 1_001), 1.1)
DEVICES: Final = {"MOBILE": (1, 4), "DESKTOP": (2,), "TABLET": (5,)}  # OpenRTB's numbers
DEVICE_LISTS: Final = ((), ("MOBILE",), ("DESKTOP",), ("MOBILE", "DESKTOP", "TABLET"))
USERS: Final = 2_000
UNSOLD_SHARE: Final = 0.15  # of the requests, from a country that no campaign wants
BLOCKED_SHARE: Final = 0.3  # that block some of the campaigns' advertisers
HIGH_FLOORS: Final = 0.1  # of the impressions, above what anybody pays
SCARCE: Final = 20  # impressions that a budget of the contract pays for
CAP: Final = 3  # impressions that a user sees in an hour
KEPT: Final = ("id", "tagid", "secure", "instl")  # of a generated impression
ASKED: Final = 2  # times as many requests as a budget or cap allows bids


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign for banners, which pays `cpm_cents` US cents for a thousand impressions.

    `devices` are keys of DEVICES, empty for any device; a user must have one of the segments.
    `budget_micros` is the most that it may spend today, in micro-USD; `cap` is the most impressions
    for a user in an hour.
    """

    id: int
    cpm_cents: int
    advertiser: str  # its domain
    category: str  # of IAB's content taxonomy 1.0
    segments: tuple[int, ...]
    countries: tuple[str, ...]
    devices: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...]
    budget_micros: int | None = None
    cap: int | None = None

    @property
    def device_types(self) -> tuple[int, ...]:
        """OpenRTB's device types of the campaign's devices; empty for any."""
        return tuple(number for device in self.devices for number in DEVICES[device])


class Corpus(NamedTuple):
    """The data for a benchmark; `users` are the segments of each user.

    The last 8 digits of a request's id are its index in `all_requests`. Only campaigns of `limited`
    bid on the requests of `scarce` (a campaign with a budget for SCARCE impressions) and on those
    of `capped`, which are by user (a campaign with a cap).
    """

    campaigns: list[Campaign]
    limited: list[Campaign]
    users: Mapping[str, Sequence[int]]
    requests: list[Request]
    scarce: list[Request]
    capped: dict[str, list[Request]]

    def all_requests(self) -> list[Request]:
        capped = (each for own in self.capped.values() for each in own)
        return [*self.requests, *self.scarce, *capped]


def make(campaigns: int = 5_000, requests: int = 2_000, seed: int = 5) -> Corpus:
    """Make a corpus, always the same for the same arguments."""
    random = Random(seed)
    users = {
        str(number): [SEGMENTS.draw(random) for _ in range(random.randint(5, 15))]
        for number in range(1, USERS + 1)
    }
    plain = [_campaign(random, number) for number in range(1, campaigns + 1)]
    generated = traffic.generate(requests * 11 // 10, seed)
    made = [_request(random, each, users) for each in generated if "dooh" not in each][:requests]
    ample = [msgspec.structs.replace(each, budget_micros=10**11, cap=10**6) for each in plain]
    scarce = _limit(campaigns + 1, "ISL", budget_micros=SCARCE * 5_000, cap=10**6)
    capped = _limit(campaigns + 2, "LUX", budget_micros=10**11, cap=CAP)
    known = [user for user, segments in users.items() if not {1}.isdisjoint(segments)]
    corpus = Corpus(
        campaigns=plain,
        limited=[*ample, scarce, capped],
        users=users,
        requests=made,
        scarce=[_plain_request(random, "ISL", user, users) for user in known[: ASKED * SCARCE]],
        capped={
            user: [_plain_request(random, "LUX", user, users) for _ in range(ASKED * CAP)]
            for user in known[-5:]
        },
    )
    for number, request in enumerate(corpus.all_requests()):
        request["id"] = f"{random.getrandbits(96):024x}{number:08x}"
    return corpus


def _campaign(random: Random, number: int) -> Campaign:
    return Campaign(
        id=number,
        cpm_cents=random.randint(50, 500),
        advertiser=f"brand{number % 500}.example",
        category=random.choice(pools.AD_CATEGORIES),
        segments=tuple(sorted(set(SEGMENTS.draw_several(random, 8)))),
        countries=tuple(sorted(set(COUNTRIES.draw_several(random, 3)))),
        devices=random.choice(DEVICE_LISTS),
        sizes=tuple(sorted(random.sample(SOLD, random.randint(1, len(SOLD))))),
    )


def _limit(number: int, country: str, *, budget_micros: int, cap: int) -> Campaign:
    """Make a campaign at 5 USD CPM for users with segment 1, in a country that no other targets."""
    return Campaign(
        id=number,
        cpm_cents=500,
        advertiser=f"brand{number}.example",
        category="IAB1-1",
        segments=(1,),
        countries=(country,),
        devices=(),
        sizes=SOLD,
        budget_micros=budget_micros,
        cap=cap,
    )


def _request(random: Random, request: Request, users: Mapping[str, Sequence[int]]) -> Request:
    """Adapt a generated request to the targeting of the corpus' campaigns."""
    unsold = random.random() < UNSOLD_SHARE
    country = UNSOLD_COUNTRY if unsold else COUNTRIES.draw(random)
    user = random.choice(list(users))
    _turn_to(random, request, country, user, users[user])
    request["imp"] = [_imp(random, imp) for imp in request["imp"]]
    if random.random() < BLOCKED_SHARE:
        blocked = [f"brand{number}.example" for number in random.sample(range(500), 100)]
        request["badv"] = request.get("badv", []) + blocked
    return request


def _plain_request(
    random: Random, country: str, user: str, users: Mapping[str, Sequence[int]]
) -> Request:
    """Make a request with one impression, without a floor or blocks."""
    (request,) = traffic.generate(1, random.getrandbits(32))
    _turn_to(random, request, country, user, users[user])
    if request.pop("dooh", None):
        request["site"] = {"domain": "news.example"}
    request["imp"] = [{"id": "1", "banner": {"w": 300, "h": 250}}]
    for name in ("bcat", "badv"):
        request.pop(name, None)
    return request


def _turn_to(
    random: Random, request: Request, country: str, user: str, segments: Sequence[int]
) -> None:
    for name in ("regs", "wseat", "bapp", "test"):
        request.pop(name, None)
    request |= {"cur": ["USD"], "tmax": TMAX_MS}
    request["device"] |= {"ifa": f"{random.getrandbits(128):032x}", "lmt": 0}
    request["device"]["geo"] = {"type": 2, "country": country}
    stated = [{"id": str(segment)} for segment in segments]
    request["user"] |= {"id": user, "data": [{"id": "dmp", "segment": stated}]}
    request["user"].pop("consent", None)


def _imp(random: Random, imp: Request) -> Request:
    """Reduce an impression to a banner, with its own floor or one that is too high."""
    w, h = SIZES.draw(random)
    own: Request = {name: imp[name] for name in KEPT if name in imp}
    banner = {"w": w, "h": h, "format": [{"w": w, "h": h}], "pos": 1, "api": [3, 5]}
    floor = 9.5 if random.random() < HIGH_FLOORS else imp.get("bidfloor", 0)
    return {**own, "banner": banner, "bidfloor": floor, "bidfloorcur": "USD"}


def write(directory: Path, corpus: Corpus) -> None:
    """Write all campaigns, with their budgets and caps, and all requests as JSON Lines."""
    directory.mkdir(parents=True, exist_ok=True)
    lines: dict[str, Iterable[Any]] = {
        "campaigns.jsonl": map(msgspec.to_builtins, corpus.limited),
        "requests.jsonl": corpus.all_requests(),
    }
    for name, documents in lines.items():
        text = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in documents)
        (directory / name).write_text(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m bench.market.corpus", description=__doc__)
    parser.add_argument("directory", type=Path)
    write(parser.parse_args().directory, make())
