"""What a recording keeps of a request, and what it must not."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from support import consent
from support.stack import run

from snapbid.exchange.request import decode
from snapbid.http import Answer, HeaderList, Message, Receive, answer
from snapbid.recording.recorder import MAX_BODY, Recorder
from snapbid.recording.scrub import Scrubber

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

SECRETS = ("ann-", "auction-of", "203.0.113", "db8", "6D92078A", "40.71", "1979", '"F"')


def scrubbed(request: Any) -> Any:
    copy = json.loads(json.dumps(request))
    SCRUBBER.scrub(copy)
    return copy


def test_nothing_personal_is_left() -> None:
    text = json.dumps(scrubbed(PERSONAL))
    leaked = [secret for secret in SECRETS if secret in text]
    assert not leaked, text


def test_what_a_bidder_decides_by_stays() -> None:
    kept = scrubbed(PERSONAL)
    decode(json.dumps(kept).encode())
    assert kept["user"]["data"] == PERSONAL["user"]["data"]  # type: ignore[index]
    assert kept["user"]["consent"] in consent.TCF
    assert kept["device"]["ua"] == "Mozilla/5.0"
    assert kept["device"]["geo"] == {"country": "USA", "lat": 40.7, "lon": -74.0}
    assert kept["site"]["page"] == "https://a.example/x"
    assert kept["source"] == {"ext": {"schain": {"ver": "1.0"}}}
    assert kept["device"]["ip"].startswith("10.")
    assert kept["device"]["ipv6"].startswith("fd")
    assert len(kept["device"]["ifa"]) == 36


def test_one_user_stays_one_user_and_depends_on_the_key() -> None:
    assert scrubbed(PERSONAL) == scrubbed(PERSONAL)
    other = json.loads(json.dumps(PERSONAL))
    Scrubber(b"another key").scrub(other)
    mine = scrubbed(PERSONAL)
    for part, name in (("user", "id"), ("user", "buyeruid"), ("device", "ip"), ("device", "ifa")):
        assert mine[part][name] != other[part][name]


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
    text = json.dumps(scrubbed(request))
    assert "ann" not in text or path == "imp"


def test_ids_of_zeroes_stay_blank() -> None:
    blank = "00000000-0000-0000-0000-000000000000"
    assert scrubbed({"device": {"ifa": blank}})["device"]["ifa"] == blank


# -- the file ------------------------------------------------------------------------------------


async def send(recorder: Recorder, body: bytes, headers: dict[bytes, bytes] | None = None) -> Any:
    """One request, in two parts, to a handler that is watched; what the handler has seen."""
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
    recorder.close()
    first, second = lines(tmp_path / "r")
    assert first["request"] == second["request"]
    assert first["ssp"] == "acme"
    assert first["request"]["imp"][0]["banner"] == {"w": 300, "h": 250}
    assert "ann-" not in (tmp_path / "r").read_text()


async def test_what_is_no_request_is_left_out(tmp_path: Path) -> None:
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
    assert first.startswith("SNAPBID_RECORD must be a file in a directory that exists")
    assert second.startswith("SNAPBID_RECORD_SAMPLE must be a number above 0 and at most 1")
