"""Notices as they come in: queries, reasons, refusals (document 2; contract 5)."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import plain_query

from snapbid.base.errors import BadRequest, Unavailable
from snapbid.base.http import Answer, Message, Scope
from snapbid.bidding._query import first_values
from snapbid.bidding.notice import MAX_ID, NO_REASON, PIXEL, PIXEL_GIF, NoticeEndpoint, loss_reason
from snapbid.bidding.rejections import Rejections
from snapbid.bidding.signing import NoticeSigner
from snapbid.ledger.bids.ledger import SpoolFullError
from snapbid.ledger.bids.records import ALTERED, BILLING, LOSS, WIN, family_of
from snapbid.metrics import Metrics, exposition


class Settled:
    """A ledger that records notices; answers `letter`, or raises."""

    def __init__(self, letter: str = "c", error: Exception | None = None) -> None:
        self.letter = letter
        self.error = error
        self.calls: list[tuple[int, bytes, bytes, int]] = []
        self.otherwise: list[tuple[bytes, bytes] | None] = []

    async def settle(
        self,
        kind: int,
        auction_id: bytes,
        imp_id: bytes,
        reason: int = 0,
        otherwise: tuple[bytes, bytes] | None = None,
        family: bytes = b"",
    ) -> str:
        if self.error:
            raise self.error
        self.calls.append((kind, family + auction_id, imp_id, reason))
        self.otherwise.append(otherwise)
        return self.letter


async def nothing() -> Message:
    raise AssertionError("a notice has no body to read")


def fire(endpoint: NoticeEndpoint, text: bytes, method: str = "GET") -> Answer:
    scope: dict[str, Any] = {"method": method, "query_string": text}
    return asyncio.run(endpoint.unsigned(scope, nothing))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (b"", [b"", b""]),
        (b"id=a&impId=1", [b"a", b"1"]),
        (b"impId=1&id=a", [b"a", b"1"]),
        (b"id=a&id=b", [b"a", b""]),
        (b"id=&id=b", [b"", b""]),
        (b"id&id=b", [b"", b""]),
        (b"ID=a&i=b&idd=c&=d", [b"", b""]),
        (b"id=a=b", [b"a=b", b""]),
        (b"&&id=a&", [b"a", b""]),
        (b"id=a%20b+c%2Bd", [b"a b+c+d", b""]),
        (b"id=%00%ff%FE", [b"\0\xff\xfe", b""]),
        (b"id=%", [b"%", b""]),
        (b"id=%zz%4", [b"%zz%4", b""]),
        (b"id=%2525", [b"%25", b""]),
        (b"%69d=a", [b"", b""]),
        (b"id=a;impId=1", [b"a;impId=1", b""]),
        (b"id=\xff", [b"\xff", b""]),
    ],
)
def test_query(text: bytes, values: list[bytes]) -> None:
    assert first_values(text, (b"id", b"impId")) == values
    assert plain_query.first_values(text, (b"id", b"impId")) == values


@given(st.binary(min_size=1), st.binary(min_size=1))
def test_any_bytes_come_back_as_they_were(auction: bytes, imp: bytes) -> None:
    text = f"id={quote_from_bytes(auction, safe='')}&impId={quote_from_bytes(imp, safe='')}"
    assert first_values(text.encode(), (b"id", b"impId")) == [auction, imp]


@given(
    st.lists(
        st.sampled_from([b"id", b"impId", b"nbr", b"=", b"&", b"%", b"%2", b"%aF", b"%00", b"+"])
        | st.binary(max_size=3)
    ).map(b"".join),
    st.lists(st.sampled_from([b"id", b"impId", b"nbr", b"", b"n"]) | st.binary(max_size=2)).map(
        tuple
    ),
)
def test_queries_are_read_as_by_the_plain_parser(text: bytes, names: tuple[bytes, ...]) -> None:
    assert first_values(text, names) == plain_query.first_values(text, names)


def test_a_query_and_its_names_are_bytes() -> None:
    for query, names in ((None, ()), ("id=a", (b"id",)), (b"id=a", (None,)), (b"id=a", ("id",))):
        with pytest.raises(TypeError):
            first_values(query, names)  # type: ignore[arg-type]


@pytest.mark.parametrize("digits", ["0", "1", "102", "9999", "0007"])
def test_a_loss_reason_is_up_to_four_digits(digits: str) -> None:
    assert loss_reason(digits.encode()) == int(digits)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "${AUCTION_LOSS}",
        "10000",
        "-1",
        "+1",
        " 1",
        "1 ",
        "1.0",
        "0x1",
        "²",
        "\u0661",
        "a",
        "1_0",
    ],
)
def test_malformed_reasons_are_ignored(text: str) -> None:
    assert loss_reason(text.encode()) == NO_REASON


@pytest.mark.parametrize("kind", [WIN, BILLING, LOSS])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("text", "field"),
    [
        (b"", "id"),
        (b"impId=1", "id"),
        (b"id=&impId=1", "id"),
        (b"id=a", "impId"),
        (b"id=a&impId=", "impId"),
        (b"id=a&impid=1", "impId"),
        (b"id=" + b"a" * (MAX_ID + 1) + b"&impId=1", "id"),
        (b"id=a&impId=" + b"%00" * (MAX_ID + 1), "impId"),
        (b"id=a&impId=" + quote("é" * 257).encode(), "impId"),
    ],
)
def test_without_both_ids_it_is_refused(
    metrics: Metrics, kind: int, method: str, text: bytes, field: str
) -> None:
    settled = Settled()
    with pytest.raises(BadRequest, match=f"^{field}: "):
        fire(NoticeEndpoint(kind, settled, metrics), text, method)
    assert not settled.calls


def test_the_longest_ids_are_taken(metrics: Metrics) -> None:
    settled = Settled()
    text = f"id={quote('é' * 256)}&impId={'%00' * MAX_ID}".encode()
    fire(NoticeEndpoint(WIN, settled, metrics), text)
    assert settled.calls == [(WIN, ("é" * 256).encode(), b"\0" * MAX_ID, 0)]


@pytest.mark.parametrize("letter", "cldus")
def test_every_outcome_is_the_same_pixel(metrics: Metrics, letter: str) -> None:
    answer = fire(NoticeEndpoint(WIN, Settled(letter), metrics), b"id=a&impId=1")
    assert answer.start["status"] == 200
    headers = dict(answer.start["headers"])
    assert headers[b"content-type"] == b"image/gif"
    assert headers[b"cache-control"] == b"no-store"
    assert headers[b"content-length"] == b"43"
    assert answer.body == PIXEL_GIF
    assert len(PIXEL_GIF) == 43
    assert PIXEL_GIF.startswith(b"GIF89a\1\0\1\0")


def test_outcomes_are_counted_apart(metrics: Metrics, tmp_path: Path) -> None:
    settled = Settled()
    endpoint = NoticeEndpoint(BILLING, settled, metrics)
    for number, letter in enumerate("cldus", 1):
        settled.letter = letter
        for _ in range(number):
            fire(endpoint, b"id=a&impId=1")
    page = exposition(tmp_path).decode()
    for number, outcome in enumerate(("counted", "late", "duplicate", "unknown", "spooled"), 1):
        line = f'snapbid_notices_total{{kind="billing",outcome="{outcome}"}} {number}.0'
        assert line in page


def test_head_counts_nothing(metrics: Metrics) -> None:
    settled = Settled()
    answer = fire(NoticeEndpoint(WIN, settled, metrics), b"id=a&impId=1", "HEAD")
    assert answer.start["status"] == 200
    assert not settled.calls


def test_only_a_loss_has_a_reason(metrics: Metrics) -> None:
    settled = Settled()
    text = b"id=a&impId=1&nbr=102"
    for kind in (WIN, BILLING, LOSS):
        fire(NoticeEndpoint(kind, settled, metrics), text)
    fire(NoticeEndpoint(LOSS, settled, metrics), b"id=a&impId=1&nbr=${AUCTION_LOSS}")
    fire(NoticeEndpoint(LOSS, settled, metrics), b"id=a&impId=1&nbr=%24%7BAUCTION_LOSS%7D")
    fire(NoticeEndpoint(LOSS, settled, metrics), b"id=a&impId=1&nbr=%31")
    fire(NoticeEndpoint(LOSS, settled, metrics), b"id=a&impId=1")
    assert [reason for *_, reason in settled.calls] == [0, 0, 102, -1, -1, 1, -1]


def test_unstorable_notices_are_not_acknowledged(metrics: Metrics) -> None:
    endpoint = NoticeEndpoint(WIN, Settled(error=SpoolFullError("the spool is full")), metrics)
    with pytest.raises(Unavailable) as raised:
        fire(endpoint, b"id=a&impId=1")
    assert raised.value.status == 503


KINDS = (WIN, BILLING, LOSS)


@pytest.mark.parametrize(
    "ampersand", [b"&amp;", b"&AMP;", b"&amp;amp;", b"&amp%3B", b"&amp%3bamp;"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_an_ampersand_that_html_escapes_is_one(
    metrics: Metrics, kind: int, ampersand: bytes
) -> None:
    settled = Settled()
    text = ampersand.join([b"id=AbC%2B%2Fid-1%3D%3D", b"impId=1", b"nbr=102"])
    fire(NoticeEndpoint(kind, settled, metrics), text)
    reason = 102 if kind == LOSS else 0
    assert settled.calls == [(kind | ALTERED, b"AbC+/id-1==", b"1", reason)]


def test_a_loss_whose_reason_alone_is_escaped_has_it(metrics: Metrics) -> None:
    settled = Settled()
    fire(NoticeEndpoint(LOSS, settled, metrics), b"id=a&impId=1&amp;nbr=2")
    assert settled.calls == [(LOSS | ALTERED, b"a", b"1", 2)]


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_notices_are_settled_for_their_ids_decoded_again(
    metrics: Metrics, kind: int
) -> None:
    settled, unknown = Settled("u"), []
    endpoint = NoticeEndpoint(kind, settled, metrics, lambda *ids: unknown.append(ids))
    fire(endpoint, b"id=%2525a%252B&impId=1%2525&nbr=3")
    reason = 3 if kind == LOSS else 0
    assert settled.calls == [
        (kind, b"%25a%2B", b"1%25", reason),
        (kind | ALTERED, b"%a+", b"1%", reason),
    ]
    assert unknown == [(kind, b"%25a%2B", b"1%25"), (kind, b"%a+", b"1%")]


@pytest.mark.parametrize("letter", "clds")
def test_known_notices_are_not_decoded_again(metrics: Metrics, letter: str) -> None:
    """What goes to a spool is known later: there, its other reading stands beside it."""
    settled = Settled(letter)
    fire(NoticeEndpoint(WIN, settled, metrics), b"id=%252B&impId=1")
    assert settled.calls == [(WIN, b"%2B", b"1", 0)]
    assert settled.otherwise == [(b"+", b"1")]


@pytest.mark.parametrize(
    "text", [b"id=a%2B%20&impId=1", b"id=100%25&impId=%25zz", b"id=%25&impId=%"]
)
def test_ids_without_escapes_have_no_other_reading(metrics: Metrics, text: bytes) -> None:
    settled = Settled("u")
    fire(NoticeEndpoint(WIN, settled, metrics), text)
    assert len(settled.calls) == 1
    assert settled.otherwise == [None]


def test_the_longest_ids_may_be_encoded_twice(metrics: Metrics) -> None:
    settled = Settled()
    auction = "é" * 256
    fire(NoticeEndpoint(WIN, settled, metrics), f"id={quote(quote(auction))}&impId=1".encode())
    assert settled.calls == [(WIN | ALTERED, auction.encode(), b"1", 0)]


SIGNER = NoticeSigner(b"s" * 32)
FAMILY = family_of("acme")


def fire_signed(endpoint: NoticeEndpoint, token: bytes, text: bytes, method: str = "GET") -> Answer:
    scope: dict[str, Any] = {"method": method, "query_string": text}
    return asyncio.run(endpoint.signed(token.decode())(scope, nothing))


@pytest.mark.parametrize("text", [b"id=a%2Fb&impId=1", b"id=a%252Fb&impId=1"])
def test_a_signed_notice_counts_for_its_family_alone(metrics: Metrics, text: bytes) -> None:
    """As it came, or where its URL was encoded twice: the token tells which of both is meant."""
    settled = Settled()
    endpoint = NoticeEndpoint(WIN, settled, metrics, signer=SIGNER)
    token = SIGNER.token(FAMILY, b"a/b", b"1")
    assert fire_signed(endpoint, token, text) is PIXEL
    kind = WIN | ALTERED if b"%25" in text else WIN
    assert settled.calls == [(kind, FAMILY + b"a/b", b"1", 0)]
    assert settled.otherwise == [None]


def test_without_a_token_that_fits_nothing_counts(metrics: Metrics) -> None:
    settled = Settled()
    endpoint = NoticeEndpoint(WIN, settled, metrics, signer=SIGNER, only_signed=True)
    token = SIGNER.token(FAMILY, b"a", b"1")
    for other, text in (
        (token, b"id=b&impId=1"),
        (token, b"id=a&impId=2"),
        (token[:-1] + b"_", b"id=a&impId=1"),
        (b"", b"id=a&impId=1"),
    ):
        assert fire_signed(endpoint, other, text) is PIXEL
    assert fire(endpoint, b"id=a&impId=1") is PIXEL
    assert settled.calls == []
    unsigned = metrics.counter("snapbid_notices_total", kind="win", outcome="unsigned")
    assert unsigned.value == 5
    with pytest.raises(BadRequest, match="impId"):
        fire_signed(endpoint, token, b"id=a")
    assert fire_signed(endpoint, token, b"id=a&impId=1") is PIXEL
    assert len(settled.calls) == 1


class Noted:
    def __init__(self) -> None:
        self.calls: list[tuple[bytes, bytes, int]] = []

    def note(self, scope: Scope, auction_id: bytes, imp_id: bytes, reason: int) -> None:
        self.calls.append((auction_id, imp_id, reason))


@pytest.mark.parametrize(("kind", "letter", "is_noted"), [
    (LOSS, "c", True), (LOSS, "l", True), (LOSS, "d", False), (LOSS, "u", False),
    (LOSS, "s", False), (WIN, "c", False), (BILLING, "c", False),
])  # fmt: skip
def test_losses_that_were_settled_may_reject(
    metrics: Metrics, kind: int, letter: str, is_noted: bool
) -> None:
    noted = Noted()
    endpoint = NoticeEndpoint(kind, Settled(letter), metrics, rejections=noted)
    fire(endpoint, b"id=a&impId=1&nbr=203")
    assert noted.calls == ([(b"a", b"1", 203)] if is_noted else [])


async def test_every_filtering_reason_rejects_the_creative() -> None:
    """OpenRTB 2.5, 5.25: 200 to 213."""
    rejected: list[int] = []

    class Ledger:
        async def reject(self, _auction: bytes, _imp: bytes, reason: int, _: object) -> bool:
            rejected.append(reason)
            return True

    rejections = Rejections(Ledger())
    for reason in (103, *range(199, 215), 1000):
        rejections.note({}, b"a", b"1", reason)
    await asyncio.sleep(0)
    assert rejected == list(range(200, 214))
