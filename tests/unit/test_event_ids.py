"""Ids by construction: what makes an event the same one (contract 7)."""

import json
from typing import Any

import pytest
from support.event_cases import NOW_MS, put, whole

from snapbid.events.catalog import EVENTS
from snapbid.events.fields import PRESETS
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
def test_the_key_and_the_product_make_the_id(name: str) -> None:
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
def test_every_value_makes_the_id(name: str) -> None:
    envelope = whole(EVENTS[name])
    first = read(envelope).event_id
    for path, value in (("timestamp", NOW_MS - 1), ("identity.click_id", "x"),
                        ("context.vendor", 1), ("identity.anonymous_id", None)):  # fmt: skip
        changed = json.loads(json.dumps(envelope))
        put(changed, path, value)
        assert read(changed).event_id != first, path


@pytest.mark.parametrize("test", [False, True], ids=["fast", "field by field"])
def test_a_whole_number_up_to_2_to_the_53rd_has_no_fraction(test: bool) -> None:
    envelope, leaf = whole(EVENTS["deposit"]), EVENTS["deposit"].value
    for value, kind in ((2.0, int), (2**53, int), (2.0**53, int), (2.0**54, float)):
        put(envelope, f"context.{leaf}", value)
        stored = read(envelope, test=test).document["context"][leaf]
        assert (stored, type(stored)) == (value, kind)


def test_one_key_in_two_events_are_two_events() -> None:
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
