"""What a recording keeps of a request, and what it must not."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct
from support import consent
from support.stack import run

from snapbid.base.http import Answer, HeaderList, Message, Receive, answer, zstd
from snapbid.bidding import tcf
from snapbid.bidding.native_request import NATIVE_REQUESTS, NativeMarkup
from snapbid.bidding.request import BidRequest, Native, decode
from snapbid.operations.recording.recorder import MAX_BODY, Recorder
from snapbid.operations.recording.scrub import HARMLESS, Scrubber

SCRUBBER = Scrubber(b"k" * 32)
PERSONAL = {
    "id": "auction-of-ann",
    "imp": [{"id": "1", "banner": {"w": 300, "h": 250}, "ext": {"uid": "ann-1"}}],
    "site": {"page": "https://a.example/x?email=ann-2#ann-3", "ref": "https://b.example/?u=ann-4",
             "ext": {"visitor": "ann-5"}},
    "device": {
        "ua": "Mozilla/5.0",
        "ip": "203.0.113.77",
        "ipv6": "2001:db8::77",
        "ifa": "6D92078A-8246-4BA4-AE5B-76104861E7DC",
        "didsha1": "ann-6", "dpidmd5": "ann-7", "macsha1": "ann-8",
        "geo": {"country": "USA", "lat": 40.712345, "lon": -74.001234, "accuracy": 5},
        "ext": {"idfv": "ann-9"},
    },
    "user": {
        "id": "ann-10", "buyeruid": "ann-11", "yob": 1979, "gender": "F", "customdata": "ann-12",
        "keywords": "ann-13", "consent": next(iter(consent.TCF)),
        "eids": [{"source": "id.example", "uids": [{"id": "ann-14", "atype": 1}]}],
        "data": [{"id": "dmp", "segment": [{"id": "seg1"}]}],
        "ext": {"eids": [{"source": "x", "uids": [{"id": "ann-15"}]}], "sessions": "ann-16"},
        "geo": {"lat": 40.712345, "lon": -74.001234},
    },
    "source": {"tid": "ann-17", "ext": {"schain": {"ver": "1.0"}, "omidpn": "ann-18"}},
    "ext": {"who": "ann-19"},
}  # fmt: skip

SECRETS = (
    "ann-",
    "a.example/x",
    "auction-of",
    "203.0.113",
    "db8",
    "6D92078A",
    "40.71",
    "1979",
    '"F"',
)


def scrubbed(request: Any) -> Any:
    return SCRUBBER.scrub(json.loads(json.dumps(request)))


def test_nothing_personal_is_left() -> None:
    text = json.dumps(scrubbed(PERSONAL))
    leaked = [secret for secret in SECRETS if secret in text]
    assert not leaked, text


def test_fields_that_decide_bids_stay() -> None:
    kept = scrubbed(PERSONAL)
    decode(json.dumps(kept).encode())
    assert kept["user"]["data"] == [{"segment": [{"id": "seg1"}]}]
    assert kept["user"]["consent"] in consent.TCF
    assert kept["device"]["ua"] == "Mozilla/5.0"
    assert kept["device"]["geo"] == {"country": "USA", "lat": 40.7, "lon": -74.0}
    assert kept["site"] == {"page": "https://a.example/"}
    assert kept["imp"] == [{"id": "1", "banner": {"w": 300, "h": 250}}]
    assert kept["device"]["ip"].startswith("10.")
    assert kept["device"]["ipv6"].startswith("fd")
    assert len(kept["device"]["ifa"]) == 36


def test_pseudonyms_are_stable_per_key() -> None:
    assert scrubbed(PERSONAL) == scrubbed(PERSONAL)
    other = Scrubber(b"another key").scrub(PERSONAL)
    mine = scrubbed(PERSONAL)
    for part, name in (("user", "id"), ("user", "buyeruid"), ("device", "ip"), ("device", "ifa")):
        assert mine[part][name] != other[part][name]


OPT_OUTS: list[dict[str, Any]] = [
    {"regs": {"coppa": 1}},
    {"regs": {"coppa": "1"}},
    {"regs": {"gdpr": 1}},
    {"regs": {"ext": {"gdpr": True}}},
    {"regs": {"us_privacy": "1YYN"}},
    {"regs": {"us_privacy": "ann@b.example"}},
    {"regs": {"ext": {"us_privacy": "1YYN"}}},
    {"regs": {"gpc": 1}},
    {"regs": {"gpp_sid": [99]}},
    {"device": {**PERSONAL["device"], "lmt": 1}},  # type: ignore[dict-item]
    {"device": {**PERSONAL["device"], "dnt": "1"}},  # type: ignore[dict-item]
    {"tmax": {}},  # cannot be read: nobody knows
]


@pytest.mark.parametrize("opt_out", OPT_OUTS, ids=str)
def test_with_an_opt_out_no_id_is_left(opt_out: dict[str, Any]) -> None:
    request = {**PERSONAL, **opt_out}
    request["user"] = {**PERSONAL["user"], "consent": ""}  # type: ignore[dict-item]
    kept = scrubbed(request)
    assert kept["user"] == {"ext": {}, "geo": {}, "consent": ""}
    device = kept["device"]
    assert {name: device[name] for name in ("ua", "geo")} == {
        "ua": "Mozilla/5.0",
        "geo": {"country": "USA"},
    }
    assert not device.keys() - {"ua", "geo", "lmt", "dnt"}


def test_the_vendor_needs_consent_too() -> None:
    request = {**PERSONAL, "regs": {"gdpr": 1}}
    text = PERSONAL["user"]["consent"]  # type: ignore[index]
    for vendor in (None, 1, 65_000):
        kept = Scrubber(b"k" * 32, vendor).scrub(request)
        grants = tcf.grants_in_europe(text, vendor)
        assert ("id" in kept["user"]) is grants


@pytest.mark.parametrize("value", [None, 7, "ann", [{"id": "ann"}], True])
@pytest.mark.parametrize("path", ["device", "user", "site", "user.ext", "user.eids", "device.geo",
                                  "user.eids.0", "source", "imp"])  # fmt: skip
def test_odd_shapes_are_taken_and_hide_nothing(path: str, value: Any) -> None:
    request: Any = {"user": {"eids": [{}], "ext": {}}, "device": {"geo": {}}}
    *parents, name = path.split(".")
    place = request
    for parent in parents:
        place = place[parent]
    place[int(name) if name.isdigit() else name] = value
    assert "ann" not in json.dumps(scrubbed(request))


def test_ids_of_zeroes_stay_blank() -> None:
    blank = "00000000-0000-0000-0000-000000000000"
    assert scrubbed({"device": {"ifa": blank}})["device"]["ifa"] == blank


# -- whatever is sent ----------------------------------------------------------------------------

WORDS = "email Email e_mail eMail phone phoneNumber mac MAC zip name yob customdata keywords ext"


def every_field(struct: type[Struct], secret: str, depth: int = 0) -> dict[str, Any]:
    """A document with the secret in each field of a struct, and in many that are none."""
    info = msgspec.inspect.type_info(struct)
    assert isinstance(info, msgspec.inspect.StructType)
    document: dict[str, Any] = dict.fromkeys(WORDS.split(), secret)
    for field in info.fields:
        below = struct_of(field.type)
        value: Any = secret if below is None else every_field(below, secret, depth + 1)
        document[field.encode_name] = [value, [value]] if depth % 2 else value
        document[field.encode_name.upper() + "_"] = value
    return document


def struct_of(annotation: Any) -> type[Struct] | None:
    if isinstance(annotation, msgspec.inspect.StructType):
        return annotation.cls
    parts = getattr(annotation, "types", [getattr(annotation, "item_type", None)])
    return next((found for part in parts if part and (found := struct_of(part))), None)


@pytest.mark.parametrize("secret", ["zoe@q.example", "zoe%40q.example", "+1 555 0100", "zoe\nq"])
def test_an_address_or_phone_in_every_field_is_left_in_none(secret: str) -> None:
    request = every_field(BidRequest, secret)
    native = json.dumps({"native": {"assets": [{"id": 1, "title": {"len": secret}}], "x": secret}})
    request["imp"]["native"][0]["request"] = native
    for given in (request, {**request, "regs": {}}):
        text = json.dumps(scrubbed(given))
        assert "zoe" not in text
        assert "555" not in text
        assert "q.example" not in text


ASSETS = {"assets": [{"id": 1, "required": 1, "img": {"type": 3, "wmin": 300}}], "ver": "1.1"} | {
    "plcmttype": 4
}


@pytest.mark.parametrize(
    "native",
    [
        *({"request": written} for written in (ASSETS, json.dumps(ASSETS), {"native": ASSETS})),
        {"request": json.dumps(json.dumps(ASSETS))},
        {**ASSETS, "eventtrackers": [{"event": 1, "methods": [1, 2]}], "privacy": 1},
    ],
)
def test_a_native_request_keeps_its_meaning(native: dict[str, Any]) -> None:
    kept = scrubbed({"imp": [{"native": native}]})["imp"][0]["native"]
    read, given = (
        NATIVE_REQUESTS.of(msgspec.convert(each, Native, strict=False)) for each in (kept, native)
    )
    assert read is not None
    assert given is not None
    assert msgspec.structs.replace(read, number=0) == msgspec.structs.replace(given, number=0)


def test_a_field_that_no_struct_has_is_left_out_at_every_depth() -> None:
    request = every_field(BidRequest, "zq")
    request["user"]["data"] = {"id": "zq", "name": "zq", "segment": {"id": "s", "value": "zq"}}
    kept = scrubbed(request)

    def names(value: Any) -> Iterator[str]:
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                yield from item
                for below in item.values():
                    yield from names(below)

    assert not set(names(kept)) & {*WORDS.split(), "value", "name"} - {"ext"}
    assert not any(name.isupper() or name.endswith("_") for name in names(kept))


def structs_below(struct: type[Struct]) -> set[type[Struct]]:
    found = {struct}
    for field in msgspec.structs.fields(struct):
        below = struct_of(msgspec.inspect.type_info(field.type))
        if below is not None and below is not struct:
            found |= structs_below(below)
    return found


def test_each_text_is_harmless_changed_or_dropped() -> None:
    """A field that is new needs somebody's decision."""
    kept = [(struct, name) for struct, names in HARMLESS.items() for name in names.split()]
    decided = [*kept, *Scrubber(b"k")._changes, ("Geo", "zip")]  # which is dropped
    assert len(decided) == len(set(decided))
    structs = structs_below(BidRequest) | structs_below(NativeMarkup)
    known = {(each.__name__, name): is_text(type) for each in structs for name, type in of(each)}
    assert set(decided) <= known.keys()
    assert {key for key, text in known.items() if text} <= set(decided)


def of(struct: type[Struct]) -> Iterator[tuple[str, Any]]:
    for field in msgspec.structs.fields(struct):
        yield field.encode_name, msgspec.inspect.type_info(field.type)


def is_text(annotation: Any) -> bool:
    if isinstance(annotation, (msgspec.inspect.StrType, msgspec.inspect.AnyType)):
        return True
    parts = getattr(annotation, "types", [getattr(annotation, "item_type", None)])
    return any(is_text(part) for part in parts if part)


# -- the file ------------------------------------------------------------------------------------


async def send(recorder: Recorder, body: bytes, headers: dict[bytes, bytes] | None = None) -> Any:
    """Send a request in two parts to a watched handler; give what it has received."""
    seen: list[bytes] = []
    parts = iter([(body[:10], True), (body[10:], False)])

    async def receive() -> Message:
        part, more = next(parts)
        return {"type": "http.request", "body": part, "more_body": more}

    async def handler(headers: HeaderList, receive: Receive) -> Answer:
        more = True
        while more:
            message = await receive()
            seen.append(message["body"])
            more = message["more_body"]
        return answer(204)

    assert await recorder.watch("acme", handler)(list((headers or {}).items()), receive) == answer(
        204
    )
    return b"".join(seen)


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_a_request_is_passed_on_and_recorded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r", 1.0, 1 << 20, b"secret")
    body = json.dumps(PERSONAL).encode()
    assert await send(recorder, body) == body
    packed = gzip.compress(body)
    assert await send(recorder, packed, {b"content-encoding": b"gzip"}) == packed
    frame = zstd.compress(body)
    assert await send(recorder, frame, {b"content-encoding": b"zstd"}) == frame
    recorder.close()
    first, second, third = lines(tmp_path / "r")
    assert first["request"] == second["request"] == third["request"]
    assert first["ssp"] == "acme"
    assert first["request"]["imp"][0]["banner"] == {"w": 300, "h": 250}
    assert "ann-" not in (tmp_path / "r").read_text()


async def test_malformed_requests_are_left_out(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r", 1.0, 1 << 20, b"secret")
    for body in (b"{", b"[]", b"\xff" * 20, b'{"id":"' + b"x" * MAX_BODY + b'"}', b"[" * 5000):
        await send(recorder, body)
    await send(recorder, b"no gzip, but said to be", {b"content-encoding": b"gzip"})
    await send(recorder, b'{"id":"good","imp":[]}')
    recorder.close()
    assert [line["request"]["imp"] for line in lines(tmp_path / "r")] == [[]]


async def test_the_file_never_grows_over_its_bound(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r", 1.0, 5000, b"secret")
    for _ in range(20):
        await send(recorder, json.dumps(PERSONAL).encode())
    recorder.close()
    assert 3000 < (tmp_path / "r").stat().st_size <= 5000
    kept = len(lines(tmp_path / "r"))  # whole lines
    again = Recorder(tmp_path / "r", 1.0, 5000, b"secret")
    await send(again, json.dumps(PERSONAL).encode())
    again.close()
    assert len(lines(tmp_path / "r")) == kept


async def test_a_share_is_recorded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r", 1e-9, 5000, b"secret")
    for _ in range(20):
        await send(recorder, b'{"id":"1","imp":[]}')
    recorder.close()
    assert lines(tmp_path / "r") == []


def test_a_file_that_cannot_be_made_stops_the_start(tmp_path: Path) -> None:
    stores = {"SNAPBID_REDIS_URL": "unix:///nowhere", "SNAPBID_DATABASE_URL": "postgres://nowhere",
              "SNAPBID_JWT_SECRET": "x" * 32, "SNAPBID_HOME": str(tmp_path)}  # fmt: skip
    done = run(stores, "serve", "--record", str(tmp_path / "none" / "r"), "--sample", "2")
    assert done.returncode == 2
    first, second = sorted(done.stderr.splitlines())
    assert first.startswith("SNAPBID_RECORD must be a file in an existing directory")
    assert second.startswith("SNAPBID_RECORD_SAMPLE must be a number above 0 and at most 1")
