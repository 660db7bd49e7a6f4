"""Any bytes for each decoder that has no such test beside it: an answer or the documented refusal.

Bid requests, events, tokens, gzip, settings and the catalog have theirs (test_bid_fuzz,
test_events, test_examine, test_tokens, test_http, test_settings, test_catalog).
"""

import contextlib
import json
import struct
from datetime import date
from io import BytesIO
from itertools import islice
from pathlib import Path
from urllib.parse import quote, quote_from_bytes, urlencode
from zlib import crc32

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.fuzz.targets import TARGETS

from snapbid.base.errors import BadDate, BadWindow
from snapbid.bidding._query import first_values
from snapbid.bidding.notice import NO_REASON, PARAMETERS, loss_reason
from snapbid.campaigns.campaign import CampaignError
from snapbid.campaigns.campaign_file import read_documents, read_file
from snapbid.campaigns.document import decode as decode_document
from snapbid.campaigns.document import parse
from snapbid.events.endpoint import read_options
from snapbid.events.keys import ApiKeys
from snapbid.ledger.bids.records import NOTICE
from snapbid.ledger.bids.spool import MAGIC, Spool
from snapbid.report import window
from snapbid.warehouse import rates

CAMPAIGN = {
    "id": "c",
    "advertiser": "brand.example",
    "cpm": 1.5,
    "budget": {"daily": 1, "pacing": "even"},
    "targeting": {"country": {"include": ["USA"]}, "geo_radius": [{"lat": 1, "lon": 2, "km": 3}]},
    "frequency_caps": [{"impressions": 1, "seconds": 2}],
    "starts_at": "2026-01-01T00:00:00Z",
    "creatives": [{"id": "k", "media": "banner", "w": 300, "h": 250, "adm": "x"}],
}
RATE = {"currency": "XAU", "date": "2026-01-01", "usd": "1.5"}
odd = st.sampled_from(
    [b"\0", b"\xff", b"\xed\xa0\x80", b"1e999", b"9" * 5000, b"[" * 3000, b"{", b"}", b'"', b",",
     b"NaN", b"-0", b"\\ud800", b"\\u0000", b"null", b"\xef\xbb\xbf", b"\n", b"\r", b" "]
)  # fmt: skip


def damaged(whole: bytes) -> st.SearchStrategy[bytes]:
    """The text with a stretch of it replaced by something odd; or any bytes at all."""

    def spoil(start: int, length: int, put: bytes) -> bytes:
        return whole[:start] + put + whole[start + length :]

    places = st.integers(0, len(whole))
    return st.builds(spoil, places, st.integers(0, 20), odd | st.binary(max_size=8)) | st.binary(
        max_size=200
    )


suffixes = st.sampled_from(["file.json", "file.jsonl", "-"])


@settings(max_examples=300)
@given(name=suffixes, data=damaged(json.dumps(CAMPAIGN).encode()))
@example(name="file.json", data=b"[" * 100_000)
@example(name="file.jsonl", data=b'{"id":' * 100_000)
@example(name="file.jsonl", data=json.dumps(CAMPAIGN).replace("1.5", "9" * 5000).encode())
@example(name="file.jsonl", data=json.dumps(CAMPAIGN).replace("1.5", "1e" + "9" * 5000).encode())
def test_campaign_files(name: str, data: bytes) -> None:
    try:
        read = list(read_file(name, BytesIO(data)))
    except CampaignError as error:
        refusal = error
    else:
        assert all(parse(decode_document(text)).id == campaign.id for campaign, text in read)
        return
    assert refusal.mistakes
    assert len(str(refusal)) < 20_000


@settings(max_examples=200)
@given(name=suffixes, data=damaged(json.dumps(RATE).encode()))
@example(name="file.json", data=b"[" * 100_000)
@example(name="file.jsonl", data=json.dumps(RATE).replace('"1.5"', "1e" + "9" * 5000).encode())
def test_files_of_rates(name: str, data: bytes) -> None:
    try:
        list(read_documents(name, BytesIO(data), rates.rule(), "rate"))
    except CampaignError as error:
        refusal = error
    else:
        return
    assert refusal.mistakes


@settings(max_examples=300)
@given(st.binary(max_size=120) | st.text("id=&%mp0aF+;", max_size=60).map(str.encode))
def test_query_strings_of_notices(text: bytes) -> None:
    reason = first_values(text, PARAMETERS)[2]
    assert loss_reason(reason) in range(NO_REASON, 10_000)


@given(st.dictionaries(st.sampled_from(["id", "impId", "nbr"]), st.binary(min_size=1)))
def test_a_query_string_means_what_was_quoted(values: dict[str, bytes]) -> None:
    for text in (
        urlencode(values, quote_via=quote),
        "&".join(f"{k}={quote_from_bytes(v)}" for k, v in values.items()),
    ):
        given = first_values(text.encode(), PARAMETERS)
        assert given == [values.get(name.decode(), b"") for name in PARAMETERS]


@given(st.text("-0123456789.eE+", max_size=6).map(str.encode) | st.binary(max_size=6))
def test_loss_reasons_are_ascii_digits(text: bytes) -> None:
    given_one = 1 <= len(text) <= 4 and all(byte in b"0123456789" for byte in text)
    assert loss_reason(text) == (int(text) if given_one else NO_REASON)


dates = st.sampled_from(
    [
        "2026-03-01",
        "2026-3-1",
        "\u0662026-03-01",
        "0000-00-00",
        "9999-12-31",
        "2026-02-30",
        "+2026-03-01",
    ]
)


@settings(max_examples=300)
@given(
    st.binary(max_size=100)
    | st.lists(st.tuples(st.sampled_from(["from", "to", "x"]), dates | st.text(max_size=12)))
    .map(urlencode)
    .map(str.encode)
)
@example(b"from=2026-03-01&to=2026-03-01&from=2026-03-01")
@example(b"from=%00&to=%ff")
def test_windows_of_reports(text: bytes) -> None:
    today = date(2026, 3, 4)
    try:
        parsed = window.parse(text, today)
    except (BadDate, BadWindow) as problem:
        refusal = problem
    else:
        assert parsed.first <= parsed.last <= today
        return
    assert refusal.status == 400
    assert refusal.detail.isprintable()


@given(st.lists(st.tuples(st.sampled_from([b"x-test-mode", b"prefer"]), st.binary(max_size=40))))
def test_headers_of_events(headers: list[tuple[bytes, bytes]]) -> None:
    assert read_options(headers).test in (True, False, None)


@given(st.binary(max_size=5000))
def test_unknown_keys(given_one: bytes) -> None:
    assert ApiKeys({"00" * 32: ("shop", (), 1, 1024)}).find(given_one) is None


def entry(shard: int, packed: bytes) -> bytes:
    return struct.pack("<HI", shard, crc32(packed)) + packed


entries = st.lists(
    st.builds(entry, st.integers(0, 65_535), st.binary(min_size=NOTICE.size, max_size=NOTICE.size)),
    max_size=4,
).map(b"".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(whole=entries, rest=st.binary(max_size=80), at=st.integers(0, 400), bits=st.integers(0, 255))
def test_files_of_the_spool(tmp_path: Path, whole: bytes, rest: bytes, at: int, bits: int) -> None:
    """What a crash left is read as far as it was acknowledged, whatever stands behind it."""
    data = bytearray(whole + rest)
    if at < len(whole):
        data[at] ^= bits
    data[:0] = MAGIC
    (tmp_path / "left.spool").write_bytes(data)
    (spooled,) = Spool(tmp_path, 1 << 20).abandoned()
    size = NOTICE.size + 6
    count = len(whole) // size
    notices = spooled.notices()
    spooled.done()
    assert notices is not None
    damaged_one = bits != 0 and at < len(whole) and at % size >= 2  # the shard is not covered
    assert len(notices) >= count - damaged_one
    assert all(len(packed) == NOTICE.size for _, packed in notices)


@pytest.mark.parametrize("data", [b"", b"\0" * 7, b"x" * 100_000])
def test_empty_spool_files(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "left.spool").write_bytes(data)
    (spooled,) = Spool(tmp_path, 1 << 20).abandoned()
    assert spooled.notices() is None
    spooled.keep()


@pytest.mark.parametrize("name", TARGETS)
def test_every_decoder_has_a_fuzz_target(name: str) -> None:
    """The targets of `make fuzz`, from their seeds."""
    target = TARGETS[name]
    for seed in target.seeds:
        target(seed)

    @settings(max_examples=60)
    @given(damaged(target.seeds[0]))
    def run(data: bytes) -> None:
        target(data)

    run()


TEXTS = st.text(st.characters(codec="utf-8"))
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
)


@given(JSON_VALUES, st.booleans())
@example(1e308, False)
@example(2**64, False)
@example("\ud83d\ude00", True)
def test_tolerant_decoders_agree(value: object, ascii_only: bool) -> None:
    """What the quick one refuses, Python's reads (`bidding/tolerance.py`)."""
    with contextlib.suppress(UnicodeEncodeError):
        text = json.dumps(value, ensure_ascii=ascii_only)
        assert repr(msgspec.json.decode(text)) == repr(json.loads(text))


@pytest.mark.parametrize("name", TARGETS)
def test_fuzzing_begins_with_inputs_that_are_accepted(name: str) -> None:
    """Else it would try little but refusals; some of the requests are answered with a bid."""
    target = TARGETS[name]
    accepted = [data for data in (*target.seeds, *islice(target.more(), 300)) if target(data)]
    assert accepted
