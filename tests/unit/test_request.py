"""Decoding: what is read, what is tolerated, and how a refusal names the field (contract 3)."""

import json
from typing import Any

import pytest

from snapbid.base.errors import BadRequest
from snapbid.bidding.bounds import MAX_VALUES
from snapbid.bidding.request import BidRequest, decode

Document = dict[str, Any]


def read(imp: Any = None, **members: Any) -> BidRequest:
    document = {"id": "a", "imp": [{"id": "1", **(imp or {})}], **members}
    return decode(json.dumps(document).encode())


def refusal(body: bytes) -> str:
    with pytest.raises(BadRequest) as caught:
        decode(body)
    return caught.value.detail


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *((flag, 1) for flag in (1, 1.0, "1", "1.0", " 1 ", "1e0", True, "True")),
        *((zero, 0) for zero in (0, "0", False, "false", -0.0)),
        *((absent, None) for absent in ("", None, "null", "NULL")),
    ],
)
@pytest.mark.parametrize("beside", [{}, {"dooh": ""}], ids=["fast", "tolerant"])
def test_flags(written: Any, meant: int | None, beside: Document) -> None:
    assert read(test=written, **beside).test == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *((same, 300) for same in (300, 300.0, "300", "300.0", "3e2", 300.9, "300.9")),
        *((large, large) for large in (2**40, 10**30, -5)),
        *((absent, None) for absent in ("", "null")),
    ],
)
@pytest.mark.parametrize("beside", [{}, {"dooh": ""}], ids=["fast", "tolerant"])
def test_integers(written: Any, meant: int | None, beside: Document) -> None:
    assert read(tmax=written, **beside).tmax == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [(1.5, 1.5), ("1.5", 1.5), (2, 2.0), ("2", 2.0), (10**400, float("inf")), ("", None)],
)
@pytest.mark.parametrize("beside", [{}, {"dooh": ""}], ids=["fast", "tolerant"])
def test_numbers(written: Any, meant: float | None, beside: Document) -> None:
    assert (read({"bidfloor": written}, **beside).imp or [])[0].bidfloor == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *((text, text) for text in ("x", "null", "true", " ", "\x00")),
        *((number, str(number)) for number in (7, -3, 1.5, 12345678901234567890123)),
        (7.0, "7"),
    ],
)
@pytest.mark.parametrize("beside", [{}, {"dooh": ""}], ids=["fast", "tolerant"])
def test_ids(written: Any, meant: str, beside: Document) -> None:
    request = read({"id": written}, id=written, **beside)
    assert (request.id, (request.imp or [])[0].id) == (meant, meant)


@pytest.mark.parametrize("written", ["phone", "4G", {}, [2, 4], True])
def test_an_unknown_word_is_an_unknown_value(written: Any) -> None:
    if isinstance(written, (dict, list)):
        body = {"id": "a", "imp": [{"id": "1"}], "device": {"devicetype": written}}
        assert refusal(json.dumps(body).encode()).startswith("device.devicetype: expected")
    else:
        device = read(device={"devicetype": written}).device
        assert device is not None
        assert device.devicetype in (None, 1)


@pytest.mark.parametrize(
    ("name", "written", "meant"),
    [
        ("cur", "USD", ["USD"]),
        ("bcat", [1, "x", None, ""], ["1", "x"]),
        ("bcat", None, None),
        ("bcat", "", None),
        ("bcat", "null", None),
        ("bcat", [], []),
        ("wseat", 7, ["7"]),
    ],
)
def test_lists(name: str, written: Any, meant: Any) -> None:
    values = getattr(read(**{name: written}), name)
    assert (values and [str(value) for value in values if value not in (None, "")]) == meant


@pytest.mark.parametrize("name", ["site", "app", "dooh", "device", "user", "regs"])
def test_absent_and_empty_objects(name: str) -> None:
    empty: list[Any] = [None, "", [], "null"]
    for absent in empty:
        assert getattr(read(**{name: absent}), name) is None
    assert getattr(read(**{name: {}}), name) is not None


def test_a_lone_object_for_a_list() -> None:
    request = decode(b'{"id":"a","imp":{"id":"1"},"user":{"data":{"segment":{"id":5}}}}')
    assert [imp.id for imp in request.imp or ()] == ["1"]
    assert request.user is not None
    assert request.user.data is not None
    assert request.user.data[0].segment is not None
    assert request.user.data[0].segment[0].id == "5"


@pytest.mark.parametrize(
    ("written", "detail"),
    [
        ({"tmax": "1_0"}, "tmax: expected an integer, found a string"),
        ({"tmax": "٣"}, "tmax: expected an integer, found a string"),
        ({"tmax": "0x1"}, "tmax: expected an integer, found a string"),
        ({"tmax": {}}, "tmax: expected an integer, found an object"),
        ({"cattax": 1.5}, "cattax: expected an integer, found a fraction"),
        ({"regs": {"coppa": 0.5}}, "regs.coppa: expected 0 or 1, found a fraction"),
        ({"regs": {"gpp_sid": ["7.5"]}}, "regs.gpp_sid[0]: expected an integer, found a fraction"),
        ({"tmax": "nan"}, "tmax: expected an integer, found NaN"),
        ({"tmax": 0.5}, "tmax: expected an integer, found a fraction"),
        ({"test": "yes"}, "test: expected 0 or 1, found a string"),
        ({"id": True}, "id: expected a string, found a boolean"),
        ({"id": ["a", "b"]}, "id: expected a string, found a list"),
        ({"site": 5}, "site: expected an object, found a number"),
        ({"bcat": {}}, "bcat: expected a list, found an object"),
        ({"bcat": ["x", ["y"]]}, "bcat[1]: expected a string, found a list"),
        ({"imp": [{"id": "1"}, 5]}, "imp[1]: expected an object, found a number"),
        ({"device": {"geo": {"lat": "north"}}}, "device.geo.lat: expected a number, found a"),
        ({"imp": [{"id": "1", "bidfloor": True}]}, "imp[0].bidfloor: expected a number, found"),
        ({"id": None}, "id: is required and may not be empty"),
        ({"imp": [{"id": "1"}, {"id": ""}]}, "imp[1].id: is required and may not be empty"),
        ({"imp": [{"id": "1"}, {"id": 1}]}, "imp[1].id: is the same as imp[0].id"),
        ({"imp": []}, "imp: is required and may not be empty"),
    ],
)
def test_refusals_name_the_field(written: Document, detail: str) -> None:
    body = json.dumps({"id": "a", "imp": [{"id": "1"}], **written}).encode()
    assert refusal(body).startswith(detail)


def test_an_id_of_5000_digits_is_refused() -> None:
    assert refusal(b'{"id":%b,"imp":[{"id":"1"}]}' % (b"9" * 5000)).startswith("id: ")
    assert read(tmax=1).tmax == 1  # and nothing is left behind


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "the body is not JSON"),
        (b"\xff{}", "the body is not UTF-8 (byte 0)"),
        (b"\xef\xbb\xbf{}", "id: is required"),
        (b"\xef\xbb\xbf\xef\xbb\xbf{}", "the body is not JSON"),
        (b"[]", "the body is not a JSON object"),
        (b"[" * 40_000, "the body is nested too deeply"),
        (b"[" * 100_000, "the body has more than 65,536 values"),
        (b'{"id":"a","imp":[{"id":"1"}],"tmax":""}x', "the body is not JSON"),
        (b'{"id":"a","imp":[{"id":"1"}],"tmax":"","x":NaN}', "the body is not JSON"),
        (
            b'{"id":"a","tmax":"","imp":[{"id":"\\ud800"}]}',
            "imp[0].id: contains an unpaired surrogate",
        ),
    ],
)
def test_refusals_of_the_body(body: bytes, detail: str) -> None:
    assert refusal(body).startswith(detail)


@pytest.mark.parametrize(("values", "comma"), [("1,", ","), ("[],", ",["), ("{},", ",{")])
def test_a_body_may_have_so_many_values(values: str, comma: str) -> None:
    """Counted by its commas and the beginnings of lists and objects, wherever they stand."""
    head = '{"id":"a","imp":[{"id":"1"}],"bapp":["a"],"unknown":['
    few = (MAX_VALUES - sum(head.count(each) for each in ",[{")) // len(comma)
    assert decode((head + values * (few - 1) + "1,1]}").encode()).bapp == ["a"]
    assert refusal((head + values * (few + 1) + "1]}").encode()).startswith(
        "the body has more than 65,536 values"
    )
