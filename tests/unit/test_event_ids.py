"""Ids by construction: what makes an event the same one (contract 7)."""

import json
from typing import Any

import pytest
from support.event_cases import NOW_MS, put, whole
from support.event_reading import PRESETS

from snapbid.events.catalog import EVENTS
from snapbid.events.outcomes import AcceptedEvent, Product, SingleResult
from snapbid.events.validate import read_single

KEYED = sorted(name for name, event in EVENTS.items() if event.key)
WHOLE = sorted(set(EVENTS) - set(KEYED))


def read(envelope: dict[str, Any], product: str = "demo", *, test: bool = False) -> AcceptedEvent:
    body = json.dumps(envelope).encode()
    single = read_single(body, Product(product, frozenset(PRESETS)), NOW_MS, test=test)
    assert isinstance(single, SingleResult)
    return single.event


def test_ids_are_stable_over_releases() -> None:
    # A change of these makes every retry over an upgrade a new event.
    assert read(whole(EVENTS["deposit"])).event_id == "ev1-8aed0d95e388932ce22b4b6b75c99597"
    assert read(whole(EVENTS["login"])).event_id == "ev1-dd9fbe334997e6cd2b9fe021c75c481a"


@pytest.mark.parametrize("name", KEYED)
def test_ids_depend_on_key_and_product(name: str) -> None:
    envelope = whole(EVENTS[name])
    first = read(envelope)
    put(envelope, "identity.client_user_id", "another")
    put(envelope, "timestamp", NOW_MS - 1)
    put(envelope, "context.currency", "USD")
    other = read(envelope)
    assert other.event_id == first.event_id
    assert other.envelope != first.envelope
    assert read(envelope, "other").event_id != first.event_id
    put(envelope, f"context.{EVENTS[name].key}", "another")
    assert read(envelope).event_id != first.event_id


@pytest.mark.parametrize("name", WHOLE)
def test_ids_depend_on_every_value(name: str) -> None:
    envelope = whole(EVENTS[name])
    first = read(envelope).event_id
    for path, value in (("timestamp", NOW_MS - 1), ("identity.click_id", "x"),
                        ("context.vendor", 1), ("identity.anonymous_id", None)):  # fmt: skip
        changed = json.loads(json.dumps(envelope))
        put(changed, path, value)
        assert read(changed).event_id != first, path


@pytest.mark.parametrize("test", [False, True], ids=["fast", "field by field"])
def test_integers_up_to_2_to_the_53_have_no_fraction(test: bool) -> None:
    envelope, leaf = whole(EVENTS["deposit"]), EVENTS["deposit"].value
    for value, kind in ((2.0, int), (2**53, int), (2.0**53, int), (2.0**54, float)):
        put(envelope, f"context.{leaf}", value)
        stored = read(envelope, test=test).document["context"][leaf]
        assert (stored, type(stored)) == (value, kind)


INTEGERS = (2**53 + 1, 2**53 + 3, 2**63 - 1, 2**63, 2**64 - 1, -(2**53) - 1, -(2**63))


@pytest.mark.parametrize("test", [False, True], ids=["live", "test mode"])
def test_custom_fields_keep_64_bit_integers(test: bool) -> None:
    """It may be an id: two that differ in the last digit are two events."""
    envelope, ids = whole(EVENTS["login"]), set()
    for number in INTEGERS:
        put(envelope, "context.order", {"id": number, "ids": [number]})
        put(envelope, "context.privacy.order", number)
        event = read(envelope, test=test)
        assert event.document["context"]["order"] == {"id": number, "ids": [number]}
        assert event.document["context"]["privacy"]["order"] == number
        assert f'"id":{number},' in event.envelope.decode()
        ids.add(event.event_id)
    assert len(ids) == len(INTEGERS)


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30])
def test_longer_integers_become_the_nearest_double(number: int) -> None:
    envelope = whole(EVENTS["login"])
    put(envelope, "context.order", number)
    assert read(envelope).document["context"]["order"] == float(number)


def test_a_key_shared_by_two_event_types_gives_two_ids() -> None:
    ids = {read(whole(EVENTS[name])).event_id for name in EVENTS}
    assert len(ids) == len(EVENTS)


@pytest.mark.parametrize("name", EVENTS)
def test_the_envelope_is_canonical(name: str) -> None:
    event = read(whole(EVENTS[name]))
    text = event.envelope.decode()
    document = event.document
    assert list(document) == ["event", "timestamp", "identity", "context"]
    parts = {key: json.loads(json.dumps(document[key], sort_keys=True)) for key in document}
    assert json.dumps(parts, separators=(",", ":"), ensure_ascii=False) == text
    identity = document["identity"]
    assert event.client_user_id == identity["client_user_id"]
    assert event.anonymous_id == identity["anonymous_id"]
    assert event.click_id == identity["click_id"]
    assert event.occurred_at_ms == document["timestamp"]
