"""The fuzz targets: each decoder, the errors that it documents, and the first inputs.

Any other exception is a failure, as is a crash.
"""

import contextlib
import functools
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from io import BytesIO
from typing import Final, NamedTuple

from snapbid.errors import BadDate, BadRequest, BadWindow, InvalidToken, MissingToken, TooLarge
from snapbid.events.outcomes import Product
from snapbid.events.validate import read_batch, read_single
from snapbid.exchange.bid import Market, search
from snapbid.exchange.notice import loss_reason, query
from snapbid.exchange.request import decode
from snapbid.http import inflate
from snapbid.match.campaign import CampaignError
from snapbid.match.campaign_file import read_file
from snapbid.match.catalog import Catalog, CatalogError
from snapbid.report import tokens, window
from snapbid.settings import SettingsError, load
from support import everything
from support.market import RATES, Geo, market_of
from support.sending import NOW, event, money

KEY: Final = b"a key that only the fuzzing ever uses"
CASINO: Final = Product("casino", frozenset({"igaming"}))
LIMIT: Final = 262_144
EVENT: Final = event("deposit", transaction_id="t", user_agent="x", **money(1))


class Target(NamedTuple):
    """A decoder, the errors that it may raise, and the inputs that fuzzing starts with."""

    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]

    def __call__(self, data: bytes) -> None:
        with contextlib.suppress(*self.refusals):
            self.read(data)


@functools.cache
def _market() -> Market:
    return market_of(everything.campaigns(), {"acme": "acme"}, RATES, Geo())


def _bid(data: bytes) -> object:
    return search(decode(data), "acme", _market(), NOW)


def _single(data: bytes) -> object:
    return read_single(data, CASINO, NOW, test=True)


def _batch(data: bytes) -> object:
    return read_batch(data, CASINO, NOW, lenient=True)


def _token(data: bytes) -> object:
    return tokens.check(tokens.bearer([b"Bearer " + data]), KEY, "snapbid", datetime.now(UTC))


def _settings(data: bytes) -> object:
    lines = data.decode(errors="replace").split("\n")
    pairs = (line.partition("=") for line in lines)
    return load({f"SNAPBID_{name}": value for name, _, value in pairs})


def _json(document: object) -> bytes:
    return json.dumps(document).encode()


TARGETS: Final = {
    "bid": Target(
        _bid, (BadRequest,), (_json(everything.REQUEST), b'{"id":"a","imp":[{"id":"1"}]}')
    ),
    "event": Target(_single, (), (_json(EVENT),)),
    "batch": Target(_batch, (), (_json([EVENT, event("login")]),)),
    "campaign": Target(
        lambda data: list(read_file("x.json", BytesIO(data))),
        (CampaignError,),
        (_json(list(everything.campaigns())[:3]),),
    ),
    "catalog": Target(Catalog, (CatalogError,), (b"SNAPCAT5" + bytes(64),)),
    "token": Target(
        _token, (InvalidToken, MissingToken), (tokens.issue("acme", KEY, "snapbid").encode(),)
    ),
    "notice": Target(
        lambda data: loss_reason(query(data).get(b"nbr", b"")), (), (b"id=a%20b&impId=1&nbr=102",)
    ),
    "window": Target(
        lambda data: window.parse(data, date(2026, 3, 4)),
        (BadDate, BadWindow),
        (b"from=2026-03-01&to=2026-03-04",),
    ),
    "gzip": Target(
        lambda data: inflate(data, LIMIT),
        (BadRequest, TooLarge),
        (bytes.fromhex("1f8b08000000000002ff4b040043beb7e801000000"),),
    ),
    "settings": Target(_settings, (SettingsError,), (b"PORT=8000\nHOST=::1\nWORKERS=2",)),
}
