"""The fuzz targets: each decoder, the errors that it documents, and the first inputs.

Any other exception is a failure, as is a crash.
"""

import functools
import json
import random
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from io import BytesIO
from typing import Any, Final, NamedTuple

from snapbid.auctionlog._rows import RowWriter
from snapbid.base.errors import BadDate, BadRequest, BadWindow, InvalidToken, MissingToken, TooLarge
from snapbid.base.http import ZSTD, inflate
from snapbid.base.settings import SettingsError, load
from snapbid.bidding import privacy
from snapbid.bidding._bid_path import NoBid, Proposal, propose
from snapbid.bidding._query import first_values
from snapbid.bidding.limits import ledger_bids
from snapbid.bidding.native_request import read_native
from snapbid.bidding.notice import PARAMETERS, loss_reason
from snapbid.bidding.request import BidRequest, decode
from snapbid.bidding.response import response_writer
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.campaigns.campaign import CampaignError
from snapbid.campaigns.campaign_file import read_file
from snapbid.campaigns.vast import VastError
from snapbid.campaigns.vast import read as read_vast
from snapbid.catalog.catalog import Catalog, CatalogError, Head, encode
from snapbid.events.catalog import EVENTS
from snapbid.events.outcomes import Product
from snapbid.events.validate import read_single
from snapbid.ledger.bids._records import AnswerBids, bid_digest
from snapbid.ledger.bids._records import count as count_bids
from snapbid.ledger.bids.records import LOSS, BidVerdict, kept_entries
from snapbid.redisclient._wire import pack_command
from snapbid.reference import agents
from snapbid.report import tokens, window
from support import broken, consent, corpus, everything, pools
from support.choices import Choices
from support.event_cases import whole
from support.event_reading import read_batch
from support.random_requests import request_of
from support.sending import NOW, event, money
from support.snapshot import RATES, Geo, builder_of, numbered, snapshot_of
from support.strategies import random_world
from support.vast import inline, wrapper

KEY: Final = b"a key that only the fuzzing ever uses"
CASINO: Final = Product("casino", frozenset({"igaming"}))
LIMIT: Final = 262_144
SEGMENT: Final = 32_768  # bytes of the auction log
NOT_AWAITED: Final[Any] = None
RANDOM_CAMPAIGNS: Final = 300
SSP: Final = next(iter(pools.REGISTRY))
EVENT: Final = event("deposit", transaction_id="t", user_agent="x", **money(1))


class Target(NamedTuple):
    """A decoder, the errors that it may raise, and the inputs that fuzzing starts with.

    `more` makes inputs for those who want many of them.
    """

    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]
    more: Callable[[], Iterable[bytes]] = tuple

    def __call__(self, data: bytes) -> bool:
        """Read an input; return whether it was accepted."""
        try:
            self.read(data)
        except self.refusals:
            return False
        return True


@functools.cache
def _snapshot() -> CatalogSnapshot:
    agents.load()  # as a worker does: 13 MB of expressions
    made = random_world(1, RANDOM_CAMPAIGNS).campaigns
    campaigns = [*everything.campaigns(), *made]
    return snapshot_of(campaigns, pools.REGISTRY, RATES, Geo(), consent.VENDOR)


_WRITER: Final = response_writer("https://bid.example")


def _bid(data: bytes) -> object:
    """All of the bid path, from the body to the answer."""
    request = decode(data)
    proposal = propose(request, SSP, _snapshot(), NOW)
    if isinstance(proposal, NoBid):
        return proposal.reason
    currency = proposal.decision.lookups.currency
    _remember(request, proposal, currency)
    return _WRITER.write(proposal.auction_id, proposal.bids, currency)


def _remember(request: BidRequest, proposal: Proposal, currency: str) -> None:
    """Write what the ledger and the auction log keep of an answer."""
    auction, bids = proposal.auction_id.encode(), ledger_bids(proposal.bids)
    now, user = (NOW // 1000, NOW % 1000), proposal.decision.user
    answer = AnswerBids(auction, 1, bids, user, now, 1, False, NOT_AWAITED, 1.0)
    for _, names, increments in count_bids([answer]):
        pack_command(("EVAL", answer.entries, *names, *increments))
    kept_entries(answer, BidVerdict.KEPT * len(bids))
    source = SSP, pools.REGISTRY[SSP]
    _log().bids(NOW, source, request, proposal.bids, currency)


@functools.cache
def _log() -> RowWriter:
    """Rows in small segments, each of which makes room for the next."""
    rows = RowWriter(lambda: rows.offer(bytearray(SEGMENT)))
    rows.offer(bytearray(SEGMENT))
    return rows


def _notice(data: bytes) -> None:
    auction_id, imp_id, reason = first_values(data, PARAMETERS)
    bid_digest(auction_id, imp_id)
    _log().notice(NOW, LOSS, "k", loss_reason(reason) or 0, auction_id, imp_id)


def _requests() -> Iterable[bytes]:
    rng = random.Random(1)
    made = [request_of(Choices(rng.randint)) for _ in range(3_000)]
    made += corpus.Maker(1).requests(1_000)
    yield from map(_json, made)
    for request in made[:100]:
        for _, body in broken.of_values(request, rng, 10):
            yield body[:10_000]


def _campaigns() -> Iterable[bytes]:
    for seed in range(100):
        yield _json(random_world(seed, 3).campaigns)


def _catalogs() -> Iterable[bytes]:
    for seed in range(20):
        index = builder_of(random_world(seed, 3).campaigns).build()
        yield b"".join(encode(Head(numbered(pools.REGISTRY), RATES), index))


def _native(data: bytes) -> object:
    return read_native(data.decode(errors="replace"), None, 0)


def _native_requests() -> Iterable[bytes]:
    rng = random.Random(2)
    for _ in range(5_000):
        for imp in request_of(Choices(rng.randint))["imp"]:
            if isinstance(imp.get("native"), dict):
                asked = imp["native"].get("request")
                yield asked.encode() if isinstance(asked, str) else _json(asked)


def _consent(data: bytes) -> object:
    """One string as each kind of signal."""
    text = data.decode(errors="replace")
    signals = privacy.PrivacySignals(
        coppa=False,
        gpc=False,
        gdpr=True,
        consents=[text],
        us_privacy={text},
        gpp={text},
        gpp_sid={2, 5, 7, 8},
    )
    return list(privacy.objections(signals, consent.VENDOR))


def _consent_strings() -> Iterable[bytes]:
    for texts in (consent.TCF, consent.US_PRIVACY, consent.GPP):
        yield from (text.encode() for text in texts)


def _events() -> Iterable[bytes]:
    return (_json(whole(each)) for each in EVENTS.values())


def _batches() -> Iterable[bytes]:
    each = [whole(each) for each in EVENTS.values()]
    return (_json(each[at : at + 3]) for at in range(len(each)))


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
        _bid,
        (BadRequest,),
        (_json(everything.REQUEST), b'{"id":"a","imp":[{"id":"1"}]}'),
        _requests,
    ),
    "native": Target(
        _native, (), (b'{"native":{"ver":"1.2","assets":[{"id":1}]}}',), _native_requests
    ),
    "consent": Target(_consent, (), (b"1YNN", b"DBABMA~1YNN"), _consent_strings),
    "event": Target(_single, (), (_json(EVENT),), _events),
    "batch": Target(_batch, (), (_json([EVENT, event("login")]),), _batches),
    "campaign": Target(
        lambda data: list(read_file("x.json", BytesIO(data))),
        (CampaignError,),
        (_json(list(everything.campaigns())[:3]),),
        _campaigns,
    ),
    "vast": Target(
        lambda data: read_vast(data.decode(errors="surrogateescape")),
        (VastError,),
        (inline("4.2", "<MediaFile/>").encode(), wrapper("3.0").encode()),
    ),
    "catalog": Target(Catalog, (CatalogError,), (b"SNAPCAT5" + bytes(64),), _catalogs),
    "token": Target(
        _token, (InvalidToken, MissingToken), (tokens.issue("acme", KEY, "snapbid").encode(),)
    ),
    "notice": Target(_notice, (), (b"id=a%20b&impId=1&nbr=102",)),
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
    "zstd": Target(
        lambda data: inflate(data, LIMIT, ZSTD),
        (BadRequest, TooLarge),
        (bytes.fromhex("28b52ffd200109000061"),),
    ),
    "settings": Target(_settings, (SettingsError,), (b"PORT=8000\nHOST=::1\nWORKERS=2",)),
}
