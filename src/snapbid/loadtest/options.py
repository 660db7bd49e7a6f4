"""Parses and validates the options of a run (contract 9).

A load test names its target, ends by itself, stays below a maximum rate, and refuses to load
another machine unless the operator states that they own it.
"""

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from snapbid.loadtest.auctions import BID_PATH
from snapbid.loadtest.notice_sender import Delay, NoticeHabits
from snapbid.loadtest.objectives import Objective
from snapbid.loadtest.plan import MAX_TRIALS, Phase

MAX_RATE: Final = 50_000.0  # requests a second
MAX_RUN_S: Final = 4 * 3600.0
MAX_CONNECTIONS: Final = 4096
MAX_GENERATORS: Final = 64
_DURATION: Final = re.compile(r"([0-9]*\.?[0-9]+)(ms|s|m|h)?", re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PATH: Final = re.compile(r"/[!-~]*", re.ASCII)
_SSP: Final = re.compile(r"([A-Za-z0-9._~-]+)(?:/([A-Za-z0-9._~-]+))?(?:=([0-9.]+))?", re.ASCII)


class OptionError(ValueError):
    """An invalid option; the message names the option and the mistake."""


class Target(NamedTuple):
    """The address of the server under test; plain HTTP only (document 2)."""

    url: str
    host: str
    port: int
    loopback: bool

    @property
    def authority(self) -> str:
        """The target as named in a Host header."""
        return self.url.removeprefix("http://")


class EventLoad(NamedTuple):
    """Event batches per second, events per batch, and the API key."""

    rate: float
    size: int
    key: str


class Mix(NamedTuple):
    """The bid requests to send: SSPs with weights, and the recording to replay, if any."""

    ssps: dict[str, float]  # weights
    replay: Path | None  # a recording or a directory of requests, in place of generated ones


class Options(Struct, frozen=True, kw_only=True):
    """All options of a run; times are in seconds, rates in requests per second."""

    target: Target
    path: str  # of the bid endpoint, with `{ssp}`
    canonical: dict[str, str]  # canonical id by descriptor
    rates: list[float]  # the steps, or the start of the search
    find_capacity: bool
    max_rate: float
    duration_s: float  # of each step or trial
    warmup_s: float
    ramp_s: float
    even: bool
    connections: int
    timeout_s: float
    objectives: list[Objective]
    abort_on: list[Objective]
    phases: list[Phase]  # of a scenario; empty: from the rates
    mixes: list[Mix]  # by their number in the phases
    requests: int  # number of distinct ones to generate
    habits: NoticeHabits
    events: EventLoad | None
    tokens: dict[str, str] | None  # by canonical id; None means no reconciliation
    seed: int
    generators: int = 1
    listen: tuple[str, int] = ("", 0)  # where the other generators join

    def share(self, number: int, generators: int) -> "Options":
        """Return the options of one of several generators, with its own seed and share of events.

        Only the first generator reads the report.
        """
        events = self.events
        if events is not None:
            events = events._replace(rate=events.rate / generators)
        return replace(self, tokens=None, seed=self.seed + number, events=events)

    @property
    def ours(self) -> bool:
        """Whether documents 1 to 3 apply to the target, judging by its bid path."""
        return self.path == BID_PATH


def target(text: str) -> Target:
    """Parse an address like `http://127.0.0.1:8000`."""
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


def listener(name: str, text: str) -> tuple[str, int]:
    """Parse HOST:PORT, the address at which other generators join."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise OptionError(f"{name} must be HOST:PORT, like 10.0.0.5:9700, found {text!r}")
    return host.strip("[]"), int(port)


def bid_path(text: str | None) -> str:
    """Validate the path of a bid endpoint; None means the path of document 2."""
    if text is None:
        return BID_PATH
    if not _PATH.fullmatch(text):
        raise OptionError(f"--target-path must be a path like /openrtb/bid, found {text!r}")
    return text


def duration(name: str, text: str, *, least: float = 0.0, most: float = MAX_RUN_S) -> float:
    """Parse `500ms`, `10s`, `2m`, `1h` or bare seconds into seconds."""
    match = _DURATION.fullmatch(text)
    if not match:
        raise OptionError(f"{name} must be a duration, such as 500ms, 30s or 5m, found {text!r}")
    seconds = float(match[1]) * _SECONDS[match[2] or "s"]
    if not least <= seconds <= most:
        raise OptionError(f"{name} must be from {least:g} to {most:g} seconds, found {text}")
    return seconds


def delay(name: str, text: str) -> Delay:
    """Parse a time or a range: `50ms`, `200ms-2s`."""
    least, dash, most = text.partition("-")
    bounds = [duration(name, part, most=600) for part in ((least, most) if dash else (text, text))]
    if bounds[0] > bounds[1]:
        raise OptionError(f"{name} must be an ascending range, like 200ms-2s, found {text!r}")
    return Delay(*bounds)


def ssps(texts: tuple[str, ...]) -> tuple[dict[str, float], dict[str, str]]:
    """Parse `ID[/CANONICAL][=WEIGHT]` into weights and canonical ids, both by descriptor."""
    weights: dict[str, float] = {}
    canonical: dict[str, str] = {}
    for text in texts:
        match = _SSP.fullmatch(text)
        try:
            weight = float(match[3] or 1) if match else 0.0
        except ValueError:
            weight = 0.0
        if match is None or not 0 < weight < 1e9:
            raise OptionError(
                f"--ssp must be ID, ID=WEIGHT or ID/CANONICAL=WEIGHT with a weight above 0, "
                f"found {text!r}"
            )
        weights[match[1]] = weight
        if match[2]:
            canonical[match[1]] = match[2]
    return weights, canonical


def rates(text: str) -> list[float]:
    """Parse rates separated by commas."""
    try:
        steps = [float(rate) for rate in text.split(",")]
    except ValueError:
        steps = []
    if not steps or not all(0 < rate <= MAX_RATE for rate in steps):
        raise OptionError(
            f"--steps must list rates above 0 and up to {MAX_RATE:g}, such as 500,1000,2000 "
            f"(found {text!r})"
        )
    return steps


def refuse_misuse(options: Options, owned: bool) -> None:
    """Raise OptionError for runs that could do harm or would measure nothing (contract 9)."""
    address = options.target
    if not address.loopback and not owned:
        raise OptionError(
            f"{address.url} is not this machine: pass --i-own-this-target if it is yours"
        )
    if options.find_capacity and len(options.rates) > 1:
        raise OptionError("--find-capacity and --steps cannot be combined")
    if options.find_capacity and options.abort_on:
        raise OptionError("--find-capacity and --abort-on cannot be combined")
    trials = MAX_TRIALS if options.find_capacity else len(options.rates)
    longest = options.warmup_s + options.ramp_s + trials * options.duration_s
    if options.phases:
        if options.find_capacity or len(options.rates) > 1:
            raise OptionError("--scenario sets the phases: omit --find-capacity and --steps")
        longest = sum(phase.seconds for phase in options.phases)
    if longest > MAX_RUN_S:
        raise OptionError(
            f"the run could take {longest:.0f} s, over the limit of {MAX_RUN_S:.0f} s: shorten it"
        )
    if max(options.rates) * options.duration_s < 1:
        raise OptionError("no request would be sent: raise --rate or --duration")
