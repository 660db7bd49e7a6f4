"""The options of a run, checked: raw strings in, values out; and what is refused (contract 9).

A load test is aimed at something. It says at what, ends by itself, stays below a rate, and leaves
other people's machines alone unless told that they are one's own.
"""

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct

from snapbid.load.notices import Delay, Habits
from snapbid.load.objectives import Objective
from snapbid.load.plan import MAX_TRIALS

MAX_RATE: Final = 50_000.0  # requests a second
MAX_RUN_S: Final = 4 * 3600.0
MAX_CONNECTIONS: Final = 4096
_DURATION: Final = re.compile(r"([0-9]*\.?[0-9]+)(ms|s|m|h)?", re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SSP: Final = re.compile(r"([A-Za-z0-9._~-]+)(?:/([A-Za-z0-9._~-]+))?(?:=([0-9.]+))?", re.ASCII)


class OptionError(ValueError):
    """An option that is refused; the message names it and the rule."""


class Target(NamedTuple):
    """Where the load goes, over plain HTTP (document 2)."""

    url: str
    host: str
    port: int
    loopback: bool

    @property
    def authority(self) -> str:
        """As a Host header names it."""
        return self.url.removeprefix("http://")


class EventLoad(NamedTuple):
    """Event batches: how many a second, of how many events, with which key."""

    rate: float
    size: int
    key: str


class Options(Struct, frozen=True, kw_only=True):
    """A whole run, as it will be done; times in seconds, rates in requests a second."""

    target: Target
    ssps: dict[str, float]  # weights
    canonical: dict[str, str]  # of every descriptor
    rates: list[float]  # the steps, or where the search begins
    find_capacity: bool
    max_rate: float
    duration_s: float  # of each step or trial
    warmup_s: float
    ramp_s: float
    even: bool
    connections: int
    timeout_s: float
    objectives: list[Objective]
    replay: Path | None
    requests: int  # different ones that are generated
    habits: Habits
    events: EventLoad | None
    tokens: dict[str, str] | None  # by canonical id; None: no reconciliation
    seed: int


def target(text: str) -> Target:
    """An address like `http://127.0.0.1:8000`."""
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port
    except ValueError:
        host, port = None, None
    if url.scheme != "http" or not host or url.path.strip("/") or url.query or url.username:
        raise OptionError(
            f"TARGET must be http://HOST:PORT, without a path (found {text!r}); the bid endpoint "
            "is served over plain HTTP"
        )
    port = port or 80
    shown = f"[{host}]" if ":" in host else host
    return Target(f"http://{shown}:{port}", host, port, _is_loopback(host))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def duration(name: str, text: str, *, least: float = 0.0, most: float = MAX_RUN_S) -> float:
    """Seconds; `500ms`, `10s`, `2m`, `1h`, or bare seconds."""
    found = _DURATION.fullmatch(text)
    if not found:
        raise OptionError(f"{name} must be a time that ends, like 500ms, 30s or 5m, found {text!r}")
    seconds = float(found[1]) * _SECONDS[found[2] or "s"]
    if not least <= seconds <= most:
        raise OptionError(f"{name} must be from {least:g} to {most:g} seconds, found {text}")
    return seconds


def delay(name: str, text: str) -> Delay:
    """A time, or two with a dash between them: `50ms`, `200ms-2s`."""
    least, dash, most = text.partition("-")
    bounds = [duration(name, part, most=600) for part in ((least, most) if dash else (text, text))]
    if bounds[0] > bounds[1]:
        raise OptionError(f"{name} must not run backwards, found {text!r}")
    return Delay(*bounds)


def ssps(texts: tuple[str, ...]) -> tuple[dict[str, float], dict[str, str]]:
    """Of `ID`, `ID=WEIGHT` and `ID/CANONICAL=WEIGHT` the weights, and the canonical ids."""
    weights: dict[str, float] = {}
    canonical: dict[str, str] = {}
    for text in texts:
        found = _SSP.fullmatch(text)
        try:
            weight = float(found[3] or 1) if found else 0.0
        except ValueError:
            weight = 0.0
        if found is None or not 0 < weight < 1e9:
            raise OptionError(
                f"--ssp must be ID, ID=WEIGHT or ID/CANONICAL=WEIGHT with a weight above 0, "
                f"found {text!r}"
            )
        weights[found[1]] = weight
        if found[2]:
            canonical[found[1]] = found[2]
    return weights, canonical


def rates(text: str) -> list[float]:
    """Rates with commas between them."""
    try:
        found = [float(one) for one in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < one <= MAX_RATE for one in found):
        raise OptionError(
            f"--steps must be rates above 0 and at most {MAX_RATE:g}, like 500,1000,2000, "
            f"found {text!r}"
        )
    return found


def refuse_misuse(options: Options, owned: bool) -> None:
    """Raises OptionError for what would hurt somebody (contract 9)."""
    aim = options.target
    if not aim.loopback and not owned:
        raise OptionError(
            f"{aim.url} is not this machine: say --i-own-this-target if it is yours to load"
        )
    if options.find_capacity and len(options.rates) > 1:
        raise OptionError("--find-capacity and --steps exclude each other")
    trials = MAX_TRIALS if options.find_capacity else len(options.rates)
    longest = options.warmup_s + options.ramp_s + trials * options.duration_s
    if longest > MAX_RUN_S:
        raise OptionError(f"the run could take {longest:.0f} s: at most {MAX_RUN_S:.0f} s")
    if max(options.rates) * options.duration_s < 1:
        raise OptionError("not one request would be sent: raise --rate or --duration")
