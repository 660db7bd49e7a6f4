"""The catalog's section for events: API keys and the operator's exchange rates (contract 7)."""

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import TypeAlias

import msgspec

IssuedKeys: TypeAlias = Mapping[str, tuple[str, tuple[str, ...], int, int]]
"""Product, its presets, requests and events per rolling minute, by a key's SHA-256
(hexadecimal)."""

OperatorRates: TypeAlias = Mapping[str, list[tuple[date, Decimal]]]
"""Pairs of first day and USD per unit, by currency."""


class EventConfig(msgspec.Struct, frozen=True):
    """What the catalog says about events."""

    keys: dict[str, tuple[str, tuple[str, ...], int, int]] = {}
    rates: dict[str, list[tuple[date, Decimal]]] = {}


def encode(issued: IssuedKeys, rates: OperatorRates) -> bytes:
    """Encode the section as JSON."""
    keys = {digest: tuple(key) for digest, key in issued.items()}
    return msgspec.json.encode({"keys": keys, "rates": rates})


def decode(text: bytes) -> EventConfig:
    """Decode what `encode` wrote, or `null`. Raises msgspec.DecodeError."""
    return msgspec.json.decode(text, type=EventConfig | None) or EventConfig()
