"""The bid response as it is written (contract 4, document 2)."""

import json
import re
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support import plain_response
from support.answers import check_bid_response

from snapbid.bidding._response import BidIds
from snapbid.bidding.response import (
    MAX_ANSWER,
    VALUES,
    Bid,
    Template,
    percent_encoded,
    response_writer,
    template,
)
from snapbid.catalog.payload import CampaignPayload, CreativePayload

BASE = "https://bid.example"
WRITER = response_writer(BASE)
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
markups = st.lists(
    st.sampled_from(
        [
            "{{auction_id}}",
            "{{imp_id}}",
            "{{campaign_id}}",
            "{{creative_id}}",
            "{{click_id}}",
            "{{open}}",
            "auction_id}}",
            "${AUCTION_PRICE}",
        ]
    )
    | texts
).map("".join)


def made(adm: str = "<p></p>", **members: Any) -> Template:
    creative = {"crid": "k", "mtype": 1, "adm": adm, "w": 300, "h": 250, "attr": (), "iurl": None}
    campaign = {"cid": "c", "number": 7, "adomain": "brand.example", "seat": None, "cat": ()}
    price_micros = members.pop("price_micros", 1)
    creative |= {name: members.pop(name) for name in list(members) if name in creative}
    advertisement = CreativePayload(**creative)  # type: ignore[arg-type]
    document = CampaignPayload(**{**campaign, **members}, creatives=(advertisement,))
    return template(document, advertisement, price_micros)


def written(*bids: Bid, auction: str = "a") -> Any:
    response = json.loads(WRITER.write(auction, list(bids), bid_id=b"b-1"))
    check_bid_response(response, auction, {bid.imp_id for bid in bids}, BASE)
    return response


def test_a_whole_response() -> None:
    iurl = "https://i.example/"
    full = made(
        "x", cat=("IAB3",), attr=(1, 6), iurl=iurl, seat="s", w=None, h=None, price_micros=1_250_000
    )
    assert written(Bid("1", full, "d")) == {
        "id": "a",
        "bidid": "b-1",
        "cur": "USD",
        "seatbid": [
            {
                "seat": "s",
                "bid": [
                    {
                        "id": "b-1-0",
                        "impid": "1",
                        "price": 1.25,
                        "adm": "x",
                        "adomain": ["brand.example"],
                        "cid": "c",
                        "crid": "k",
                        "cat": ["IAB3"],
                        "cattax": 1,
                        "attr": [1, 6],
                        "iurl": iurl,
                        "mtype": 1,
                        "dealid": "d",
                        "nurl": f"{BASE}/rtb/win?id=a&impId=1",
                        "burl": f"{BASE}/rtb/bill?id=a&impId=1",
                        "lurl": f"{BASE}/rtb/loss?id=a&impId=1&nbr=${{AUCTION_LOSS}}",
                    }
                ],
            }
        ],
    }


def test_bids_are_grouped_by_seat() -> None:
    first, second, seatless = made(seat="one"), made(seat="two"), made()
    order = [first, seatless, second, first, seatless]
    response = written(*(Bid(str(n), each, None) for n, each in enumerate(order)))
    grouped = {
        each.get("seat"): [bid["impid"] for bid in each["bid"]] for each in response["seatbid"]
    }
    assert grouped == {"one": ["0", "3"], None: ["1", "4"], "two": ["2"]}


@given(auction=texts, imp=texts, deal=st.none() | texts, seat=st.none() | texts)
@example(auction='"\\', imp="&=%", deal='"', seat="\x00")
@example(auction="${AUCTION_LOSS}", imp="{{auction_id}}", deal="é", seat="😀")
def test_any_ids_come_out_as_they_are(
    auction: str, imp: str, deal: str | None, seat: str | None
) -> None:
    response = written(Bid(imp, made(seat=seat), deal), auction=auction)
    (seatbid,) = response["seatbid"]
    assert seatbid.get("seat") == seat
    assert seatbid["bid"][0]["impid"] == imp
    assert seatbid["bid"][0].get("dealid") == deal


@given(adm=markups, auction=texts, imp=texts, cid=texts, crid=texts)
def test_any_markup_comes_out_with_its_macros_filled(
    adm: str, auction: str, imp: str, cid: str, crid: str
) -> None:
    values = {"auction_id": auction, "imp_id": imp, "campaign_id": cid, "creative_id": crid}
    values = {name: percent_encoded(value) for name, value in values.items()} | {"open": "{{"}
    values["click_id"] = "-" * 60
    expected = re.sub(rf"\{{\{{({'|'.join(values)})\}}\}}", lambda match: values[match[1]], adm)
    got = written(Bid(imp, made(adm, cid=cid, crid=crid), None), auction=auction)
    if "{{cachebuster}}" not in adm:
        assert got["seatbid"][0]["bid"][0]["adm"] == expected


@pytest.mark.parametrize(
    ("adm", "auction", "room_for"),
    [
        ("x" * 60_000, "a", 4),
        ('"' * 60_000, "a", 2),  # each is escaped
        ("x" * 300_000, "a", 1),  # a single bid always has room
        ("{{auction_id}}" * 100, "\u00e9" * 256, 1),  # 154 KB of ids
        ("x", "a", 40),
    ],
)
def test_an_answer_of_several_bids_has_a_greatest_length(
    adm: str, auction: str, room_for: int
) -> None:
    bids = [Bid(str(number), made(adm, seat=f"s{number % 2}"), None) for number in range(40)]
    body = WRITER.write(auction, bids, bid_id=b"b")
    assert [bid.imp_id for bid in bids] == [str(number) for number in range(room_for)]
    sent = [bid["impid"] for seat in json.loads(body)["seatbid"] for bid in seat["bid"]]
    assert sorted(sent, key=int) == [str(number) for number in range(room_for)]
    longest = max(MAX_ANSWER, WRITER.length(auction, bids[0])) + 10_000
    assert len(body) <= longest
    assert sum(WRITER.length(auction, bid) for bid in bids) <= longest


@pytest.mark.parametrize(("beyond", "kept"), [(0, 2), (1, 1)])
def test_the_greatest_length_is_reached_to_the_byte(beyond: int, kept: int) -> None:
    def bids(adm: str) -> list[Bid]:
        return [Bid("0", made("x"), None), Bid("1", made(adm), None)]

    numbered = 2 * len("-0")  # of each bid's id, if there are several
    least = sum(WRITER.length("a", bid) for bid in bids("")) + 2 * len("b") + numbered
    longest = bids("x" * (MAX_ANSWER - least + beyond))
    WRITER.write("a", longest, bid_id=b"b")
    assert len(longest) == kept


def test_cachebusters_differ() -> None:
    busting = made("{{cachebuster}}")
    response = written(Bid("1", busting, None), Bid("2", busting, None))
    first, second = (bid["adm"] for bid in response["seatbid"][0]["bid"])
    assert first != second
    assert re.fullmatch(r"[A-Za-z0-9_.~-]+", first)


@pytest.mark.parametrize(
    ("micros", "price"),
    [(1, 1e-6), (2_000_000, 2), (1_234_567, 1.234567), (10**15 + 1, 1000000000.000001)],
)
def test_prices_are_exact(micros: int, price: float) -> None:
    body = WRITER.write("a", [Bid("1", made(price_micros=micros), None)])
    literal = json.loads(body, parse_float=str)["seatbid"][0]["bid"][0]["price"]
    assert float(literal) == price
    assert round(float(literal) * 1_000_000) == micros


@given(texts)
@example("AZaz09-_.~")
@example("a b&c=d?e#f%g+h/é")
def test_percent_encoding(text: str) -> None:
    encoded = percent_encoded(text)
    assert re.fullmatch(r"(?:[A-Za-z0-9_.~-]|%[0-9A-F]{2})*", encoded)
    assert unquote(encoded, errors="strict") == text


ids = st.text(st.sampled_from('aZ09-_.~ "\\/+%&é☃\U0001f600\x00\x7f'), min_size=1, max_size=40)
lengths = st.sampled_from((0, 1, 50_000, 130_000, 270_000))


@st.composite
def bids_to_write(draw: st.DrawFn) -> list[Bid]:
    templates = [
        made(draw(markups) + "x" * draw(lengths), seat=draw(st.sampled_from((None, "s", 'ś"'))))
        for _ in range(draw(st.integers(1, 3)))
    ]
    count = draw(st.integers(1, 6))
    return [
        Bid(draw(ids | texts), draw(st.sampled_from(templates)), draw(st.none() | ids))
        for _ in range(count)
    ]


@given(ids | texts, bids_to_write(), st.sampled_from(("USD", "EUR")))
def test_the_writer_against_a_plain_one(auction: str, bids: list[Bid], currency: str) -> None:
    plain = plain_response.write(BASE, auction, "b-1", bids, currency)
    kept = list(bids)
    assert WRITER.write(auction, kept, currency, b"b-1") == plain
    assert kept == bids[: len(kept)]
    assert plain.count(b',"impid":') == len(kept)
    for bid in bids:
        own = plain_response.write_bid(BASE, auction, "", bid)
        assert WRITER.length(auction, bid) == len(own)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"values": b"\0\1\2"}, ValueError),  # a value without a piece before the next
        ({"values": bytes([len(VALUES)])}, ValueError),
        ({"pieces": (b"{", None)}, TypeError),
        ({"pieces": [b"{", b"}"]}, TypeError),
        ({"seat": None}, TypeError),
        ({"number": -1}, OverflowError),
    ],
    ids=str,
)
def test_what_is_no_template_cannot_be_made(
    changed: dict[str, Any], error: type[Exception]
) -> None:
    fields: dict[str, Any] = {
        "number": 1, "price_micros": 1, "seat": b"", "pieces": (b"{", b"}"), "values": b"\3",
    }  # fmt: skip
    assert Template(**fields).pieces == (b"{", b"}")
    with pytest.raises(error):
        Template(**fields | changed)


def test_the_writer_refuses_what_is_no_bid() -> None:
    unmade: list[Any] = [None, Bid.__new__(Bid), "1"]
    for bid in unmade:
        with pytest.raises((TypeError, ValueError)):
            WRITER.write("a", [bid])
        with pytest.raises((TypeError, ValueError)):
            WRITER.length("a", bid)
    with pytest.raises(ValueError, match="no bids"):
        WRITER.write("a", [])
    whole = made("{{imp_id}}")
    assert json.loads(WRITER.write("a", [Bid("1", whole, None)]))["id"] == "a"


def test_ids_of_answers_are_numbered_in_hexadecimal_digits() -> None:
    ids = BidIds(b"a1")
    assert [ids.next() for _ in range(70_000)] == [b"a1-%x" % n for n in range(1, 70_001)]
    assert BidIds(b"").next() == b"-1"
    with pytest.raises(TypeError):
        BidIds(None)  # type: ignore[arg-type]
