"""The catalog against the tables of document 3, copied to `cases/events/document.json`."""

import json
from pathlib import Path

import pytest
from support.event_reading import PRESETS, read_batch

from snapbid.events.catalog import EVENTS, GAME_TYPES
from snapbid.events.fields import JSON_TYPES, Kind, Level
from snapbid.events.outcomes import BatchResult, Product
from snapbid.loadtest.events import MIX, encode, generate

CASES = Path(__file__).parents[1] / "conformance" / "cases" / "events"
DOCUMENT = json.loads((CASES / "document.json").read_text())
REAL_NAMES = {"ios", "android", "app_store", "google_play"}
SPECIAL_KINDS = {
    "ip_address": Kind.IP, "email_hash": Kind.HASH, "phone_hash": Kind.HASH,
    "currency": Kind.CURRENCY, "jurisdiction": Kind.COUNTRY,
    "phone_country_code": Kind.CALLING_CODE,
}  # fmt: skip
NO_CHOICE = {"currency", "transaction_id", "bonus_id"}  # what they mention are events and fields
LIFECYCLE = {"app_install", "app_open", "app_uninstall", "push_permission_updated"}


def test_the_events_are_those_of_the_document() -> None:
    assert list(EVENTS) == list(DOCUMENT)


@pytest.mark.parametrize("name", DOCUMENT)
def test_fields(name: str) -> None:
    event, rows = EVENTS[name], DOCUMENT[name]["fields"]
    assert event.preset == DOCUMENT[name]["preset"]
    fields = {field.path: field for field in event.fields}
    assert set(fields) == set(rows)
    for path, row in rows.items():
        field = fields[path]
        assert (JSON_TYPES[field.kind], field.level) == (row["type"], row["level"]), path
        assert (field.kind is Kind.TIME) is ("utc_ms" in row or path.endswith("_at")), path
        assert field.monetary or "monetary" not in row, path
        assert field.deprecated == tuple(row.get("deprecated", ())), path
        if row["type"] == "string" and field.leaf not in {*NO_CHOICE, "game_type"}:
            assert (field.kind is Kind.CHOICE) is ("mentioned" in row), path
        if field.kind is Kind.CHOICE and field.leaf != "game_type":
            assert set(row["mentioned"]) <= set(field.values), path
            assert set(field.values) - set(row["mentioned"]) <= REAL_NAMES, path


def test_overrides() -> None:
    assert {name for name, event in EVENTS.items() if event.lifecycle} == LIFECYCLE
    suggested = {name for name, event in EVENTS.items() if event.ip is Level.SUGGESTED}
    assert suggested == {"app_install", "bet"}
    keyed = {name: event.key for name, event in EVENTS.items() if event.key}
    payments = ("deposit_initiated", "deposit", "deposit_failed", "withdraw", "bet")
    bonuses = ("bonus_offered", "bonus_claimed", "bonus_completed")
    assert keyed == dict.fromkeys(payments, "transaction_id") | dict.fromkeys(bonuses, "bonus_id")
    needed = {name: event.required_with for name, event in EVENTS.items() if event.required_with}
    assert needed == {"session_ended": {"currency": ("total_wagered", "total_won")}}


def test_kinds_of_text_that_have_a_rule_of_their_own() -> None:
    fields = [field for event in EVENTS.values() for field in event.context_fields()]
    own = {
        (field.leaf, field.kind)
        for field in fields
        if field.leaf in SPECIAL_KINDS or field.kind in SPECIAL_KINDS.values()
    }
    assert own == {*SPECIAL_KINDS.items()}


def test_game_types() -> None:
    """As document 3 lists them for `bet`."""
    assert {key: " ".join(names) for key, names in GAME_TYPES.items()} == {
        "slot": "slot pachinko",
        "live_casino": "live gameshow",
        "sportsbook": "sport cockfight",
        "fishing": "fish arcade",
        "table_games": "baccarat blackjack roulette dice card table",
        "poker": "poker",
        "lottery": "lottery bingo instant",
        "esports": "esport",
        "crash": "crash aviator",
    }
    field = next(field for field in EVENTS["bet"].fields if field.leaf == "game_type")
    aliases = {alias: key for key, names in GAME_TYPES.items() for alias in names}
    assert field.stored_forms == {key: key for key in GAME_TYPES} | aliases


def test_only_a_net_outcome_may_be_negative() -> None:
    signed = {field.leaf for event in EVENTS.values() for field in event.fields if field.signed}
    assert signed == {"bet_result_amount"}


def test_amounts_have_a_currency() -> None:
    for event in EVENTS.values():
        kinds = {field.kind for field in event.fields}
        assert any(field.monetary for field in event.fields) is (Kind.CURRENCY in kinds), event.name


def test_the_load_test_sends_every_event() -> None:
    assert list(MIX.values) == list(EVENTS)
    sent = encode(generate(600, seed=1, now_ms=1_790_000_000_000))
    read = read_batch(sent, Product("casino", frozenset(PRESETS)), 1_790_000_000_000)
    assert isinstance(read, BatchResult)
    assert {event.event for event in read.accepted} == {*EVENTS}
