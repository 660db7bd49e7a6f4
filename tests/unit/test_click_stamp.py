"""Click ids in bids (contract 12): what the response writer signs is what the codec reads."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.snapshot import catalog_of

from snapbid.base.http import Answer
from snapbid.bidding.endpoint import Bidding, BidEndpoint
from snapbid.bidding.lookups import Lookups
from snapbid.bidding.request import decode
from snapbid.bidding.request_stats import RequestStats
from snapbid.bidding.response import Bid, ClickSigner, Template, adapted, response_writer, template
from snapbid.bidding.snapshot import CatalogSnapshot
from snapbid.campaigns.click_id import NO_AUCTION, Click, ClickKey, creative_digest, read
from snapbid.campaigns.persons import NOBODY, SHARED, PersonKey, is_member_id, is_somebody
from snapbid.campaigns.suppression import Suppression, hash_of
from snapbid.catalog.payload import CampaignPayload, CreativePayload
from snapbid.ledger.bids.records import BidVerdict, bid_digest
from snapbid.metrics import Metrics
from snapbid.reference import rates

KEY = ClickKey(19, bytes(range(32)))
SIGNER = ClickSigner(KEY.number, KEY.keys, bytes(16))
WRITER = response_writer("https://bid.example")
IDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
UINT = st.integers(0, 2**32 - 1)
SECRET = b"secret of the warehouse"
MARKUP = "<a href='https://s.example/?c={{click_id}}&again={{click_id}}'>{{imp_id}}</a>"


def made(number: int = 7, adm: str = MARKUP, crid: str = "k") -> Template:
    creative = CreativePayload(crid, 1, adm, 300, 250, (), None)
    document = CampaignPayload("c", number, "brand.example", None, (), (creative,))
    return template(document, creative, 1_000_000)


def ids_in(body: bytes) -> list[str]:
    (bid,) = json.loads(body)["seatbid"][0]["bid"]
    first, _, rest = bid["adm"].partition("?c=")[2].partition("&again=")
    return [first, rest.partition("'")[0]]


@given(UINT, UINT, UINT, st.integers(-(2**63), 2**63 - 1), IDS, IDS, st.booleans())
def test_a_click_id_in_markup_is_read(
    number: int, descriptor: int, time: int, person: int, auction: str, imp: str, named: bool
) -> None:
    stamp = SIGNER.stamp(descriptor, time * 1000, named, person)
    body = WRITER.write(auction, [Bid(imp, made(number, crid=auction), None)], click=stamp)
    digest = bid_digest(auction.encode(), imp.encode())[:8] if named else NO_AUCTION
    click = Click(number, creative_digest(auction), descriptor, time, digest, person)
    assert ids_in(body) == [KEY.make(click)] * 2
    assert read(ids_in(body)[0], {KEY.number: KEY}) == click


def test_click_ids_leave_out_the_creative_mark() -> None:
    """The ledger's number of a template has the creative's mark above the campaign's number."""
    built = made(2**31 - 1)
    assert built.number >> 32
    assert built.click == (2**31 - 1).to_bytes(4, "big") + creative_digest("k")
    assert adapted(built, 5, None).click == built.click
    assert made(adm="{{open}}click_id}}").click == b""


def test_without_a_stamp_there_are_dashes() -> None:
    bid = Bid("1", made(), None)
    body = WRITER.write("a", [bid])
    assert ids_in(body) == ["-" * 60] * 2
    stamp = SIGNER.stamp(1, 1_000, True, 1)
    assert len(WRITER.write("a", [bid], click=stamp)) == len(body)


def test_stamp_refusals() -> None:
    with pytest.raises(ValueError, match="3 keys"):
        ClickSigner(1, b"short", bytes(16))
    with pytest.raises(ValueError, match="name a campaign and a creative"):
        Template(7, 1, b"]}", (b"", b""), b"\5")


# -- persons --------------------------------------------------------------------------------------


class Nowhere:
    def country(self, ip: str) -> str | None:
        return None


class Remembering:
    """A ledger that has remembered at once."""

    def remember(self, *_: object) -> Any:
        return Verdict()

    look = remember


class Verdict:
    def __await__(self) -> Iterator[str]:
        return self

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        raise StopIteration(BidVerdict.KEPT.value)


CAMPAIGN = {
    "id": "c",
    "advertiser": "brand.example",
    "cpm": 1,
    "creatives": [{"id": "k", "media": "banner", "w": 300, "h": 250, "adm": MARKUP}],
}
RATES = rates.load()
CATALOG = catalog_of([CAMPAIGN], {"acme": "acme", "acme-eu": "acme"}, RATES)


def click_ids(request: dict[str, Any], folder: Path, **lookups: Any) -> list[str]:
    """The click ids of a bid on a request to a variant of an SSP, at epoch ms 5,999."""
    metrics, ledger = Metrics(folder), cast(Any, Remembering())
    bidding = Bidding(WRITER, ledger, metrics, max_bytes=8192, tmax_ms=60_000, clock=lambda: 5_999)
    found = Lookups(Nowhere(), RATES, **lookups)
    snapshot = CatalogSnapshot(CATALOG, found)
    endpoint = BidEndpoint("acme-eu", snapshot, bidding, RequestStats())
    imp = {"id": "1", "banner": {"w": 300, "h": 250}}
    body = json.dumps({"id": "a", "imp": [imp], **request}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]

    async def answered() -> Answer:
        coming = asyncio.get_running_loop().create_future()
        coming.set_result({"type": "http.request", "body": body, "more_body": False})
        return await endpoint(headers, lambda: coming)

    try:
        return ids_in(asyncio.run(answered()).body)
    finally:
        metrics.close()


@pytest.fixture
def clicked(tmp_path: Path) -> Callable[..., Click]:
    def click(request: dict[str, Any], suppression: Suppression | None = None) -> Click:
        (text, _) = click_ids(
            request, tmp_path, suppression=suppression or Suppression(SECRET), click_key=KEY
        )
        found = read(text, {KEY.number: KEY})
        assert found is not None
        assert (found.campaign, found.descriptor, found.time_s) == (1, 2, 5)
        return found

    return click


@pytest.mark.parametrize(
    ("request_", "member"),
    [
        ({"user": {"id": "U 1", "buyeruid": "b"}}, ("user", "U 1", "acme")),
        ({"user": {"buyeruid": "B"}, "device": {"ifa": "i"}}, ("ifa", "i", "")),
        ({"user": {"buyeruid": "B"}, "device": {"ifa": "0000-0000"}}, ("buyeruid", "B", "")),
        ({"user": {"id": 7}, "device": {"ifa": "{6D92078A-8246}"}}, ("ifa", "6d92078a8246", "")),
        ({"user": {"id": 7}}, ("user", "7", "acme")),
        ({"user": {"id": "nobody1"}}, ("user", "nobody1", "acme")),
        ({"user": {"id": "ärger"}}, ("user", "ärger", "acme")),
        ({"user": {"id": "null", "ext": {"eids": [{"uids": [{"id": "x"}]}]}}}, ("eid", "x", "")),
        (
            {"user": {"eids": [{"source": "Id.Example", "uids": [{"id": "x y"}]}]}},
            ("eid", "x y", "id.example"),
        ),
        ({"user": {"eids": [{"uids": [{"id": "x"}]}]}}, ("eid", "x", "")),
    ],
)
def test_clicks_name_the_member_known_to_audiences(
    clicked: Callable[..., Click], request_: dict[str, Any], member: tuple[Any, str, str]
) -> None:
    found = clicked(request_)
    assert found.person == PersonKey(SECRET).member(*member)
    assert found.auction == bid_digest(b"a", b"1")[:8]


ZEROES = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize("made", [hashlib.md5, hashlib.sha1, hashlib.sha256])
@pytest.mark.parametrize("id", ["", ZEROES, *SHARED])
def test_the_hash_of_nothing_names_nobody(
    clicked: Callable[..., Click], id: str, made: Callable[[bytes], Any]
) -> None:
    hash = made(id.encode()).hexdigest()
    for spelt in (hash, hash.upper(), f'"{hash}"'):
        assert clicked({"user": {"id": spelt}}).person == 0
        assert not is_member_id(spelt)
        assert not is_somebody(spelt)
    assert clicked({"user": {"id": hash[:2] + hash}}).person != 0


@pytest.mark.parametrize("id", SHARED)
def test_ids_that_many_devices_share_name_nobody(clicked: Callable[..., Click], id: str) -> None:
    for spelt in (id, id.upper(), f'"{id}"'):
        assert clicked({"user": {"id": spelt}, "device": {"ifa": spelt}}).person == 0
        assert not is_member_id(spelt)
        assert not is_somebody(spelt)
    assert clicked({"user": {"id": id[:-1] + "7"}}).person != 0


@given(
    id=st.one_of(st.sampled_from(sorted(NOBODY)), st.text(max_size=8), st.from_regex(r"\w{1,6}"))
)
def test_placeholder_ids_name_nobody(id: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    ids = click_ids(
        {"user": {"id": id}},
        tmp_path_factory.getbasetemp(),
        suppression=Suppression(SECRET),
        click_key=KEY,
    )
    found = read(ids[0], {KEY.number: KEY})
    somebody = is_member_id(id)
    assert found is not None
    assert found.person == (PersonKey(SECRET).member("user", id, "acme") if somebody else 0)


def test_clicks_without_a_person(clicked: Callable[..., Click]) -> None:
    user = {"user": {"id": "u"}}
    for request in ({}, {"user": {"id": "undefined"}}, {"device": {"ifa": "0000-0000"}}):
        assert clicked(request).person == 0
    denied = clicked({**user, "regs": {"coppa": 1}})
    assert (denied.person, denied.auction) == (0, NO_AUCTION)


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("user acme u", {"user": {"id": "u"}}),
        ("buyeruid u", {"user": {"buyeruid": "u"}}),
        ("ifa u1", {"device": {"ifa": "U-1"}}),
        ("eid s.example u", {"user": {"eids": [{"source": "S.Example", "uids": [{"id": "u"}]}]}}),
    ],
)
def test_forgotten_users_have_no_caps_and_can_self_exclude(
    clicked: Callable[..., Click], name: str, request_: dict[str, Any]
) -> None:
    """At the SSP at which he was forgotten; a user of that id elsewhere is another person."""
    forgotten = Suppression(SECRET, frozenset({hash_of(SECRET, name)}))
    lookups = Lookups(Nowhere(), rates.load(), suppression=forgotten)
    request = decode(json.dumps({"id": "a", "imp": [{"id": "1"}], **request_}).encode())
    assert lookups.person(request, "acme") is None
    assert (lookups.person(request, "nova") is None) == ("user" not in name)
    assert clicked(request_, forgotten).person == clicked(request_).person != 0


@pytest.mark.parametrize("limit", ["lmt", "dnt"])
def test_limited_ad_tracking_keeps_the_clicks_person(
    clicked: Callable[..., Click], limit: str
) -> None:
    """It is for frequency caps alone: who clicked must be able to exclude himself."""
    found = clicked({"user": {"id": "u"}, "device": {limit: 1}})
    assert found == clicked({"user": {"id": "u"}})
    assert found.person


@pytest.mark.parametrize("flag", [1, "1", 1.0, True])
def test_clicks_on_test_bids_do_not_count(flag: Any, tmp_path: Path) -> None:
    """Its bid is not counted, so its click would be an unpaid conversion."""
    assert click_ids({"test": flag}, tmp_path, click_key=KEY) == ["-" * 60] * 2


def test_without_a_key_there_is_no_click_id(tmp_path: Path) -> None:
    assert click_ids({}, tmp_path) == ["-" * 60] * 2
