"""Whatever is sent to the bid endpoint, it is answered: 200, 204, or a 4xx that says why."""

import gzip
import json
import random
from collections.abc import Iterator
from datetime import date
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given, reject, settings
from hypothesis import strategies as st
from support import everything
from support.answers import check_reply
from support.broken import NESTED_STATUSES, deeply_nested, of_bytes, of_values, paths_of
from support.client import BASE_URL, LocalApp
from support.corpus import Maker, public_corpus
from support.snapshot import snapshot_of

from snapbid.base.errors import BadRequest, Problem
from snapbid.bidding.request import BidRequest, decode
from snapbid.embedded import demo
from snapbid.reference.geo import GeoDatabase
from snapbid.reference.rates import Rates

Path = tuple[str | int, ...]
RATES = Rates({"USD": Fraction(1), "EUR": Fraction(11, 10)}, date(2026, 3, 4))
PATHS = list(paths_of(everything.REQUEST))

numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | st.text(max_size=20)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
odd_texts = st.sampled_from(
    ["", "null", "NULL", "true", "False", "1", "-1", "1.0", "1e3", " 7 ", "0x1", "1_0", "nan", "٣"]
)
odd_values = values | odd_texts | st.lists(odd_texts | scalars, max_size=3)


@pytest.fixture(scope="module")
def app(module_redis: str) -> Iterator[LocalApp]:
    documents = [*everything.campaigns(), *(json.loads(text) for _, text in demo.documents())]
    snapshot = snapshot_of(documents, demo.SSPS, RATES, GeoDatabase())
    with LocalApp(snapshot, module_redis) as local:
        yield local


def replaced(path: Path, new: Any) -> dict[str, Any]:
    """The request with every field, one of them another value."""
    request: Any = json.loads(json.dumps(everything.REQUEST))
    place = request
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = new
    return dict(request)


def test_full_request_has_every_field() -> None:
    def missing(struct: type[msgspec.Struct], documents: list[Any], path: str) -> Iterator[str]:
        info = msgspec.inspect.type_info(struct)
        assert isinstance(info, msgspec.inspect.StructType)
        for field in info.fields:
            values = [
                document[field.encode_name]
                for document in documents
                if field.encode_name in document
            ]
            if not values:
                yield f"{path}{field.encode_name}"
            for inner in structs_in(field.type):
                flat = [
                    item
                    for value in values
                    for item in (value if isinstance(value, list) else [value])
                ]
                yield from missing(inner, flat, f"{path}{field.encode_name}.")

    def structs_in(kind: Any) -> Iterator[type[msgspec.Struct]]:
        if isinstance(kind, msgspec.inspect.StructType):
            yield kind.cls
        for inner in [*getattr(kind, "types", ()), getattr(kind, "item_type", None)]:
            if inner is not None:
                yield from structs_in(inner)

    assert list(missing(BidRequest, [everything.REQUEST], "")) == []


def test_full_request_is_bid_on(app: LocalApp) -> None:
    body = json.dumps(everything.REQUEST).encode()
    reply = app.bid(body)
    check_reply(reply, body, BASE_URL)
    assert reply.status == 200


@settings(max_examples=300)
@given(st.binary(max_size=200))
@example(b"\xff")
@example(b'{"id":"a","imp":[{"id":"\\ud800"}]}')
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    status = 200
    try:
        request = decode(body)
        assert request.id
        assert request.imp
    except Problem as problem:
        status = problem.status
    assert status in (200, 400)


@given(body=st.binary(max_size=200) | st.text().map(str.encode), gzipped=st.booleans())
def test_any_bytes_are_answered(app: LocalApp, body: bytes, gzipped: bool) -> None:
    headers = {"content-encoding": "gzip"} if gzipped else {}
    check_reply(app.bid(body, headers=headers), body, BASE_URL)
    check_reply(app.bid(gzip.compress(body), headers=headers), body, BASE_URL)


@settings(max_examples=300)
@given(path=st.sampled_from(PATHS), value=odd_values)
@example(path=("imp", 0, "bidfloor"), value=10**400)
@example(path=("device", "geo", "lat"), value=-(10**400))
@example(path=("id",), value=10**4299)
def test_any_value_of_any_field_is_answered(app: LocalApp, path: Path, value: Any) -> None:
    body = json.dumps(replaced(path, value)).encode()
    check_reply(app.bid(body), body, BASE_URL)


@given(request=st.dictionaries(st.sampled_from([str(path[0]) for path in PATHS]), values))
def test_any_request_is_answered(app: LocalApp, request: dict[str, Any]) -> None:
    body = json.dumps({"id": "a", "imp": [{"id": "1"}], **request}).encode()
    check_reply(app.bid(body), body, BASE_URL)


latin = st.text(st.characters(codec="latin-1"), max_size=30)


@given(
    headers=st.dictionaries(
        st.sampled_from(
            ["content-type", "content-encoding", "content-length", "accept-encoding", "x-other"]
        ),
        latin
        | st.sampled_from(["application/json", "gzip", "identity", "-1", "1e3", "0", "9" * 30]),
    ),
    method=st.sampled_from(["POST", "GET", "HEAD", "BREW", ""]),
    path=st.sampled_from(["/api/v1/openrtb2/acme/bid", "/healthz", "/"]) | st.text(max_size=20),
)
def test_any_headers_and_paths_are_answered(
    app: LocalApp, headers: dict[str, str], method: str, path: str
) -> None:
    reply = app.call(method, path, headers, json.dumps(everything.REQUEST).encode())
    assert reply.status in (200, 400, 404, 405, 413, 415)


def plain(value: Any) -> Any:
    """What a struct says, however it was written: ids as text, nothing absent."""
    if isinstance(value, msgspec.Struct):
        members = {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        return {name: member for name, member in members.items() if member not in (None, "", [])}
    if isinstance(value, list):
        return [plain(item) for item in value if item is not None and item != ""]
    if isinstance(value, float):
        return str(value)  # NaN is to equal NaN
    return str(int(value)) if isinstance(value, int) else value


@settings(max_examples=300)
@given(path=st.sampled_from(PATHS), value=odd_values)
@example(path=("id",), value=1234567890123456789012)
@example(path=("test",), value="true")
@example(path=("device",), value="null")
@example(path=("imp", 0, "audio", "rqddurs", 0), value="null")
@example(path=("imp", 0, "bidfloor"), value=10**30)
def test_a_deviation_leaves_other_fields_unchanged(path: Path, value: Any) -> None:
    """The fast reading and the tolerant one agree; the second is asked for by a deviation."""
    document = replaced(path, value)
    fast = {**document, "dooh": {}}
    tolerant = {**document, "dooh": {"publisher": ""}}
    assume(path[0] != "dooh")
    try:
        read = decode(json.dumps(fast).encode())
    except BadRequest:
        reject()
    assert plain(read) == plain(decode(json.dumps(tolerant).encode()))


def test_the_generated_corpus_is_answered(app: LocalApp) -> None:
    statuses = set()
    for request in Maker(1).requests(2000):
        body = json.dumps(request).encode()
        reply = app.bid(body)
        check_reply(reply, body, BASE_URL)
        statuses.add(reply.status)
    assert statuses == {200, 204, 400}


def corpora() -> dict[str, dict[str, Any]]:
    made = {f"made {number}": request for number, request in enumerate(Maker(2).requests(60))}
    return {**public_corpus(), **made, "everything": everything.REQUEST}


def test_broken_corpora_are_answered(app: LocalApp) -> None:
    rng = random.Random(3)
    for name, document in corpora().items():
        for how, body in [*of_values(document, rng, 25), *of_bytes(document, rng)]:
            try:
                check_reply(app.bid(body), body, BASE_URL)
            except AssertionError as error:
                raise AssertionError(f"{name}, {how}: {body[:500]!r}") from error


def test_deep_nesting_is_answered(app: LocalApp) -> None:
    for how, body in deeply_nested():
        assert app.bid(body).status in NESTED_STATUSES, how
