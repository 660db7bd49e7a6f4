"""What reading and searching a request takes the matcher, in steps that do not depend on a machine.

A step is a basic block of the extensions' machine code. They are built with the compiler's own
tracing (`build`), and run in a process of their own (`counted`), where `steps.c` counts.
"""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from support.preload import compile_library

ROOT: Final = Path(__file__).parents[2]
TRACED: Final = "-fsanitize-coverage=trace-pc -O0"
SIZES: Final = (1, 2, 4, 8)
BANNER: Final[dict[str, Any]] = {"banner": {"w": 300, "h": 250}}
SEATS: Final = 50
CAMPAIGNS: Final = 1_500

Request = dict[str, Any]


def build(folder: Path) -> dict[str, str] | None:
    """Build the extensions and the counter; what the environment needs, or None without a compiler
    that traces.
    """
    counter = compile_library(Path(__file__).with_suffix(".c"), folder)
    if counter is None:
        return None
    bases = ("--build-base", str(folder / "base"), "--build-lib", str(folder / "lib"))
    command = [sys.executable, "setup.py", "--quiet", "build", *bases]
    made = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "CFLAGS": TRACED}, capture_output=True, check=False
    )
    if made.returncode:
        return None
    path = os.pathsep.join(map(str, (folder / "lib", ROOT / "tests", ROOT)))
    return {"LD_PRELOAD": str(counter), "PYTHONPATH": path}


def counted(environ: dict[str, str]) -> dict[str, list[int]]:
    """The steps of each scenario at each of the sizes."""
    command = [sys.executable, "-m", "support.steps"]
    run = subprocess.run(
        command, env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    counts: dict[str, list[int]] = json.loads(run.stdout)
    return counts


def campaigns(count: int) -> list[Request]:
    """Campaigns for which every list of a request must be searched; none can answer."""
    return [
        {
            "id": f"{number:06}",
            "advertiser": f"a{number % 90}.brand.example",
            "cpm": 2 + number % 7,
            "seat": f"seat-{number % SEATS}",
            "bundle": f"bundle-{number % 40}",
            "categories": [f"IAB{number % 20 + 1}-1", "IAB26"],
            "targeting": targeting(number),
            "creatives": creatives(number),
        }
        for number in range(count)
    ]


def targeting(number: int) -> Request:
    """Every kind of value that a request may carry many of."""
    if number % 3 == 0:
        return {"deal": {"include": [f"deal-{number % 30}", f"deal-{number % 700}"]}}
    return {
        "segment": {"exclude": [f"segment-{number % 900}", f"segment-{number % 20}"]},
        "category": {"exclude": [f"IAB{number % 400}-9"]},
        "domain": {"exclude": [f"b{number % 300}.example"]},
        "city": {"exclude": [f"city {number % 100}"]},
        "language": {"exclude": ["fr"]},
    }


def creatives(number: int) -> list[Request]:
    """A banner and a video."""
    banner = {"id": "b", "media": "banner", "adm": "-", "w": 300, "h": 250}
    video = {"id": "v", "media": "video", "adm": "-", "mimes": ["video/mp4"], "duration": 15}
    return [{**banner, "attributes": [number % 17 + 1]}, video]


def imp(**more: Any) -> Request:
    return {"imp": [{"id": "1", **BANNER, **more}]}


def known(prefix: str, count: int, of: int) -> list[str]:
    """Texts, of which every other one is in the index."""
    return [f"{prefix}{n // 2 % of}" if n % 2 else f"unknown-{n}" for n in range(count)]


def deals(count: int, **more: Any) -> Request:
    return imp(pmp={"deals": [{"id": f"deal-{n}", **more} for n in range(count)]})


def durfloors(count: int) -> list[Request]:
    return [{"mindur": m % 40, "bidfloor": 0.5 + m % 7} for m in range(count)]


LISTS: Final[dict[str, Callable[[int], Request]]] = {
    "bcat": lambda n: {"bcat": known("IAB", n * 500, 26)},
    "bcat of numbers": lambda n: {"bcat": [*range(n * 500)]},
    "badv": lambda n: {"badv": known("a", n * 500, 90)},
    "bcat of an impression": lambda n: imp(bcat=known("IAB", n * 500, 26)),
    "badv of an impression": lambda n: imp(badv=known("a", n * 500, 90)),
    "bapp that ends in dots": lambda n: {"bapp": [f"{each}." for each in known("b", n * 500, 40)]},
    "bapp": lambda n: {"bapp": known("bundle-", n * 500, 40)},
    "bapp of addresses": lambda n: {
        "bapp": [f"a/{each}" for each in known("bundle-", n * 500, 40)]
    },
    "bseat": lambda n: {"bseat": known("seat-", n * 500, SEATS)},
    "wseat": lambda n: {"wseat": ["seat-1", *(f"unknown {m}" for m in range(n * 500))]},
    "a deal's wseat": lambda n: deals(1, wseat=[*known("seat-", n * 500, SEATS)]),
    "a deal's wadomain": lambda n: deals(1, wadomain=known("a", n * 500, 90)),
    "every deal's wadomain": lambda n: deals(20, wadomain=[f"x{m}" for m in range(n * 50)]),
    "deals": lambda n: deals(n * 100),
    "one deal again and again": lambda n: imp(pmp={"deals": [{"id": "deal-3"}] * (n * 100)}),
    "segments": lambda n: {
        "user": {"data": [{"segment": [{"id": f"segment-{m}"} for m in range(n * 100)]}]}
    },
    "data": lambda n: {
        "user": {"data": [{"segment": [{"id": f"segment-{m}"}]} for m in range(n * 100)]}
    },
    "cat": lambda n: {"site": {"cat": [f"IAB{m}-9" for m in range(n * 100)]}},
    "formats": lambda n: {
        "imp": [{"id": "1", "banner": {"format": [{"w": 9, "h": m + 1} for m in range(n * 12)]}}]
    },
    "battr": lambda n: imp(banner={"w": 300, "h": 250, "battr": [m + 40 for m in range(n * 500)]}),
    "mimes": lambda n: imp(video={"mimes": [f"video/{m}" for m in range(n * 500)]}),
    "protocols": lambda n: imp(video={"protocols": [*range(40, 40 + n * 500)]}),
    "rqddurs": lambda n: imp(video={"rqddurs": [*range(40, 40 + n * 500)]}),
    "delivery": lambda n: imp(video={"delivery": [*range(40, 40 + n * 500)]}),
    "impressions": lambda n: {"imp": [{"id": str(m), **BANNER} for m in range(n * 12)]},
    "labels of a domain": lambda n: {"site": {"domain": "a." * (n * 2_000) + "example"}},
    "durfloors": lambda n: imp(video={"durfloors": durfloors(n * 500)}),
    "a deal's durfloors": lambda n: deals(1, durfloors=durfloors(n * 500)),
    "every deal's durfloors": lambda n: deals(20, durfloors=durfloors(n * 50)),
    "a domain's length": lambda n: {"site": {"domain": "a" * (n * 2_000) + ".example"}},
    "a page's length": lambda n: {"site": {"page": "https://a.example/" + "a" * (n * 2_000)}},
    "a page that is percent-encoded": lambda n: {"site": {"page": "%25" * (n * 2_000)}},
    "a page of one host": lambda n: {"site": {"page": "a." * (n * 2_000)}},
    "a city's length": lambda n: {"device": {"geo": {"city": "a" * (n * 2_000)}}},
    "a city beyond ASCII": lambda n: {"device": {"geo": {"city": "\u0130" * (n * 2_000)}}},
    "a language's length": lambda n: {"device": {"language": "a" * (n * 2_000)}},
    "a language beyond ASCII": lambda n: {"device": {"language": "\u0130" * (n * 2_000)}},
    "a region's length": lambda n: {
        "device": {"geo": {"country": "USA", "region": "a" * (n * 2_000)}}
    },
    "a category's length": lambda n: {"site": {"cat": ["a" * (n * 2_000) + "-1"]}},
    "the id's length": lambda n: {"id": "a" * (n * 2_000)},
    "all of it": lambda n: {
        **imp(
            banner={"w": 300, "h": 250, "battr": [m + 40 for m in range(n * 100)]},
            pmp={"deals": [{"id": f"deal-{m}", "wadomain": ["x"] * 5} for m in range(n * 100)]},
        ),
        "bcat": known("unknown", n * 100, 26),
        "badv": known("a", n * 100, 90),
        "site": {"domain": "a." * (n * 25), "cat": [f"IAB{m}-9" for m in range(n * 100)]},
        "user": {"data": [{"segment": [{"id": f"segment-{m}"} for m in range(n * 100)]}]},
    },
}
"""Requests that are `n` times as long as the first of their kind."""


def main() -> None:
    from snapbid.bidding.request import decode
    from support.snapshot import RATES, Geo, snapshot_of

    counter = ctypes.CDLL(os.environ["LD_PRELOAD"]).snapbid_steps
    counter.restype = ctypes.c_uint64

    def steps(snapshot: Any, request: Request) -> int:
        body = {"id": "auction", **imp(), **request}
        decoded = decode(json.dumps(body).encode())
        index = snapshot.catalog.index
        before = after = 0
        for _ in range(2):  # first with workspaces that have to grow
            before = counter()
            query = index.query(snapshot.lookups, decoded, "acme", "acme", 0)
            for each in decoded.imp or ():
                if query.impression(each):
                    query.next()
            del query
            after = counter()
        return int(after - before)

    def snapshot(count: int) -> Any:
        return snapshot_of(campaigns(count), {"acme": "acme"}, RATES, Geo())

    standing = snapshot(CAMPAIGNS)
    counts = {name: [steps(standing, of(n)) for n in SIZES] for name, of in LISTS.items()}
    refused = {"bcat": ["IAB26"]}
    grown = [snapshot(CAMPAIGNS * n) for n in SIZES]
    counts["campaigns"] = [steps(each, refused) for each in grown]
    counts["campaigns that answer"] = [steps(each, {}) for each in grown]
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
