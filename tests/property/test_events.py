"""The two ways of reading an event agree, and nothing of a request can hurt or leak."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.event_cases import NOW_MS, put, whole
from support.event_reading import PRESETS, read_batch
from support.event_values import DIGEST, RIGHT, VALID, WRONG

from snapbid.events import fast
from snapbid.events.catalog import EVENTS
from snapbid.events.examine import MOST_UNKNOWN
from snapbid.events.fields import Level
from snapbid.events.outcomes import BatchResult, Product, SingleResult
from snapbid.events.rulebook import AHEAD_MS, RefusedRequest
from snapbid.events.strict_json import MAX_DEPTH
from snapbid.events.validate import read_single

PRODUCT = Product("demo", frozenset(PRESETS))
LATEST_MS = NOW_MS + AHEAD_MS


def resolved(value: Any) -> Any:
    """A table's value without shorthands; None for what Python has no JSON value."""
    if isinstance(value, dict) and "$repeat" in value:
        text, times = value["$repeat"]
        return text * times
    if isinstance(value, dict) and "$raw" in value:
        number = json.loads(value["$raw"])
        return number if abs(number) < 1e308 else 10**400
    return value


POOL = [resolved(value) for rows in (*WRONG.values(), *RIGHT.values()) for value, _ in rows]
# Copies: an envelope's later change may go into a value of an earlier one.
POOLED = st.sampled_from(POOL).map(deepcopy)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | POOLED
    | st.sampled_from([*VALID.values(), "x@example.com", "logo@2x.png"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
KEYS = st.sampled_from(
    ["extra", "email", "name_hash", "Email", "a b", "\u00e9", "a:b", "currency", "user_agent",
     "x" * 70, "phoneNumber", "e-mail", "traits"]
) | st.text(max_size=6)  # fmt: skip


def paths(envelope: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in envelope.items():
        yield prefix + key
        if isinstance(value, dict):
            yield from paths(value, f"{prefix}{key}.")


@st.composite
def envelopes(draw: st.DrawFn) -> dict[str, Any]:
    """A valid envelope of any event, with up to four things changed."""
    envelope = whole(EVENTS[draw(st.sampled_from(sorted(EVENTS)))])
    known = sorted(paths(envelope))
    for path in draw(st.lists(st.sampled_from(known), max_size=4, unique=True)):
        *parents, leaf = path.split(".")
        holder: Any = envelope
        for parent in parents:
            holder = holder.get(parent) if isinstance(holder, dict) else None
        if not isinstance(holder, dict):
            continue
        match draw(st.sampled_from(["drop", "null", "value", "unknown"])):
            case "drop":
                holder.pop(leaf, None)
            case "null":
                holder[leaf] = None
            case "value":
                holder[leaf] = draw(VALUES)
            case _:
                holder[draw(KEYS)] = draw(VALUES)
    return envelope


FIELDS = {
    name: {field.path: field for field in (*event.identity_fields(), *event.context_fields())}
    for name, event in EVENTS.items()
}
UNKNOWN = st.sampled_from(
    [
        None,
        "x",
        "",
        1,
        1.0,
        1.5,
        -0.0,
        True,
        2**53 + 1,
        10**30,
        10**400,
        [1.0],
        {"a": None},
        "a@b.c",
        DIGEST,
        DIGEST.upper(),
        DIGEST[1:],
    ]
).map(deepcopy)


@st.composite
def nearly_valid(draw: st.DrawFn) -> dict[str, Any]:
    """An envelope with a field or two as it also may be, left out, or more than there should be."""
    name = draw(st.sampled_from(sorted(EVENTS)))
    envelope = whole(EVENTS[name])
    for path in draw(st.lists(st.sampled_from(sorted(FIELDS[name])), max_size=3)):
        field = FIELDS[name][path]
        spelled = [resolved(value) for value, _ in RIGHT[field.kind]]
        optional = [None] if field.level is not Level.REQUIRED else []
        put(envelope, path, draw(st.sampled_from([*field.values, *spelled, *optional])))
    for _ in range(draw(st.integers(0, 2))):
        parent = draw(st.sampled_from(["context.", "context.privacy.", "identity.", ""]))
        put(envelope, parent + draw(KEYS).replace(".", ""), draw(UNKNOWN))
    return envelope


def encode(document: Any, *, ascii_only: bool = False) -> bytes:
    return json.dumps(document, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


@given(st.lists(POOLED))
def test_drawn_events_can_be_changed(values: list[Any]) -> None:
    before = deepcopy(POOL)
    for value in values:
        if isinstance(value, dict):
            value["changed"] = True
        elif isinstance(value, list):
            value.append("changed")
    assert before == POOL


@settings(max_examples=1000)
@given(nearly_valid() | envelopes(), st.booleans())
def test_fast_path_and_examination_agree(envelope: dict[str, Any], ascii_only: bool) -> None:
    body = encode(envelope, ascii_only=ascii_only)
    live = read_single(body, PRODUCT, NOW_MS)
    thorough = read_single(body, PRODUCT, NOW_MS, test=True)
    if isinstance(live, SingleResult):
        assert isinstance(thorough, SingleResult)
        assert live.event == thorough.event
    else:
        assert live == thorough


@pytest.mark.parametrize("name", EVENTS)
def test_a_valid_event_takes_the_fast_path(name: str) -> None:
    body = encode(whole(EVENTS[name]))
    taken = fast.read(body, fast.decoder_for(PRODUCT.presets), b"demo", LATEST_MS)
    thorough = read_single(body, PRODUCT, NOW_MS, test=True)
    assert isinstance(thorough, SingleResult)
    assert thorough.event == taken


def shuffled(value: Any, draw: Callable[..., Any]) -> Any:
    if not isinstance(value, dict):
        return value
    keys = draw(st.permutations(sorted(value)))
    return {key: shuffled(value[key], draw) for key in keys}


def numbers_spelled_otherwise(text: str) -> str:
    return text.replace(f'"timestamp": {NOW_MS}', f'"timestamp" : {NOW_MS}.0')


@given(st.sampled_from(sorted(EVENTS)), st.data())
def test_a_retry_has_the_same_id(name: str, data: st.DataObject) -> None:
    envelope = whole(EVENTS[name])
    put(envelope, "context.vendor", {"b": 1, "a": [1.5, "x"]})
    again = shuffled(deepcopy(envelope), data.draw)
    put(again, "context.nothing", None)
    bodies = [encode(envelope), encode(again),
              numbers_spelled_otherwise(json.dumps(again)).encode()]  # fmt: skip
    read = [read_single(body, PRODUCT, NOW_MS) for body in bodies]
    events = [result.event for result in read if isinstance(result, SingleResult)]
    assert len(events) == 3
    assert events[0] == events[1] == events[2]


@given(st.lists(envelopes(), min_size=1, max_size=4))
def test_a_batch_equals_its_events_one_by_one(several: list[dict[str, Any]]) -> None:
    singles = [read_single(encode(event), PRODUCT, NOW_MS) for event in several]
    malformed = any(
        isinstance(result, RefusedRequest) and result.violations[0].rule == "malformed_json"
        for result in singles
    )
    lenient = read_batch(encode(several), PRODUCT, NOW_MS, lenient=True)
    strict = read_batch(encode(several), PRODUCT, NOW_MS)
    if malformed:
        assert lenient == strict
        assert isinstance(strict, RefusedRequest)
        return
    assert isinstance(lenient, BatchResult)
    good = [result.event for result in singles if isinstance(result, SingleResult)]
    assert lenient.accepted == good
    bad = [result.violations for result in singles if isinstance(result, RefusedRequest)]
    rules = [
        [(violation.rule, violation.event) for violation in event.violations]
        for event in lenient.rejected
    ]
    assert rules == [
        [(violation.rule, violation.event) for violation in violations] for violations in bad
    ]
    assert isinstance(strict, BatchResult) is not bool(bad)


@given(envelopes(), st.data())
def test_damaged_bytes_are_answered(envelope: dict[str, Any], data: st.DataObject) -> None:
    body = bytearray(encode(envelope))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        if not body:
            return
    live = read_single(bytes(body), PRODUCT, NOW_MS)
    thorough = read_single(bytes(body), PRODUCT, NOW_MS, test=True)
    assert isinstance(live, SingleResult) is isinstance(thorough, SingleResult)
    read_batch(b"[" + bytes(body) + b"]", PRODUCT, NOW_MS)


@given(st.sampled_from(sorted(EVENTS)), st.data())
def test_no_value_is_echoed(name: str, data: st.DataObject) -> None:
    secret = "Zq9#secret"
    envelope = whole(EVENTS[name])
    for path in data.draw(st.lists(st.sampled_from(sorted(paths(envelope))), min_size=1)):
        *parents, leaf = path.split(".")
        holder: Any = envelope
        for parent in parents:
            holder = holder.get(parent) if isinstance(holder, dict) else None
        if isinstance(holder, dict):
            holder[leaf] = data.draw(st.sampled_from([secret, [secret], {secret: secret}]))
    put_secret = data.draw(st.booleans())
    if put_secret and isinstance(envelope["context"], dict):
        envelope["context"][secret] = {secret: 10**400}
    read = read_single(encode(envelope), PRODUCT, NOW_MS)
    if isinstance(read, RefusedRequest):
        assert secret not in repr(read)


@given(st.integers(1, 3 * MAX_DEPTH), st.sampled_from(["context", "identity", None]))
def test_depth_limits_agree(depth: int, where: str | None) -> None:
    envelope = whole(EVENTS["login"])
    nested: Any = 1
    for _ in range(depth):
        nested = {"context": nested}
    (envelope[where] if where else envelope)["context" if where else "deep"] = nested
    above = 2 if where else 1
    read = read_single(encode(envelope), PRODUCT, NOW_MS)
    assert isinstance(read, SingleResult) is (depth + above <= MAX_DEPTH)


@pytest.mark.parametrize("kind", ["violations", "warnings"])
def test_the_list_of_unknown_events_is_bounded(kind: str) -> None:
    """A small request gets no answer of megabytes: an address may stand in it 100,000 times."""
    event = whole(EVENTS["deposit"])
    known = 0
    if kind == "violations":
        event["context"]["elsewhere"] = ["a@b.example"] * 1000
        event["context"]["amount"] = "many"
        known = 1
    else:
        event["context"] |= {f"unknown_{number}": 1 for number in range(1000)}
    body = json.dumps([event] * 3).encode()
    found = read_batch(body, PRODUCT, NOW_MS, test=True)
    assert isinstance(found, BatchResult)
    assert len(found.rejected) == 3 * known
    listed = [each.violations for each in found.rejected] or [found.warnings]
    assert set(map(len, listed)) == {MOST_UNKNOWN + 1 if known else 3 * MOST_UNKNOWN}
