"""Generates server events as a gaming partner sends them: a seeded mix of all types, as JSON.

An event has the fields that the event catalog requires or suggests, each with a value of its kind.
"""

import hashlib
import json
from random import Random
from typing import Any, Final

from snapbid.events.catalog import EVENTS
from snapbid.events.fields import Field, Kind, Level
from snapbid.loadtest.pools import shares

_AGENTS: Final = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like "
    "Gecko) Version/17.4 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/124.0.0.0 Safari/537.36",
    "Mozilla/5.0 (X11; Linux x86_64; rv:125.0) Gecko/20100101 Firefox/125.0",
)
_CURRENCIES: Final = ("EUR", "EUR", "USD", "BRL", "TRY", "INR", "eur")
MIX: Final = shares(
    "register 3 referral_register 1 login 8 email_verified 2 phone_verified 1"
    " marketing_consent_updated 1 app_install 2 app_open 6 app_uninstall 1"
    " push_permission_updated 1 session_ended 5 vip_tier_changed 1 kyc_completed 1 kyc_rejected 1"
    " account_blocked 1 account_unblocked 1 deposit_initiated 8 deposit 7 deposit_failed 1"
    " withdraw 3 bet 40 bonus_offered 2 bonus_claimed 1 bonus_completed 1 bonus_cashed_out 1"
)


def generate(count: int, seed: int, now_ms: int) -> list[dict[str, Any]]:
    """Generate valid envelopes dated before `now_ms`, in the proportions of `MIX`."""
    random = Random(seed)
    return [_envelope(random, now_ms) for _ in range(count)]


def _envelope(random: Random, now_ms: int) -> dict[str, Any]:
    event, is_crypto = EVENTS[MIX.draw(random)], random.random() < 0.1
    made: dict[str, Any] = {"event": event.name, "timestamp": now_ms - random.randrange(10**6)}
    for field in (*event.identity_fields(), *event.context_fields()):
        if field.level is not Level.OPTIONAL:
            owner = made
            for part in field.parent.split("."):
                owner = owner.setdefault(part, {})
            owner[field.leaf] = _value(field, random, now_ms, is_crypto=is_crypto)
    return made


def _value(field: Field, random: Random, now_ms: int, *, is_crypto: bool) -> Any:
    match field.kind:
        case Kind.CHOICE:
            return random.choice([value for value in field.values if value not in field.deprecated])
        case Kind.NUMBER if field.monetary:
            return round(random.uniform(-500 if field.signed else 0.1, 500), 2)
        case Kind.NUMBER:
            return random.randrange(1, 4000)
        case Kind.FLAG:
            return is_crypto if field.leaf == "is_crypto" else random.random() < 0.5
        case Kind.TIME:
            return now_ms - random.randrange(10**7)
        case Kind.HASH:
            return hashlib.sha256(random.randbytes(8)).hexdigest()
        case Kind.IP:
            return _address(random)
        case Kind.CURRENCY:
            return "USDT" if is_crypto else random.choice(_CURRENCIES)
        case Kind.COUNTRY:
            return random.choice(("MT", "GB", "DE"))
        case Kind.CALLING_CODE:
            return random.choice(("+44", "55"))
    return _text(field.leaf, random)


def _text(name: str, random: Random) -> str:
    """Return a string for the field `name`: a user agent, a new id or a short text."""
    if name == "user_agent":
        return random.choice(_AGENTS)
    return f"{name[:-3]}-{random.getrandbits(64):016x}" if name.endswith("_id") else f"a {name}"


def _address(random: Random) -> str:
    if random.random() < 0.3:
        return f"2001:db8::{random.getrandbits(16):x}:{random.getrandbits(16):x}"
    return ".".join(str(random.randrange(1, 255)) for _ in range(4))


def encode(events: Any) -> bytes:
    """Encode events as JSON with spaces, as a partner's serialiser does."""
    return json.dumps(events).encode()
