"""Click ids in bids (contract 12): what the response writer signs is what the codec reads."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapbid.base.suppression import Suppression, hash_of
from snapbid.bidding.lookups import Lookups
from snapbid.bidding.request import decode
from snapbid.bidding.response import Bid, ClickStamp, Template, adapted, response_writer, template
from snapbid.campaigns.click_id import NO_AUCTION, Click, ClickKey, creative_digest, read
from snapbid.campaigns.persons import PersonKey
from snapbid.catalog.payload import CampaignPayload, CreativePayload
from snapbid.ledger.bids.records import bid_digest
from snapbid.reference import rates

KEY = ClickKey(19, bytes(range(32)))
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
    stamp = ClickStamp(KEY.number, KEY.keys, descriptor, time, named, person)
    body = WRITER.write(auction, [Bid(imp, made(number, crid=auction), None)], click=stamp)
    digest = bid_digest(auction.encode(), imp.encode())[:8] if named else NO_AUCTION
    click = Click(number, creative_digest(auction), descriptor, time, digest, person)
    assert ids_in(body) == [KEY.make(click)] * 2
    assert read(ids_in(body)[0], {KEY.number: KEY}) == click


def test_a_creatives_mark_is_not_in_it() -> None:
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
    stamp = ClickStamp(KEY.number, KEY.keys, 1, 1, True, 1)
    assert len(WRITER.write("a", [bid], click=stamp)) == len(body)


def test_what_a_stamp_refuses() -> None:
    with pytest.raises(ValueError, match="3 keys"):
        ClickStamp(1, b"short", 1, 1, True, 1)
    with pytest.raises(ValueError, match="name a campaign and a creative"):
        Template(7, 1, b"]}", (b"", b""), b"\5")


# -- persons --------------------------------------------------------------------------------------


class Nowhere:
    def country(self, ip: str) -> str | None:
        return None


def clicked(
    request: dict[str, Any], permitted: bool = True, suppression: Suppression | None = None
) -> Click:
    lookups = Lookups(
        Nowhere(),
        rates.load(),
        suppression=suppression or Suppression(SECRET),
        click_key=KEY,
    )
    read_request = decode(json.dumps({"id": "a", "imp": [{"id": "1"}], **request}).encode())
    stamp = lookups.click_stamp(read_request, ("acme-eu", "acme"), 9, 5_999, permitted)
    (text, _) = ids_in(WRITER.write("a", [Bid("1", made(), None)], click=stamp))
    found = read(text, {KEY.number: KEY})
    assert found is not None
    assert (found.descriptor, found.time_s) == (9, 5)
    return found


@pytest.mark.parametrize(
    ("request_", "member"),
    [
        ({"user": {"id": "U 1", "buyeruid": "b"}}, ("user", "U 1", "acme")),
        ({"user": {"buyeruid": "B"}, "device": {"ifa": "i"}}, ("buyeruid", "B", "")),
        ({"device": {"ifa": "6D92078A-8246"}}, ("ifa", "6d92078a-8246", "")),
        (
            {"user": {"eids": [{"source": "id.example", "uids": [{"id": "x y"}]}]}},
            ("eid", "x y", "id.example"),
        ),
        ({"user": {"eids": [{"uids": [{"id": "x"}]}]}}, ("eid", "x", "")),
    ],
)
def test_a_click_names_the_member_that_audiences_know(
    request_: dict[str, Any], member: tuple[Any, str, str]
) -> None:
    found = clicked(request_)
    assert found.person == PersonKey(SECRET).member(*member)
    assert found.auction == bid_digest(b"a", b"1")[:8]


def test_a_click_without_a_person() -> None:
    user = {"user": {"id": "u"}}
    for request in ({}, {"user": {"id": "undefined"}}, {"device": {"ifa": "0000-0000"}}):
        assert clicked(request).person == 0
    forgotten = Suppression(SECRET, frozenset({hash_of(SECRET, "user u")}))
    assert clicked(user, suppression=forgotten).person == 0
    denied = clicked(user, permitted=False)
    assert (denied.person, denied.auction) == (0, NO_AUCTION)
    assert denied.campaign == 7


@pytest.mark.parametrize("limit", ["lmt", "dnt"])
def test_limited_tracking_hides_nobody_from_his_click(limit: str) -> None:
    """It is for frequency caps alone: who clicked must be able to exclude himself."""
    found = clicked({"user": {"id": "u"}, "device": {limit: 1}})
    assert found == clicked({"user": {"id": "u"}})
    assert found.person


@pytest.mark.parametrize("flag", [1, "1", 1.0, True])
def test_a_click_on_a_test_counts_for_nothing(flag: Any) -> None:
    """Its bid is not counted, so its click would be an unpaid conversion."""
    lookups = Lookups(Nowhere(), rates.load(), click_key=KEY)
    request = decode(json.dumps({"id": "a", "imp": [{"id": "1"}], "test": flag}).encode())
    stamp = lookups.click_stamp(request, ("acme", "acme"), 9, 5_000, True)
    (text, _) = ids_in(WRITER.write("a", [Bid("1", made(), None)], click=stamp))
    assert read(text, {KEY.number: KEY}) is None


def test_without_a_key_there_is_no_stamp() -> None:
    lookups = Lookups(Nowhere(), rates.load())
    request = decode(b'{"id":"a","imp":[{"id":"1"}]}')
    assert lookups.click_stamp(request, ("acme", "acme"), 9, 5_000, True) is None
