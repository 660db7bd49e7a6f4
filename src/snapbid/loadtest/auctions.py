"""Bid requests ready to send: the bytes around the auction id, and the rules for an answer.

Each request is sent many times, each time with a new id, since the bidder's ledger would count two
bids with the same id as one.
"""

import json
import re
import secrets
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from snapbid.base.errors import BadRequest
from snapbid.bidding.request import decode
from snapbid.loadtest.check import RequestLimits, request_limits
from snapbid.reference.rates import Rates

MAX_LINE: Final = 1 << 20
MAX_REQUESTS: Final = 200_000
ID_LENGTH: Final = 18
DEFAULT_SSP: Final = "acme"  # in the demo data
SSP: Final = "{ssp}"
BID_PATH: Final = f"/api/v1/openrtb2/{SSP}/bid"
SSP_FORM: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}", re.ASCII)


class ReplayError(ValueError):
    """A recording cannot be replayed; the message says why, and names the line if possible."""


class Auction(NamedTuple):
    """A bid request, split around its id; `counts`: whether the report counts it (contract 4)."""

    before: bytes
    after: bytes
    ssp: str
    limits: RequestLimits
    counts: bool


class AuctionSource:
    """Cycles through the auctions; each request gets an id that is unique across runs."""

    def __init__(self, auctions: Sequence[Auction]) -> None:
        self._auctions = auctions
        self._run = secrets.token_hex(4)
        self._number = 0

    def next(self) -> tuple[Auction, str]:
        number = self._number
        self._number = number + 1
        return self._auctions[number % len(self._auctions)], f"{self._run}-{number:09x}"


def prepare(
    requests: Iterable[tuple[str | None, dict[str, Any]]],
    ssps: dict[str, float],
    host: str,
    rates: Rates,
    seed: int,
    path: str = BID_PATH,
) -> list[Auction]:
    """Build auctions from requests, drawing each request's SSP by the weights in `ssps`.

    Without weights a request keeps its recorded SSP, or gets `DEFAULT_SSP`. The SSP replaces
    `{ssp}` in the path. Raises ReplayError for a request that does not decode.
    """
    random = Random(seed)
    names, cumulative = list(ssps), list(accumulate(ssps.values()))
    auctions = []
    for number, (ssp, request) in enumerate(requests, 1):
        name = random.choices(names, cum_weights=cumulative)[0] if names else ssp or DEFAULT_SSP
        target = f"{path.replace(SSP, name)} HTTP/1.1\r\nHost: {host}"
        auctions.append(_auction(request, name, target, rates, number))
    return auctions


def _auction(request: dict[str, Any], ssp: str, target: str, rates: Rates, number: int) -> Auction:
    rest = {name: value for name, value in request.items() if name != "id"}
    after = b'",' + json.dumps(rest, separators=(",", ":")).encode()[1:]
    try:
        decoded = decode(b'{"id":"' + b"x" * ID_LENGTH + after)
    except BadRequest as problem:
        raise ReplayError(f"request {number}: {problem.detail}") from None
    length = len(after) + len(b'{"id":"') + ID_LENGTH
    head = (
        f"POST {target}\r\n"
        "Content-Type: application/json\r\nX-Openrtb-Version: 2.6\r\n"
        f'Content-Length: {length}\r\n\r\n{{"id":"'
    )
    return Auction(head.encode(), after, ssp, request_limits(decoded, rates), decoded.test != 1)


def read_recording(path: Path) -> list[tuple[str | None, dict[str, Any]]]:
    """Read (SSP id, bid request) pairs from a JSON Lines file; bare bid requests have no SSP.

    Raises ReplayError.
    """
    requests: list[tuple[str | None, dict[str, Any]]] = []
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(iter(lambda: lines.readline(MAX_LINE + 1), b""), 1):
                if line.strip():
                    requests.append(_read_line(line, number))
                if len(requests) > MAX_REQUESTS:
                    raise ReplayError(f"more than {MAX_REQUESTS} requests: shorten the file")
    except OSError as error:
        raise ReplayError(f"{path} cannot be read: {error.strerror}") from error
    if not requests:
        raise ReplayError(f"{path} contains no requests")
    return requests


def read_corpus(directory: Path) -> list[tuple[str | None, dict[str, Any]]]:
    """Read a directory with one bid request per `.json` file. Raises ReplayError."""
    requests = [_read_request(file) for file in sorted(directory.glob("*.json"))]
    if not 0 < len(requests) <= MAX_REQUESTS:
        raise ReplayError(f"{directory} must contain 1 to {MAX_REQUESTS} .json files")
    return requests


def _read_request(file: Path) -> tuple[str | None, dict[str, Any]]:
    try:
        return _read_line(file.read_bytes(), 1)
    except OSError as error:
        raise ReplayError(f"{file} cannot be read: {error.strerror}") from error
    except ReplayError as problem:
        raise ReplayError(f"{file}: {str(problem).removeprefix('line 1: ')}") from None


def _read_line(line: bytes, number: int) -> tuple[str | None, dict[str, Any]]:
    if len(line) > MAX_LINE:
        raise ReplayError(f"line {number}: longer than {MAX_LINE} bytes")
    try:
        document = json.loads(line)
    except ValueError as error:
        raise ReplayError(f"line {number}: not JSON: {error}") from None
    ssp = None
    if isinstance(document, dict) and "request" in document:
        ssp, document = document.get("ssp"), document["request"]
        if not isinstance(ssp, str) or not SSP_FORM.fullmatch(ssp):
            raise ReplayError(f"line {number}: ssp must be an SSP id")
    if not isinstance(document, dict) or not document.get("imp"):
        raise ReplayError(f"line {number}: not a bid request: imp is required")
    return ssp, document
