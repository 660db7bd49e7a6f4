"""Codes that fields hold: currencies, calling codes, and what a hash may not be."""

import pytest

from snapbid.events.values import EMPTY_HASH, read_hash
from snapbid.reference import calling_codes, currencies, history


def test_every_currency_in_the_history_is_valid() -> None:
    shipped = history.load()
    assert {*shipped.currencies, "EUR"} <= currencies.CODES


def test_the_tables_are_well_formed() -> None:
    assert all(len(code) == 3 and code.isalpha() and code.isupper() for code in currencies.CODES)
    assert all(code.isdigit() and 1 <= len(code) <= 3 for code in calling_codes.CODES)
    # No country code begins another one: E.164 numbers are read from the left.
    for code in calling_codes.CODES:
        assert not {code[:length] for length in range(1, len(code))} & calling_codes.CODES, code


@pytest.mark.parametrize("spelling", ["eur", "Eur", "EUR"])
def test_currencies_in_any_case(spelling: str) -> None:
    assert currencies.code(spelling) == "EUR"


@pytest.mark.parametrize("spelling", ["", "EU", "EURO", "DEM", "BTC", "\u017fek", "\u00dfD"])
def test_invalid_currencies(spelling: str) -> None:
    assert currencies.code(spelling) is None


def test_hash_of_empty_text() -> None:
    assert read_hash(EMPTY_HASH)[0] == "empty_hash"
    assert read_hash("0" * 64) == (None, "0" * 64)


@pytest.mark.parametrize("text", ["12345", "a@", "@b", "abc", "1" * 30, "2024-05-22T10:00"])
def test_personal_data_that_is_no_hash(text: str) -> None:
    assert read_hash(text)[0] == "sha256_hex"
